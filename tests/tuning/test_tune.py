"""The command `tune`: trials, the best config on other seeds, a second start, and errors."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from rl_training.cli.tune import repeated_command
from rl_training.experiment.config.train_config import load_config, parse_config
from rl_training.experiment.executors.base import ExecutorOptions
from rl_training.experiment.run_directory import locked_file
from rl_training.experiment.tuning.plan import final_seeds

pytest.importorskip("optuna")

OFFLINE = ["tune", "bc", "CartPole-v1", "--dataset", "{kind: random, rows: 200}", "--steps", "4",
           "--set", "hidden_sizes=[8]", "--set", "eval_interval=0", "--set", "eval_episodes=1", "--set", "log=none",
           "--search", "learning_rate=1e-4,1e-3,1e-2", "--trials", "2", "--seeds", "0-1", "--final-seeds", "100-102",
           "--episodes", "1"]  # fmt: skip


def test_a_study_trains_every_trial_and_scores_the_best_on_other_seeds(finished):
    study, found = finished
    assert (found["tune"], found["status"], found["best_config"]) == (str(study), "done", str(study / "best.yaml"))
    assert [trial["number"] for trial in found["trials"]] == [0, 1, 2, 3]
    assert {trial["state"] for trial in found["trials"]} == {"done"}
    last = json.loads((study / "trials" / "0002" / "seed_0" / "result.json").read_text())
    assert found["trials"][2]["value"] == last["evaluation"]["return_mean"]
    best = max(found["trials"], key=lambda trial: trial["value"])
    assert (found["best"]["trial"], found["best"]["value"]) == (best["number"], best["value"])
    assert found["best"]["params"] == best["params"]
    assert (found["best"]["seeds"], found["baseline"]["seeds"]) == ([100], [100])
    assert sorted(path.name for path in (study / "trials").iterdir()) == ["0000", "0001", "0002", "0003"]


def test_the_best_config_trains_as_it_is(finished):
    study, found = finished
    file = study / "best.yaml"
    comments = [line for line in file.read_text().splitlines() if line.startswith("#")]
    best = found["best"]
    chosen = f"mean return {best['value']:,.1f} on seed 0, by which it was chosen."
    assert comments[0] == f"# Trial {best['trial']} of 4: {chosen}"
    assert comments[1] == f"# Score on seed 100, not tuned on: {best['score']:,.1f} (mean return; 2 episodes per seed)."
    assert comments[-1].startswith("# rl-training tune ppo CartPole-v1 --search learning_rate=1e-4:1e-1:log --search")
    config = parse_config(load_config(str(file)))
    assert config.algo_kwargs["learning_rate"] == best["params"]["learning_rate"]
    assert config.algo_kwargs["hidden_sizes"] == best["params"]["hidden_sizes"]
    assert (config.output_dir, config.total_timesteps, config.eval_interval) == (None, 256, 64)
    scored = load_config(str(next((study / "final").glob("trial_*/seed_100/config.yaml"))))
    assert {**scored, "seed": 0, "output_dir": None} == config.model_dump(mode="json")


def test_the_same_command_trains_nothing_again_and_more_trials_extend_the_study(finished, continued):
    first = finished[1]
    again = continued.report()
    assert [again[key] for key in ("status", "importance")] == [first[key] for key in ("status", "importance")]
    assert (again["best"], again["baseline"]) == (first["best"], first["baseline"])
    assert continued.executor.commands == []
    more = continued.report("--trials", 6)
    assert [trial["params"] for trial in more["trials"][:4]] == [trial["params"] for trial in first["trials"]]
    names = [command.name for command in continued.executor.commands]
    assert [name for name in names if name.startswith("trial ")] == ["trial 4", "trial 5"]
    assert "base" not in names  # the score of the untuned config is the same


def test_other_final_seeds_are_trained_in_addition(continued):
    found = continued.report("--final-seeds", "101", "--no-baseline")
    assert (found["best"]["seeds"], found["best"]["interval"], found["baseline"]) == ([101], None, None)
    trained, scored = continued.executor.commands
    assert (trained.arguments[0], scored.arguments[0]) == ("rl_training.cli", "rl_training.experiment.bench.scoring")


def test_fewer_trials_than_the_study_has_are_refused(continued):
    result = continued.tune("--trials", 3)
    assert (result.exit_code, result.stderr) == (
        2,
        f"error: {continued.folder} has 4 trials already; --trials must be at least that\n",
    )


@pytest.mark.parametrize(
    ("options", "difference"),
    [
        (["--seeds", "0,1"], "seeds: [0] there, [0, 1] here"),
        (["--set", "gamma=0.9"], "algo_kwargs.gamma: 0.99 there, 0.9 here"),
        (["--steps", "128"], "total_timesteps: 256 there, 128 here"),
        (["--search", "gae_lambda=0.8:1"], "search gae_lambda: None there, '0.8:1' here"),
        (["--sampler", "random"], "sampler: 'tpe' there, 'random' here"),
    ],
)
def test_another_study_in_the_directory_is_refused_with_the_differences(finished, studies, options, difference):
    studies.folder = finished[0]
    result = studies.tune(*options)
    assert (result.exit_code, result.stderr) == (
        2,
        f"error: {studies.folder} holds another study ({difference}). "
        "Continue it with its own options, or choose another --output.\n",
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--search", "gama=0.9:1"], "--search gama: unknown key; did you mean gamma?"),
        (["--search", "epochs=1:3"], "--search epochs and --set epochs set the same key; give one of them"),
        (["--final-seeds", "0-3"], "--final-seeds must be other seeds than --seeds, because the trials were chosen by "
         "those; 0 is in both"),
        (["--final-seeds", "a"], "--final-seeds must be like 0-4 or 0,2,5, got 'a'"),
        (["--sampler", "grid"], "sampler: must be 'tpe' or 'random', got 'grid'"),
        (["--executor", "pbs"], "--executor must be local, ray or slurm, got 'pbs'"),
        (["--executor", "ray", "--devices", "0"], "--devices needs --executor local, got --executor ray"),
    ],
)  # fmt: skip
def test_mistakes_are_reported_before_anything_is_written(tmp_path, studies, options, message):
    result = studies.tune(*options)
    assert (result.exit_code, result.stderr.splitlines()) == (2, [f"error: {message}"])
    assert not studies.folder.exists()


def test_two_commands_do_not_run_the_same_study(finished, studies, monkeypatch):
    monkeypatch.setattr("rl_training.experiment.tuning.tuning.LOCK_SECONDS", 0)
    studies.folder = finished[0]
    with locked_file(studies.folder / ".lock", "busy"):
        result = studies.tune()
    assert (result.exit_code, result.stderr) == (
        2,
        f"error: another study is running in {studies.folder}; wait for it or choose another --output\n",
    )


def test_the_command_is_a_comment_of_one_line():
    written = repeated_command(["ppo"], {"--set": ["env_kwargs={a: 1,\n b: 2}"], "--no-prune": True, "--steps": None})
    assert written == "rl-training tune ppo --set 'env_kwargs={a: 1,  b: 2}' --no-prune"


def test_a_folder_with_other_files_is_refused(studies):
    studies.folder.mkdir()
    (studies.folder / "thesis.tex").touch()
    result = studies.tune()
    assert result.exit_code == 2
    assert "is not the directory of a study and is not empty (thesis.tex, …); choose another --output" in result.stderr


def test_tuning_without_an_environment_is_refused(studies):
    base = [word for word in OFFLINE if word != "CartPole-v1"]
    base[base.index("{kind: random, rows: 200}")] = "data.npz"
    result = studies.tune(base=base)
    assert (result.exit_code, result.stderr) == (
        2,
        "error: tuning maximises the return of evaluations, which need an environment: name it after the algorithm, "
        "or set env_id\n",
    )


def test_evaluations_are_switched_on_and_seeds_of_a_population_are_averaged(studies):
    result = studies.tune("--json", base=OFFLINE)
    assert result.exit_code == 0, result.stderr
    note = "eval_interval is 0, but tuning needs evaluations; runs are evaluated every 1 step"
    assert result.stderr.splitlines()[0] == note
    found = json.loads(result.stdout)
    files = sorted((studies.folder / "trials" / "0001").glob("seed_*/result.json"))
    runs = [json.loads(file.read_text()) for file in files]
    assert len(runs) == 2
    assert found["trials"][1]["value"] == sum(run["evaluation"]["return_mean"] for run in runs) / 2
    assert found["best"]["seeds"] == [100, 101, 102]
    low, high = found["best"]["interval"]
    assert low <= found["best"]["score"] <= high
    assert 0 <= found["best"]["probability_of_improvement"] <= 1


def test_more_trials_than_different_configs_are_refused(studies):
    result = studies.tune("--trials", 4, base=OFFLINE)
    assert result.stderr.splitlines()[-1] == "error: --search allows 3 different configs, so --trials must be at most 3"


def test_the_final_seeds_are_never_the_tuned_ones():
    assert final_seeds([0, 1, 2], None) == [100, 101, 102, 103, 104]
    assert final_seeds(list(range(8)), None) == list(range(100, 108))
    assert final_seeds([99, 103], None) == [104, 105, 106, 107, 108]


def test_optuna_is_imported_by_the_command_only():
    code = """
import sys
from rl_training.cli import app
from typer.testing import CliRunner
assert CliRunner().invoke(app, ["tune", "--help"]).exit_code == 0
import rl_training, rl_training.reporting.tuning_plots
print([name for name in ("optuna", "torch", "sqlalchemy") if name in sys.modules])
"""
    assert subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60) == "[]\n"


def test_without_optuna_the_extra_is_named(studies, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    result = studies.tune()
    assert (result.exit_code, result.stderr) == (2, 'error: tune needs optuna: pip install "rl-training[tune]"\n')


def test_an_executor_that_cannot_be_opened_leaves_no_study(studies, monkeypatch):
    def refuse(options: ExecutorOptions) -> None:
        raise ValueError("no cluster here")

    with monkeypatch.context() as patch:
        patch.setattr("rl_training.experiment.executors.opening.open_executor", refuse)
        studies.folder = studies.folder / "below"
        result = studies.tune()
        assert (result.exit_code, result.stderr) == (2, "error: no cluster here\n")
        assert not studies.folder.parent.exists()
        studies.folder.mkdir(parents=True)
        assert studies.tune().exit_code == 2
    assert [path.name for path in studies.folder.iterdir()] == [".lock"]


def test_a_warning_of_the_trials_is_printed_once(studies):
    short = ["tune", "dqn", "CartPole-v1", "--steps", "8", "--set", "hidden_sizes=[8]", "--set", "log=none",
             "--set", "eval_interval=4", "--set", "eval_episodes=1", "--search", "gamma=0.9,0.99", "--trials", "2",
             "--seeds", "0", "--final-seeds", "100", "--episodes", "1"]  # fmt: skip
    result = studies.tune(base=short)
    assert result.exit_code == 0, result.stderr
    (line,) = [line for line in result.stderr.splitlines() if "nothing will be learnt in 8 steps" in line]
    assert line.startswith("trial 0: ")
