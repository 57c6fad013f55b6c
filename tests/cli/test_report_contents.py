"""The page of `report`: scores, panels, data, files and commands; text of runs cannot become code."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from report_pages import page_of  # type: ignore[import-not-found]

sys.path.pop(0)
pytest.importorskip("bokeh")

EVIL = '<script>alert("x")</script>'


def test_the_page_has_scores_intervals_seeds_and_pairs(runs):
    page = page_of(runs)
    assert "sac learning_rate=0.01 3 seeds: the interval is too narrow 3 11.00 10.00 to 12.00" in page.text
    assert "sac learning_rate=0.01 over sac learning_rate=0.001 1.00 1.00 to 1.00 +9.0 about 2" in page.text
    assert "learning_rate 0.01 0.001" in page.text  # config differences
    assert "6 finished · 4.0 s of training" in page.text  # seeds of a population have the same time
    assert page.data["groups"] == ["sac learning_rate=0.01", "sac learning_rate=0.001"]
    assert [profile["title"] for profile in page.data["profiles"]] == ["X-v1"]


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
