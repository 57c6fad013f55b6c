"""`report`: one page about any runs; its tables are in the HTML itself, and text of runs cannot become code."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.reporting.report import Options, write_report
from rl_training.reporting.report.curves import curve_data, middle, thin
from rl_training.reporting.report.gathering import gather
from rl_training.reporting.report.labels import telling_keys
from rl_training.reporting.report.scripts import MISSING
from rl_training.statistics import bootstrap_interval, interquartile_mean

pytest.importorskip("bokeh")
EVIL = '<script>alert("x")</script>'


class Page(HTMLParser):
    """The visible text of a page, its elements, and its scripts."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self._inside = ""
        self.feed(file.read_text(encoding="utf-8"))
        self.text = re.sub(r"\s+", " ", " ".join(self.words))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.words.append(data)

    @property
    def data(self):
        return json.loads(next(script for script in self.scripts if script.startswith('{"groups"')))


def page_of(folder: Path, *paths: Path | str, **options) -> Page:
    write_report(paths or [folder], folder.parent / "page.html", Options(**options))
    return Page(folder.parent / "page.html")


@pytest.fixture
def runs(tmp_path, write_run):
    for seed in range(3):
        write_run(tmp_path / "runs" / "fast" / f"seed_{seed}", 5, 10 + seed, seed=seed, learning_rate=0.01)
        write_run(tmp_path / "runs" / "slow" / f"seed_{seed}", 5, 1 + seed, seed=seed)
    return tmp_path / "runs"


def test_endless_megabytes_are_refused(cli, tmp_path):
    result = cli("report", tmp_path, "--media-mb", "inf")
    assert (result.exit_code, result.stderr) == (2, "error: --media-mb must be a number of megabytes, got inf\n")


def test_the_page_has_scores_intervals_seeds_and_pairs(runs):
    page = page_of(runs)
    assert "sac learning_rate=0.01 3 seeds: the interval is too narrow 3 11.00 10.00 to 12.00" in page.text
    assert "sac learning_rate=0.01 over sac learning_rate=0.001 1.00 1.00 to 1.00 +9.0 about 2" in page.text
    assert "learning_rate 0.01 0.001" in page.text  # config differences
    assert "6 finished · 4.0 s of training" in page.text  # seeds of a population have the same time
    assert page.data["groups"] == ["sac learning_rate=0.01", "sac learning_rate=0.001"]
    assert [profile["title"] for profile in page.data["profiles"]] == ["X-v1"]


@pytest.mark.parametrize(("status", "stored"), [("finished", 20.0), ("stopped", 20.0), ("finished", 45.0)])
def test_the_time_of_a_resumed_run_counts_all_its_parts_and_no_pause(tmp_path, write_run, status, stored):
    run = write_run(tmp_path / "runs" / "resumed", 5)
    log = [(100, 10.0, 1000.0), (200, 10.0, 1010.0), (300, 5.0, 9000.0)]  # stopped for hours after step 200
    rows = [{"step": step, "steps_per_second": speed, "time": time} for step, speed, time in log]
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps({**result, "status": status, "seconds": stored, "steps": 300}))
    assert f"{max(40.0, stored)} s of training" in page_of(tmp_path / "runs").text


def test_an_unfinished_population_counts_its_time_once(tmp_path, write_run):
    for seed in range(3):
        run = write_run(tmp_path / "runs" / f"seed_{seed}", 5, seed=seed)
        rows = [{"step": step, "steps_per_second": 10.0 + seed / 100, "time": step / 10} for step in (100, 200)]
        (run / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        record = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps({**record, "population": [0, 1, 2]}))
        (run / "result.json").unlink()
    assert "20.0 s of training" in page_of(tmp_path / "runs").text


def test_the_page_asks_nothing_from_the_network(runs):
    page = page_of(runs)
    assert [
        attributes for tag, attributes in page.elements if tag in ("script", "img", "iframe") and "src" in attributes
    ] == []
    assert [attributes["href"] for tag, attributes in page.elements if tag == "link"] == ["data:,"]
    policy = next(attributes["content"] for _, attributes in page.elements if "http-equiv" in attributes)
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "sourceMappingURL" not in "".join(page.scripts)


def test_text_of_configs_and_logs_never_becomes_code(tmp_path, write_run):
    run = write_run(
        tmp_path / "runs" / EVIL.replace("/", "_"), 5, 10, env=EVIL, algo=f"sac{EVIL}", note=EVIL, status="failed"
    )
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps({**result, "stop_reason": f"broke: {EVIL}"}))
    record = {"argv": ["rl-training", "train", EVIL], "hardware": {"gpu": EVIL}, "versions": {EVIL: EVIL}, "git": EVIL}
    (run / "run.json").write_text(json.dumps(record))
    (run / "ope.json").write_text(
        json.dumps({"estimate": 1, "behaviour_return": 2, "warnings": [EVIL], "dataset": EVIL})
    )
    plain = page_of(tmp_path / "runs", title="one")
    write_run(tmp_path / "harmless" / "run", 5, 10)
    harmless = page_of(tmp_path / "harmless", title="one")
    assert len(plain.scripts) == len(harmless.scripts)
    assert not [script for script in plain.scripts if "alert" in script and not script.startswith('{"groups"')]
    assert plain.data["groups"] == [f"sac{EVIL}"]
    assert plain.text.count(EVIL) >= 10
    assert not [name for _, attributes in plain.elements for name in attributes if name.startswith("on")]


def test_nothing_that_a_config_names_is_imported(tmp_path, write_run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil_envs.py").write_text("raise SystemExit('imported')")
    write_run(tmp_path / "runs" / "run", 5, env="evil_envs:Env", algo="evil_envs:Algo", network="evil_envs:Net")
    page_of(tmp_path / "runs")
    assert "evil_envs" not in sys.modules


def test_unfinished_runs_are_shown_with_their_state_and_do_not_enter_the_score(runs, write_run):
    write_run(runs / "slow" / "seed_3", 500, seed=3, status="failed")
    write_run(runs / "slow" / "seed_4", 500, seed=4, status=None)
    write_run(runs / "slow" / "seed_5", 500, seed=5, status=None)
    os.utime(runs / "slow" / "seed_5" / "metrics.jsonl", (0, 0))
    page = page_of(runs)
    assert "without seeds 3-5, which have no final score" in page.text
    assert "3 finished, 1 training (100%), 1 incomplete, 1 failed" in page.text
    assert "no result at step 100 of 100; the last log entry is of 01 Jan 1970" in page.text
    (slow,) = (group for group in page.data["curves"][0]["groups"] if len(group["evaluation"]["seeds"]) == 6)
    assert slow["evaluation"]["middle"]["n"] == [3, 6]


def test_a_run_that_continues_after_it_was_stopped_is_training(tmp_path, write_run):
    run = write_run(tmp_path / "run", 5, status="stopped")
    (member,) = gather([str(run)]).members
    assert member.status == "stopped"
    os.utime(run / "result.json", (time.time() - 60, time.time() - 60))
    (member,) = gather([str(run)]).members
    assert member.status == "training"


def test_scores_so_far_are_shown_while_no_seed_has_finished(tmp_path, write_run):
    write_run(tmp_path / "runs" / "seed_0", 5, 7, status=None)
    page = page_of(tmp_path / "runs")
    assert "so far, at step 100: no seed has finished one seed: no interval 1 7.00" in page.text
    assert "One seed, so no band: sac" in page.text


def test_runs_without_evaluations_show_their_training_returns(tmp_path, write_run):
    write_run(tmp_path / "runs" / "a")
    page = page_of(tmp_path / "runs")
    assert "no evaluations; mean return of the last training episodes: 1.50" in page.text
    assert "returns of episodes in training are drawn: sac" in page.text
    assert [*page.data["curves"][0]["groups"][0]] == ["group", "training"]
    assert page.data["profiles"] == []


def test_an_empty_folder_gives_a_page_that_says_so(tmp_path):
    (tmp_path / "runs").mkdir()
    page = page_of(tmp_path / "runs")
    assert "There are no runs yet" in page.text
    assert f"{tmp_path / 'runs'} has no runs yet" in page.text


def test_damaged_runs_are_named_and_the_others_shown(runs):
    (runs / "fast" / "seed_0" / "config.yaml").write_text("[")
    (runs / "fast" / "seed_1" / "metrics.jsonl").write_text('{"step": "many"}\n')
    page = page_of(runs)
    assert "fast/seed_0 cannot be read" in page.text
    assert "fast/seed_1 cannot be read" in page.text
    assert "4 runs in 2 groups" in page.text


ODD: list[Any] = [None, True, -1, 10**400, 1e400, "x", "\ud800", [], [[{}]], {"a": {"b": None}}, "$$x$$", "</script>"]


@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
def test_odd_values_in_the_files_of_a_run_never_stop_the_report(runs, write_run, value):
    names = ("env_id", "seed", "dataset", "total_timesteps", "allow", "action_range", "algo_kwargs")
    for number, name in enumerate(names):
        write_run(runs / "odd" / str(number), 1, 2, seed=number, top={name: value})
    for file in ("run.json", "result.json", "ope.json"):
        run = write_run(runs / "odd" / file, 1, 2, note=file)
        keys = ("status", "seconds", "stop_reason", "argv", "hardware", "versions", "choices", "git", "estimate")
        (run / file).write_text(json.dumps(dict.fromkeys((*keys, "warnings"), value)))
    run = write_run(runs / "odd" / "rows", 1, 2, note="rows")
    row = {"step": value, "time": value, "episode_return": value, "evaluation": {"step": 1, "return_mean": value}}
    (run / "metrics.jsonl").write_text(f"{json.dumps(row)}\n{json.dumps({**row, 'evaluation': value})}\n[1]\n")
    page = page_of(runs)
    assert "3 11.00 10.00 to 12.00" in page.text
    assert len(page.scripts) == 5


def test_every_task_has_a_panel_and_a_group_has_one_colour_in_all(tmp_path, write_run):
    for env in ("A-v1", "B-v1"):
        for algo in ("ppo", "sac"):
            write_run(tmp_path / "runs" / f"{algo}-{env}", 1, 2, algo=algo, env=env)
    page = page_of(tmp_path / "runs")
    assert [panel["title"] for panel in page.data["curves"]] == ["A-v1", "B-v1"]
    assert [[group["group"] for group in panel["groups"]] for panel in page.data["curves"]] == [[0, 1], [0, 1]]
    assert page.data["groups"] == ["ppo", "sac"]


def test_offline_runs_have_updates_below_and_their_data_is_checked(tmp_path, write_run):
    data = tmp_path / "log.npz"
    ends = np.arange(8) % 4 == 3
    columns: dict[str, Any] = {
        "obs": np.arange(8.0)[:, None],
        "actions": np.linspace(-1, 1, 8)[:, None],
        "rewards": np.ones(8),
    }
    columns |= {"dones": ends, "truncated": np.zeros(8)}
    np.savez(data, allow_pickle=False, **columns)
    write_run(tmp_path / "runs" / "a", 1, 2, algo="iql", top={"dataset": str(data)})
    write_run(tmp_path / "runs" / "b", 1, 2, algo="bc", top={"dataset": str(tmp_path / "absent.npz")})
    page = page_of(tmp_path / "runs")
    assert page.data["curves"][0]["x_label"] == "updates"
    assert "8 rows, 8 usable transitions, 2 episodes: 2 terminated, 0 truncated." in page.text
    assert "Not checked: there is no such file here." in page.text
    assert f"--ope {data} --json > {tmp_path}/runs/a/ope.json" in page.text


def test_off_policy_estimates_stand_beside_their_caution(tmp_path, write_run):
    run = write_run(tmp_path / "runs" / "a", 1, 2, top={"dataset": "log.npz"})
    found = {"estimate": -5.0, "interval": [-6, -4], "behaviour_return": -7, "behaviour_interval": None, "gamma": 0.99,
             "unseen_actions": 0.25, "warnings": ["few episodes"], "dataset": "log.npz"}  # fmt: skip
    (run / "ope.json").write_text(json.dumps(found))
    (run / "ope_broken.json").write_text("{")
    page = page_of(tmp_path / "runs")
    assert "few episodes log.npz -5.00 -6.00 to -4.00 -7.00 0.99 25%" in page.text
    assert "Caution. The estimate does not cover states that are missing in the data" in page.text


def test_small_files_are_in_the_page_and_large_ones_are_linked(tmp_path, write_run):
    run = write_run(tmp_path / "runs" / "a b", 1, 2)
    (run / "videos").mkdir()
    (run / "videos" / "step_1.mp4").write_bytes(b"0" * 3000)
    (run / "videos" / "step_2.mp4").write_bytes(b"0" * 1000)
    (run / "strip.png").write_bytes(b"0" * 10)
    (tmp_path / "secret.png").write_bytes(b"1")
    (run / "link.png").symlink_to(tmp_path / "secret.png")
    (run / "curve.png").write_bytes(b"0")
    page = page_of(tmp_path / "runs", media_bytes=1500)
    links = [
        attributes["href"] for tag, attributes in page.elements if tag == "a" and "#" not in str(attributes["href"])
    ]
    assert sorted(map(str, links)) == [
        "./runs/a%20b/strip.png",
        "./runs/a%20b/videos/step_1.mp4",
        "./runs/a%20b/videos/step_2.mp4",
    ]
    embedded = [tag for tag, attributes in page.elements if str(attributes.get("src")).startswith("data:")]
    assert sorted(embedded) == ["img", "video"]
    assert "3.0 kB, not in this page" in page.text


def test_the_same_seed_twice_keeps_the_newest(tmp_path, write_run):
    write_run(tmp_path / "runs" / "a", 1)
    write_run(tmp_path / "runs" / "b", 2)
    os.utime(tmp_path / "runs" / "b" / "metrics.jsonl", (1e9, 1e9))
    page = page_of(tmp_path / "runs")
    older = f"Left out, because a newer run has the same setting and seed: {tmp_path}/runs/b."
    assert older in page.text
    assert "1 run in 1 group" in page.text


def test_a_bench_shows_cells_that_are_done_training_and_waiting(tmp_path, write_run):
    bench = tmp_path / "bench"
    (bench / "sac-X-v1").mkdir(parents=True)
    (bench / "bench.yaml").write_text("algos: [sac, td3, dqn]\nenvs: [X-v1]\n")
    measured = {"curve": [[10, 1.0], [20, 2.0]], "steps": 20, "seconds": 3}
    facts = [{"seed": seed, "score": {"return_mean": 4.0 + seed}, **measured} for seed in range(2)]
    cell = {"algo": "sac", "env": "X-v1", "dataset": None, "runs": facts, "commands": ["rl-training train sac X-v1"]}
    (bench / "sac-X-v1" / "result.json").write_text(json.dumps(cell))
    write_run(bench / "td3-X-v1" / "seed_0", 7, algo="td3", status=None)
    page = page_of(bench)
    assert "sac 2 seeds: the interval is too narrow 2 4.50 4.00 to 5.00" in page.text
    assert "td3 so far, at step 100" in page.text
    assert "Not started: dqn-X-v1." in page.text
    assert "rl-training train sac X-v1" in page.text


def test_benches_below_a_folder_keep_their_scores_and_show_their_options(tmp_path, write_run):
    for name, rate in (("a", 0.01), ("b", 0.1)):
        folder = tmp_path / "runs" / name / "sac-X-v1"
        write_run(folder / "seed_0", 9, 7, learning_rate=rate, top={"total_timesteps": 30})
        (folder.parent / "bench.yaml").write_text("algos: [sac]\nenvs: [X-v1]\n")
        facts = [{"seed": 0, "score": {"return_mean": 40.0}, "curve": [[50, 9.0], [100, 7.0]]}]
        cell = {"algo": "sac", "env": "X-v1", "dataset": None, "runs": facts}
        (folder / "result.json").write_text(json.dumps(cell))
    text = page_of(tmp_path / "runs").text
    assert "sac learning_rate=0.01 one seed: no interval 1 40.0" in text
    assert "sac learning_rate=0.1 one seed: no interval 1 40.0" in text
    assert "100 (asked 30) 7.00 9.00" in text  # last and best return are evaluations in training
    assert "40.0" in page_of(tmp_path / "runs" / "a" / "sac-X-v1").text
    with pytest.raises(ValueError, match="did you mean learning_rate"):
        page_of(tmp_path / "runs" / "a", by=["learning_rat"])
    (tmp_path / "runs" / "b" / "bench.yaml").write_text("[")
    assert "cannot be read" in page_of(tmp_path / "runs").text


def test_commands_that_started_the_runs_are_given(runs):
    words = ["/x/bin/rl-training", "train", "sac", "--set", "a=[1, 2]"]
    (runs / "fast" / "seed_0" / "run.json").write_text(json.dumps({"argv": words}))
    (runs / "slow" / "seed_0" / "run.json").write_text(json.dumps({"argv": ["script.py"]}))
    text = page_of(runs).text
    assert "rl-training train sac --set 'a=[1, 2]'" in text
    assert f"trained from Python; from its config: rl-training train {runs}/slow/seed_0/config.yaml --seeds 0-2" in text


def test_labels_have_the_fewest_options_that_separate_the_groups():
    assert telling_keys([{"a": 1, "b": 1, "c": 1}, {"a": 2, "b": 1, "c": 2}, {"a": 1, "b": 3, "c": 3}]) == ["c"]
    assert telling_keys([{"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 1}, {"a": 2, "b": 2}]) == ["a", "b"]
    assert telling_keys([{}]) == []


def test_the_line_is_the_interquartile_mean_of_the_seeds_that_have_reached_a_step():
    curves = [
        np.array([[0, 1.0], [10, 3.0]]),
        np.array([[0, 2.0], [10, 5.0], [20, 9.0]]),
        np.array([[5, 4.0], [10, 7.0]]),
    ]
    line = middle(curves)
    assert line["x"] == [0, 5, 10, 20]
    assert line["n"] == [2, 3, 3, 1]
    assert line["y"] == pytest.approx([1.5, interquartile_mean([2, 3.5, 4]), 5.0, 9.0], rel=1e-5)
    assert (line["low"][2], line["high"][2]) == pytest.approx(bootstrap_interval([3, 5, 7], resamples=1000), rel=1e-5)


def test_long_curves_are_thinned_and_keep_their_end():
    curve = np.stack([np.arange(10_001.0), np.arange(10_001.0)], 1)
    thinned = thin(curve, 100)
    assert thinned.shape == (100, 2)
    assert thinned[-1].tolist() == [10_000, 10_000]
    assert np.allclose(thinned[:, 0], thinned[:, 1])


def test_values_that_are_no_numbers_are_left_out_of_curves(tmp_path, write_run):
    run = write_run(tmp_path / "run", 5, float("nan"), 7)
    (panel,) = curve_data(gather([str(run)]))
    assert panel["groups"][0]["evaluation"]["seeds"][0]["y"] == [5, 7]


def test_the_command_reports_what_it_wrote(cli, runs, tmp_path):
    done = cli("report", runs, "--out", tmp_path / "r.html", "--json")
    assert done.exit_code == 0, done.stderr
    written = json.loads(done.stdout)
    assert {key: written[key] for key in ("path", "runs", "groups")} == {
        "path": str(tmp_path / "r.html"),
        "runs": 6,
        "groups": 2,
    }
    assert written["bytes"] == (tmp_path / "r.html").stat().st_size < 3e6
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.html", "runs"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent"], "absent does not exist"),
        (["'absent*'"], "absent*' does not exist|nothing matches"),
        ([".", "--out", "page.pdf"], "--out must end in .html, got page.pdf"),
        ([".", "--out", "no/page.html"], "directory no does not exist"),
        ([".", "--every", "0"], "greater than or equal to 1"),
        ([".", "--by", "batchsize"], "--by batchsize: no run has this key; did you mean batch_size?"),
    ],
)
def test_mistakes_are_named_in_one_sentence(cli, tmp_path, write_run, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run", 1)
    done = cli("report", *arguments)
    assert done.exit_code == 2
    assert any(each in done.stderr for each in message.split("|")), done.stderr
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("module", ["bokeh", "jinja2"])
def test_a_missing_extra_is_named(cli, runs, tmp_path, monkeypatch, module):
    from rl_training.reporting.report import scripts

    scripts.library.cache_clear()
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(scripts, "find_spec", lambda name: None if name == module else find_spec(name))
    done = cli("report", runs, "--out", tmp_path / "r.html")
    scripts.library.cache_clear()
    assert (done.exit_code, done.stderr) == (2, f"error: {MISSING}\n")
    assert not (tmp_path / "r.html").exists()


def test_every_writes_a_page_only_after_a_change_and_ctrl_c_ends_it(runs, tmp_path, write_run):
    page = tmp_path / "r.html"
    command = [sys.executable, "-m", "rl_training.cli", "report", str(runs), "--out", str(page), "--every", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert "6 runs" in process.stdout.readline()
            first = page.read_bytes()
            assert b'data-every="1"' in first
            time.sleep(2.5)
            assert page.read_bytes() == first
            write_run(runs / "slow" / "seed_3", 4, seed=3)
            assert "7 runs" in process.stdout.readline()
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert "7 runs" in output
    assert b'data-every=""' in page.read_bytes()
