"""`bench` and `compare`: options, files and output."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from rl_training.cli.executors import size
from rl_training.data.writers import save_npz
from rl_training.experiment.run_directory import locked_file
from rl_training.runtime.recipes import roll_dataset

pytestmark = pytest.mark.usefixtures("forked_jobs")
TINY = ["--seeds", "0-1", "--steps", "4", "--episodes", "2", "--set", "dataset={kind: random, rows: 200}",
        "--set", "hidden_sizes=[8]", "--set", "eval_interval=2", "--set", "eval_episodes=1"]  # fmt: skip


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A good cell and a cell with an unknown environment."""
    output = tmp_path_factory.mktemp("benches") / "bench"
    return ["bench", "--algos", "bc", "--envs", "Pendulum-v1,Pendulun-v1", *TINY, "--output", str(output), "--json"]


@pytest.fixture(scope="module")
def ended(forking, cli, command) -> Any:
    with forking():
        return cli(*command)


@pytest.fixture(scope="module")
def bench(ended) -> str:
    return str(json.loads(ended.stdout)["bench"])


def test_a_cell_that_fails_is_reported_and_the_others_continue(ended):
    assert ended.exit_code == 1
    report = json.loads(ended.stdout)
    good, bad = report["cells"]
    assert (report["status"], good["state"], bad["state"]) == ("failed", "done", "failed")
    assert (len(good["scores"]), bad["scores"]) == (2, [])
    assert "Pendulun" in bad["error"]
    assert f"bc-Pendulun-v1: failed: {bad['error']}" in ended.stderr.splitlines()


def test_after_a_failure_the_output_names_the_log(cli, command, ended):
    assert "correct the error (log.txt in the folder of the cell has the details)" in cli(*command[:-1]).stdout


def test_a_score_equals_the_output_of_evaluate_for_the_last_checkpoint(cli, bench):
    run = Path(bench) / "bc-Pendulum-v1" / "seed_1"
    result = cli("evaluate", run, "--episodes", "2", "--seed", "12345", "--json")
    assert result.exit_code == 0, result.stderr
    evaluation = json.loads(result.stdout)
    stored = json.loads((run.parent / "result.json").read_text())
    assert stored["runs"][1]["score"]["returns"] == evaluation["returns"]
    assert stored["commands"][1] == "rl-training evaluate RUN --episodes 2 --seed 12345"


def test_another_plan_for_the_directory_is_a_user_error(cli, command, bench):
    value = command.index("--seeds") + 1
    result = cli(*command[:value], "0-2", *command[value + 1 :])
    assert (result.exit_code, result.stderr) == (
        2,
        f"error: {bench} holds another bench (seeds: [0, 1] there, [0, 1, 2] here). "
        "Continue it with its own plan, or choose another --output.\n",
    )


@pytest.mark.slow
def test_one_command_sets_an_imitator_beside_cloning_on_the_same_file(cli, tmp_path):
    save_npz(roll_dataset("FixedHorizonCartPole-v0", rows=1_000), tmp_path / "experts.npz")
    both = "gail/cartpole_fixed_horizon,bc/cartpole_fixed_horizon"
    result = cli("bench", "--configs", both, "--datasets", tmp_path / "experts.npz", "--seeds", "0", "--steps", "32",
                "--episodes", "1", "--set", "eval_interval=0", "--set", "dataset_episodes=2",
                "--output", tmp_path / "bench", "--json")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    results = [json.loads(file.read_text()) for file in sorted((tmp_path / "bench").glob("*/result.json"))]
    assert [result["algo"] for result in results] == ["bc/cartpole_fixed_horizon", "gail/cartpole_fixed_horizon"]
    assert results[0]["data"] == results[1]["data"] is not None
    assert all(run["score"]["lengths"] == [500] for result in results for run in result["runs"])


def test_compare_summarises_the_cells_that_are_done_and_names_the_others(cli, bench, tmp_path):
    result = cli("compare", bench, "--json", "--csv", tmp_path / "runs.csv", "--markdown", tmp_path / "table.md")
    assert (result.exit_code, result.stderr) == (0, "left out because they are not done: bc-Pendulun-v1\n")
    report = json.loads(result.stdout)
    (algorithm,) = report["tasks"][0]["algorithms"]
    assert (report["missing"], report["tasks"][0]["env"], algorithm["seeds"]) == (["bc-Pendulun-v1"], "Pendulum-v1", 2)
    rows = list(csv.DictReader((tmp_path / "runs.csv").open()))
    assert [(row["algo"], row["env"], row["seed"], row["steps"]) for row in rows] == [
        ("bc", "Pendulum-v1", "0", "4"),
        ("bc", "Pendulum-v1", "1", "4"),
    ]
    assert [float(row["score"]) for row in rows] == algorithm["scores"]
    assert rows[0]["config_hash"] == rows[1]["config_hash"]  # of all but the seed
    assert (tmp_path / "table.md").read_text().startswith("| environment | algorithm | seeds | score [95%] |\n")


@pytest.mark.parametrize(
    ("option", "file", "message"),
    [
        ("--csv", "absent/runs.csv", "cannot write runs.csv: directory {0}/absent does not exist"),
        ("--markdown", "absent/table.md", "cannot write table.md: directory {0}/absent does not exist"),
        ("--markdown", "", "{0} is a directory; name a file in it"),
        ("--plot", "absent/curves.png", "cannot write curves.png: directory {0}/absent does not exist"),
        ("--plot", "curves.txt", "--plot must end in .png, .pdf or .svg, got {0}/curves.txt"),
    ],
)
def test_a_path_that_cannot_be_written_is_reported_in_one_sentence(cli, bench, tmp_path, option, file, message):
    result = cli("compare", bench, option, tmp_path / file)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"error: {message.format(tmp_path)}\n")
    assert list(tmp_path.iterdir()) == []


def test_the_number_of_seeds_needed_is_explained_only_where_it_is_printed(cli, tmp_path):
    for algo in ("bc", "iql"):
        (tmp_path / f"{algo}-X-v1").mkdir()
        run = {"seed": 0, "score": {"return_mean": 1.0}, "curve": []}
        stored = {"algo": algo, "env": "X-v1", "dataset": None, "runs": [run]}
        (tmp_path / f"{algo}-X-v1" / "result.json").write_text(json.dumps(stored))
    (tmp_path / "bench.yaml").write_text("algos: [bc, iql]\nenvs: [X-v1]\n")
    result = cli("compare", tmp_path)
    assert (result.exit_code, "bc over iql" in result.stdout) == (0, True)
    assert "seeds needed" not in result.stdout
    assert "95%" not in result.stdout


def test_compare_draws_the_curves(cli, bench, tmp_path):
    pytest.importorskip("matplotlib")
    assert cli("compare", bench, "--plot", tmp_path / "curves.png").exit_code == 0
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_options_win_over_the_plan_file(cli, tmp_path):
    (tmp_path / "plan.yaml").write_text("algos: [bc]\nenvs: [Pendulum-v1]\nseeds: 0-4\nset: {gama: 0.9}\n")
    result = cli("bench", tmp_path / "plan.yaml", "--algos", "sac", "--output", tmp_path / "bench")
    assert (result.exit_code, result.stderr.split(":")[1]) == (2, " sac-Pendulum-v1")
    assert "did you mean gamma?" in result.stderr or "did you mean algo_kwargs.gamma?" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "a bench needs algorithms or configs; give --algos or --configs"),
        (
            ["iql/pendulum"],
            "a plan must be a .yaml file, got iql/pendulum; lists have commas between their values, such as",
        ),
        (["--algos", "sac", "--envs", "A-v1", "--seeds", "4-0"], "--seeds must be increasing ranges"),
        (["--algos", "sac", "--envs", "A-v1", "--set", "gamma"], "--set must be KEY=VALUE, got 'gamma'"),
        (["--configs", "iql/pendulun"], "no packaged config 'iql/pendulun'; did you mean iql/pendulum?"),
    ],
)
def test_a_user_error_is_one_sentence(cli, tmp_path, arguments, message):
    result = cli("bench", *arguments, "--output", tmp_path / "bench")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {message}")
    assert not (tmp_path / "bench").exists()


def test_a_cell_runs_alone_and_gives_what_the_whole_bench_gives(cli, tmp_path, command, bench):
    alone = tmp_path / "alone"
    plan = [word if word != str(bench) else str(alone) for word in command]
    ended = cli(*plan, "--cell", "bc-Pendulum-v1")
    assert (ended.exit_code, [each["state"] for each in json.loads(ended.stdout)["cells"]]) == (0, ["done"])
    assert weights(alone) == weights(Path(bench)) != {}
    again = cli("bench", "--output", str(alone), "--cell", "bc-Pendulum-v1", "--json")  # the plan is stored
    assert json.loads(again.stdout) == json.loads(ended.stdout)
    assert weights(alone) == weights(Path(bench))


def weights(bench: Path) -> dict[str, bytes]:
    files = sorted(bench.glob("bc-Pendulum-v1/seed_*/checkpoints/step_*/*.safetensors"))
    return {str(file.relative_to(bench)): file.read_bytes() for file in files}


def test_a_cell_that_the_bench_does_not_have_is_refused(cli, bench):
    ended = cli("bench", "--output", bench, "--cell", "bc-Pendulum-v2")
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr.endswith("has no cell 'bc-Pendulum-v2'; did you mean bc-Pendulum-v1?\n")


def test_a_cell_runs_on_this_machine(cli, bench):
    ended = cli("bench", "--output", bench, "--cell", "bc-Pendulum-v1", "--executor", "slurm")
    assert (ended.exit_code, ended.stderr) == (
        2, "error: --cell runs one cell on this machine, so leave out --executor slurm, or --cell\n"
    )  # fmt: skip


def test_a_cell_needs_a_plan(cli, tmp_path):
    ended = cli("bench", "--output", str(tmp_path), "--cell", "bc-Pendulum-v1")
    assert (ended.exit_code, "is not a bench directory: it has no bench.yaml" in ended.stderr) == (2, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--executor", "kubernetes"), "--executor must be local, ray or slurm, got 'kubernetes'"),
        (("--address", "auto"), "--address needs --executor ray, got --executor local"),
        (("--slurm", "partition=long"), "--slurm needs --executor slurm, got --executor local"),
        (("--executor", "slurm", "--slurm", "long"), "--slurm must be KEY=VALUE, got 'long'"),
        (("--memory", "much"), "--memory must be a size such as 8G or 500M, got 'much'"),
    ],
)
def test_options_of_another_executor_are_refused(cli, tmp_path, options, message):
    ended = cli("bench", "--algos", "ppo", "--envs", "CartPole-v1", "--output", str(tmp_path / "b"), *options)
    assert (ended.exit_code, ended.stderr) == (2, f"error: {message}\n")
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(("text", "expected"), [("8G", 8 * 2**30), ("1.5 gb", 1.5 * 2**30), ("500MiB", 500 * 2**20),
                                                ("2048", 2048)])  # fmt: skip
def test_sizes_are_read_in_binary_units(text, expected):
    assert size("--memory", text) == expected


def test_a_bench_continues_by_its_directory_alone(cli, ended, bench):
    again = cli("bench", "--output", bench, "--json")
    first, second = (json.loads(each.stdout)["cells"][0] for each in (ended, again))
    assert (again.exit_code, second) == (1, first)  # the other cell fails again


def test_a_cell_that_another_process_runs_can_be_asked_for_again(cli, tmp_path, monkeypatch):
    monkeypatch.setattr("rl_training.experiment.bench.cell.LOCK_SECONDS", 0)
    output, name = tmp_path / "bench", "ppo-CartPole-v1"
    (output / name).mkdir(parents=True)
    (output / "bench.yaml").write_text("algos: [ppo]\nenvs: [CartPole-v1]\n")
    with locked_file(output / name / ".lock", "busy"):
        ended = cli("bench", "--output", output, "--cell", name)
    assert (ended.exit_code, "correct the error" in ended.stdout) == (1, False)
    assert "repeat the command once the other process has ended" in ended.stdout
