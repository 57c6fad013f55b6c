"""Seeds behind one option: a population where the lane knows members, processes elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rl_training.envs.group import EnvError
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.manager import ExperimentManager
from rl_training.experiment.seeds.processes import Failure, SeedError, SeedProcess
from rl_training.experiment.seeds.sweep import as_population, train_seeds
from rl_training.runtime.callbacks import progress

TINY = {"hidden_sizes": [8, 8], "batch_size": 16}
BC = {"algo": "bc", "env_id": "Pendulum-v1", "dataset": {"kind": "random", "rows": 200}, "total_timesteps": 20,
      "eval_interval": 10, "eval_episodes": 1, "algo_kwargs": TINY}  # fmt: skip
PPO = {"algo": "ppo", "env_id": "CartPole-v1", "total_timesteps": 64, "eval_episodes": 1,
       "algo_kwargs": {**TINY, "num_steps": 32}}  # fmt: skip


def configs(values, folder, seeds=(0, 1)):
    return ExperimentManager.setup({**values, "output_dir": str(folder)}).seed_configs(seeds)


@pytest.mark.parametrize(("values", "together"), [(BC, True), (PPO, False)])
def test_on_policy_seeds_and_early_stopping_ask_for_processes(values, together):
    assert as_population(parse_config(values)) is together
    assert not as_population(parse_config({**values, "early_stopping": {"patience": 1}}))


@pytest.mark.parametrize(
    "values", [BC, {**PPO, "num_envs": 2, "env_workers": 1}], ids=["population", "processes that start processes"]
)
def test_each_seed_has_a_finished_run_of_its_own(values, tmp_path):
    results = train_seeds(configs(values, tmp_path))
    assert [(r.run_dir.name, r.status, r.steps >= 20) for r in results] == [
        ("seed_0", "finished", True),
        ("seed_1", "finished", True),
    ]


def test_a_seed_added_later_leaves_the_finished_ones_alone(tmp_path):
    first = train_seeds(configs(BC, tmp_path))
    written = [(r.run_dir / "result.json").stat().st_mtime_ns for r in first]
    all_three = train_seeds(configs(BC, tmp_path, seeds=(0, 1, 2)))
    assert [(r.run_dir / "result.json").stat().st_mtime_ns for r in all_three[:2]] == written
    assert [r.status for r in all_three] == ["finished"] * 3


def test_seeds_in_processes_show_what_they_do_together(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    train_seeds(configs(PPO, tmp_path), quiet=False)
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("step ")]
    assert lines[-1].startswith("step 128 of 128  ")  # 64 of each
    assert "  evaluation " in lines[-1]


def test_a_seed_that_nobody_waits_for_any_more_saves_and_ends(tmp_path):
    config, _ = configs({**PPO, "total_timesteps": 10**9}, tmp_path)
    seed = SeedProcess(config, [], fresh=False)
    seed.pipe.close()  # as the end of this process would close it
    seed.process.join()
    told = json.loads((tmp_path / "seed_0" / "result.json").read_text())
    assert (told["status"], told["stop_reason"]) == ("stopped", "the process that started it is gone")
    assert Path(told["checkpoint"]).is_dir()


HIDDEN = """
import signal, sys
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.signals import hidden_from_ctrl_c
from rl_training.experiment.seeds.sweep import train_seeds

if __name__ == "__main__":
    with hidden_from_ctrl_c():
        train_seeds([parse_config({**%r, "seed": seed, "output_dir": f"{sys.argv[1]}/{seed}"}) for seed in (0, 1)])
        print("hidden" if signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()) else "seen")
"""


def test_who_is_hidden_from_ctrl_c_stays_so_when_its_seeds_start_as_processes(tmp_path):
    script = tmp_path / "hidden.py"
    script.write_text(HIDDEN % PPO)
    done = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "hidden\n"


FAILING = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

class Failing(CartPoleEnv):
    def step(self, action):
        raise KeyError("pole")

gymnasium.register("Failing-v0", Failing)
"""


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"env_kwargs": {"foo": 1}}, TypeError, "env_kwargs: CartPole-v1 has no option 'foo'"),
        ({"algo": "gail", "dataset": "absent.npz"}, FileNotFoundError, "there is no dataset file .*absent.npz"),
        ({"env_id": "failing:Failing-v0"}, EnvError, "seed 0: environment 0 .* KeyError"),
    ],
)
def test_an_error_in_the_process_of_a_seed_has_the_kind_that_it_has_in_a_single_run(
    tmp_path, monkeypatch, change, kind, message
):
    (tmp_path / "failing.py").write_text(FAILING)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(kind, match=message) as raised:
        train_seeds(configs({**PPO, **change}, tmp_path / "all"))
    assert type(raised.value) is kind


class Foreign(RuntimeError):
    pass


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no start"), ValueError, "'utf-8' codec can't decode byte 0xff"),
        (json.JSONDecodeError("no value", "", 0), ValueError, "no value: line 1"),
        (PermissionError(13, "no", "runs"), PermissionError, "[Errno 13] no: 'runs'"),
        (Foreign("lost"), SeedError, "Foreign: lost (--debug shows where)"),
        (KeyError("pole"), SeedError, "KeyError: 'pole' (--debug shows where)"),
        (BrokenPipeError(32, "gone"), SeedError, "BrokenPipeError: [Errno 32] gone (--debug shows where)"),
    ],
)
def test_a_failure_is_told_as_the_nearest_kind_that_every_process_knows(error, kind, message):
    told = Failure.of(error)
    assert told.kind is kind
    assert told.message.startswith(message)
