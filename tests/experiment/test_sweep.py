"""Several seeds of one config: a population where the lane supports it, processes elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from rl_training.envs.pools.group import EnvError
from rl_training.experiment.config.messages import ConfigError
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.manager import ExperimentManager
from rl_training.experiment.run import resume_run, run_population, run_training
from rl_training.experiment.seeds import progress as seed_progress
from rl_training.experiment.seeds import sweep
from rl_training.experiment.seeds.processes import Failure, SeedError, SeedJob
from rl_training.experiment.seeds.progress import SeedMessages
from rl_training.experiment.seeds.sweep import as_population, train_in_processes, train_seeds
from rl_training.runtime.callbacks import progress
from rl_training.runtime.callbacks.training import StopAtStep

TINY = {"hidden_sizes": [8, 8], "batch_size": 16}
BC = {"algo": "bc", "env_id": "Pendulum-v1", "dataset": {"kind": "random", "rows": 200}, "total_timesteps": 20,
      "eval_interval": 10, "eval_episodes": 1, "algo_kwargs": TINY}  # fmt: skip
PPO = {"algo": "ppo", "env_id": "CartPole-v1", "total_timesteps": 64, "eval_episodes": 1,
       "algo_kwargs": {**TINY, "num_steps": 32}}  # fmt: skip

starts_processes = pytest.mark.timeout(600)  # each imports torch, which takes long on a busy machine


def configs(values, folder, seeds=(0, 1)):
    return ExperimentManager.setup({**values, "output_dir": str(folder)}).seed_configs(seeds)


@pytest.mark.parametrize(("values", "population"), [(BC, True), (PPO, False)])
def test_on_policy_seeds_and_early_stopping_need_processes(values, population):
    assert as_population(parse_config(values)) is population
    assert not as_population(parse_config({**values, "early_stopping": {"patience": 1}}))


def test_a_seed_added_later_leaves_the_finished_ones_alone(tmp_path):
    first = train_seeds(configs(BC, tmp_path))
    assert [(r.run_dir.name, r.status, r.steps) for r in first] == [
        ("seed_0", "finished", 20),
        ("seed_1", "finished", 20),
    ]
    written = [(r.run_dir / "result.json").stat().st_mtime_ns for r in first]
    all_three = train_seeds(configs(BC, tmp_path, seeds=(0, 1, 2)))
    assert [(r.run_dir / "result.json").stat().st_mtime_ns for r in all_three[:2]] == written
    assert [(r.status, r.trained) for r in all_three] == [("finished", seed == 2) for seed in (0, 1, 2)]


def test_a_seed_of_one_program_that_continues_alone_is_reported_as_approximate(tmp_path):
    warnings: list[str] = []
    run_population(configs(BC, tmp_path), callbacks=[StopAtStep(10)], warn=warnings.append)
    run_population(configs(BC, tmp_path), callbacks=[StopAtStep(14)], warn=warnings.append)
    assert warnings == []
    resume_run(tmp_path / "seed_1", warn=warnings.append)
    began = "the run began as one program of seeds 0, 1, which share random numbers, and continues alone"
    assert warnings == [f"resume is approximate, not exact: {began}"]


def test_runs_that_began_alone_and_continue_as_one_program_are_reported_as_approximate(tmp_path):
    warnings: list[str] = []
    for config in configs(BC, tmp_path):
        run_training(config, callbacks=[StopAtStep(10)], warn=warnings.append)
    assert warnings == []
    run_population(configs(BC, tmp_path), warn=warnings.append)
    assert "the run began alone, and continues as one program of seeds 0, 1, which share" in warnings[0]


def test_seeds_are_not_hidden_in_the_directory_of_a_run(tmp_path):
    ExperimentManager.setup({**BC, "output_dir": str(tmp_path / "run")}).train()
    with pytest.raises(ConfigError, match=r"run holds a run of one seed; choose another --output .* for several seeds"):
        train_seeds(configs(BC, tmp_path / "run"))
    assert not list((tmp_path / "run").glob("seed_*"))


def test_seeds_may_be_trained_beside_a_config_of_the_user(tmp_path):
    (tmp_path / "config.yaml").write_text("algo: bc\n")
    assert [result.status for result in train_seeds(configs(BC, tmp_path))] == ["finished"] * 2


def test_seeds_that_finished_earlier_are_reported(tmp_path, capfd):
    train_seeds(configs(BC, tmp_path))
    again = train_seeds(configs(BC, tmp_path))
    assert [r.trained for r in again] == [False, False]
    sentence = "These runs finished earlier; nothing was trained. Use --fresh (fresh=True in Python) to train again.\n"
    assert capfd.readouterr().err == sentence


@pytest.mark.usefixtures("forked_jobs", "forked_workers")  # the next test starts a new process
def test_seeds_in_processes_with_environment_workers_finish_and_report_progress_as_one(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    results = train_seeds(configs({**PPO, "num_envs": 2, "env_workers": 1}, tmp_path), quiet=False)
    assert [(r.run_dir.name, r.status, r.steps) for r in results] == [
        ("seed_0", "finished", 64),
        ("seed_1", "finished", 64),
    ]
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("step ")]
    assert lines[-1].startswith("step 128 of 128  ")  # 64 of each
    assert [r.trained for r in results] == [True, True]
    assert "  evaluation " in lines[-1]


@starts_processes
def test_a_seed_saves_and_ends_after_the_end_of_its_parent_process(tmp_path):
    (config,) = configs({**PPO, "total_timesteps": 10**9}, tmp_path, seeds=[0])
    seed = SeedJob(config, [], fresh=False)
    seed.start()
    assert seed.process is not None
    assert seed.pipe is not None
    seed.pipe.close()  # as the end of this process would close it
    while seed.process.poll() is None:
        time.sleep(0.01)
    result = json.loads((tmp_path / "seed_0" / "result.json").read_text())
    assert (result["status"], result["stop_reason"]) == ("stopped", "the parent process has ended")
    assert Path(result["checkpoint"]).is_dir()


HIDDEN = """
import signal, sys
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.processes.signals import hidden_from_ctrl_c
from rl_training.experiment.seeds.sweep import train_in_processes

if __name__ == "__main__":
    with hidden_from_ctrl_c():
        train_in_processes([parse_config({**%r, "output_dir": sys.argv[1]})], (), fresh=False, quiet=True)
        print("hidden" if signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()) else "seen")
"""


@pytest.mark.slow
@starts_processes
def test_ctrl_c_stays_hidden_from_a_process_after_its_seeds_start_in_processes(tmp_path):
    script = tmp_path / "hidden.py"
    script.write_text(HIDDEN % PPO)
    done = subprocess.run([sys.executable, script, tmp_path / "run"], capture_output=True, text=True, check=True)
    assert done.stdout == "hidden\n"


FAILING = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

class Failing(CartPoleEnv):
    def step(self, action):
        raise KeyError("pole")

gymnasium.register("Failing-v0", Failing)
"""


@pytest.mark.usefixtures("forked_jobs")
@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"algo": "gail", "dataset": "absent.npz"}, FileNotFoundError, "absent.npz"),
        ({"env_id": "failing:Failing-v0"}, EnvError, "seed 0: environment 0 .* KeyError"),
    ],
)
def test_an_error_in_the_process_of_a_seed_has_the_class_that_it_has_in_a_single_run(
    tmp_path, monkeypatch, change, kind, message
):
    (tmp_path / "failing.py").write_text(FAILING)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(kind, match=message) as raised:
        train_in_processes(configs({**PPO, **change}, tmp_path / "all", seeds=[0]), (), fresh=False, quiet=True)
    assert type(raised.value) is kind


def test_a_user_error_leaves_no_directory_of_a_seed_that_was_stopped_as_it_began(tmp_path, monkeypatch):
    def stop_early(waiting, *arguments, **options):
        for seed, files in enumerate([["metrics.jsonl"], [".lock"], []]):
            (folder := tmp_path / "all" / f"seed_{seed}").mkdir(parents=True)
            for name in files:
                (folder / name).touch()
        raise ValueError("wrong")

    monkeypatch.setattr(sweep, "train_in_processes", stop_early)
    with pytest.raises(ValueError, match="wrong"):
        train_seeds(configs(PPO, tmp_path / "all", seeds=(0, 1, 2)))
    assert [path.name for path in (tmp_path / "all").iterdir()] == ["seed_0"]


class Foreign(RuntimeError):
    pass


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (TypeError("env_kwargs: no"), TypeError, "env_kwargs: no"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no start"), ValueError, "'utf-8' codec can't decode byte 0xff"),
        (json.JSONDecodeError("no value", "", 0), ValueError, "no value: line 1"),
        (PermissionError(13, "no", "runs"), PermissionError, "runs: no; change its permissions, or give another path"),
        (Foreign("lost"), SeedError, "Foreign: lost (--debug shows the traceback)"),
        (KeyError("pole"), SeedError, "KeyError: 'pole' (--debug shows the traceback)"),
        (BrokenPipeError(32, "gone"), SeedError, "BrokenPipeError: [Errno 32] gone (--debug shows the traceback)"),
    ],
)
def test_a_failure_has_the_nearest_class_that_every_process_can_import(error, kind, message):
    failure = Failure.of(error)
    assert failure.kind is kind
    assert failure.message.startswith(message)


def test_a_warning_names_a_seed_only_if_no_other_seed_has_it(capsys, monkeypatch):
    messages = SeedMessages()
    messages.add(2, "of all")
    messages.add(0, "of one")
    messages.show(2)
    messages.add(0, "of all")
    messages.show(2)
    messages.add(2, "of all")
    messages.show(2)
    assert capsys.readouterr().err == "of all\n"
    monkeypatch.setattr(seed_progress, "HOLD_SECONDS", -1.0)
    messages.show(2)
    messages.add(2, "late")
    messages.show(2, closing=True)
    messages.show(2, closing=True)
    assert capsys.readouterr().err == "seed 0: of one\nseed 2: late\n"


@pytest.mark.parametrize("seeds", [[], [0, 0], "01", [0.5], [0, -1]])
def test_seeds_are_different_integers(seeds):
    with pytest.raises(ValueError, match="seeds must be integers from 0, each once, such as range"):
        ExperimentManager.setup(BC).sweep(seeds)


def test_seeds_may_be_integers_of_numpy():
    found = [config.seed for config in ExperimentManager.setup(BC).seed_configs(np.arange(3))]
    assert found == [0, 1, 2]
    assert {type(seed) for seed in found} == {int}


def test_a_manager_of_a_mapping_is_set_up():
    with pytest.raises(TypeError, match=r"config must be a TrainConfig, got dict; ExperimentManager\.setup"):
        ExperimentManager(BC)  # type: ignore[arg-type]
