"""Scripts without `if __name__ == "__main__":`, which every new process imports."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys

import pytest

from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.run import run_training
from rl_training.experiment.seeds.processes import SeedError, SeedJob
from rl_training.experiment.seeds.sweep import train_seeds
from rl_training.processes import REPEATED, start_hidden

CONFIG = {"algo": "ppo", "env_id": "CartPole-v1", "total_timesteps": 128}
REASON = (
    "could not start: every new process imports the script that starts it, "
    "so put the script's own code below a line if __name__ == '__main__':"
)
SCRIPT = """
from rl_training.envs.pools.pool import EnvPool
from rl_training.experiment.run import run_training

run_training({"algo": "dqn", "env_id": "CartPole-v1", "total_timesteps": 10, "output_dir": "first"}, fresh=True)
print("trained")
with EnvPool("CartPole-v1", 2, workers=2) as pool:
    pool.reset()
"""


@pytest.mark.timeout(300)  # two processes import torch, which takes long on a busy machine
def test_the_error_of_an_unguarded_script_is_its_last_line_and_nothing_trains_twice(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(f"EnvError: a worker process of the environments {REASON}")
    assert done.stderr.count("Traceback") == 1
    assert done.stdout == "trained\n"


@pytest.fixture
def _importing_the_script(monkeypatch):
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)


@pytest.mark.usefixtures("_importing_the_script")
def test_a_new_process_that_imports_the_script_trains_and_starts_nothing(tmp_path):
    config = parse_config({**CONFIG, "output_dir": str(tmp_path / "run")})
    process = multiprocessing.get_context("spawn").Process(target=print)
    for act in (lambda: run_training(config, fresh=True), lambda: train_seeds([config]), lambda: start_hidden(process)):
        with pytest.raises(SystemExit) as ended:
            act()
        assert ended.value.code == REPEATED
    assert not (tmp_path / "run").exists()
    assert process.pid is None


def test_a_seed_that_could_not_start_stops_the_others_and_names_the_reason(tmp_path):
    job = SeedJob(parse_config({**CONFIG, "output_dir": str(tmp_path)}), (), fresh=False)
    job.exit_code = REPEATED
    assert job.stops_others
    with pytest.raises(SeedError) as raised:
        job.raise_failure()
    assert str(raised.value) == f"seed 0 {REASON}"


def test_a_seed_whose_process_cannot_start_is_not_ended(tmp_path, monkeypatch):
    def full(*_):
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr("rl_training.experiment.seeds.processes.start_hidden", full)
    config = parse_config({**CONFIG, "output_dir": str(tmp_path / "seed_0")})
    with pytest.raises(BlockingIOError):
        train_seeds([config, config.model_copy(update={"seed": 1, "output_dir": str(tmp_path / "seed_1")})])
