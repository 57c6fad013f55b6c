"""Environments in worker processes: equal trajectories, and every failure is reported."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from rl_training.envs.group import EnvError
from rl_training.envs.pool import EnvPool, Transition
from rl_training.envs.workers import TooManyRestarts


@pytest.fixture(autouse=True)
def _workers_can_import_this_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2]))


class Failing(CartPoleEnv):
    def step(self, action: Any) -> Any:
        raise ZeroDivisionError("gone")


def rolled(pool: EnvPool, steps: int) -> list[Transition]:
    """Random actions that depend on nothing but the environment's number."""
    pool.reset()
    draws = [np.random.default_rng(env) for env in range(pool.num_envs)]
    return [pool.step(np.array([rng.integers(2) for rng in draws])) for _ in range(steps)]


def test_trajectories_do_not_depend_on_the_number_of_workers():
    with EnvPool("CartPole-v1", 4, seed=2) as alone, EnvPool("CartPole-v1", 4, seed=2, workers=2) as spread:
        expected = rolled(alone, 60)
        assert sum(len(step.finished) for step in expected) > 4
        for one, other in zip(expected, rolled(spread, 60), strict=True):
            for column in range(5):
                np.testing.assert_array_equal(one[column], other[column])
            assert one.finished == other.finished
    for num_envs in (1, 2):
        with EnvPool("CartPole-v1", num_envs, seed=2) as fewer:
            for one, other in zip(expected, rolled(fewer, 60), strict=True):
                for column in range(5):
                    np.testing.assert_array_equal(one[column][:num_envs], other[column])


def test_a_workers_error_is_raised_with_its_traceback():
    with EnvPool(Failing, 2, workers=2) as pool:
        pool.reset()
        with pytest.raises(
            EnvError, match=r"^environment 0 failed in step: ZeroDivisionError: gone \(\S+:\d+\)$"
        ) as raised:
            pool.step(np.array([0, 0]))
    assert "Traceback" in str(raised.value.__cause__)
    assert multiprocessing.active_children() == []


def test_a_function_that_workers_cannot_import_is_refused():
    with pytest.raises(TypeError, match=r"worker processes cannot create lambda in .*test_workers; move it"):
        EnvPool(lambda: Failing(), 2, workers=2)


def kill_the_only_worker() -> None:
    [worker] = multiprocessing.active_children()
    worker.kill()
    worker.join()


def test_the_episodes_of_a_killed_worker_are_truncated_and_its_environments_continue():
    make = partial(EnvPool, "CartPole-v1", 2, seed=4, env_kwargs={"max_episode_steps": 2})
    with make(workers=1) as pool, make() as calm:
        pool.reset(), calm.reset()
        for _ in range(3):  # over the end of episode 0
            last = pool.step(np.array([0, 1])).obs
            calm.step(np.array([0, 1]))
        kill_the_only_worker()
        step = pool.step(np.array([0, 1]))
        assert (step.terminated.tolist(), step.truncated.tolist()) == ([False, False], [True, True])
        assert (step.rewards.tolist(), step.finished) == ([0, 0], [])
        np.testing.assert_array_equal(step.next_obs, last)
        np.testing.assert_array_equal(step.obs, calm.reset())  # episode 2
        np.testing.assert_array_equal(pool.step(np.array([0, 1])).obs, calm.step(np.array([0, 1])).obs)
        assert pool.restarts == 1


def test_every_death_of_a_worker_is_reported_and_one_too_many_is_an_error():
    warnings: list[str] = []
    with EnvPool("CartPole-v1", 2, workers=1, max_restarts=1, warn=warnings.append) as pool:
        pool.reset()
        kill_the_only_worker()
        pool.step(np.array([0, 0]))
        assert warnings == [
            "worker 0 (environments 0 to 1) ended by SIGKILL; its episodes are truncated and it is restarted "
            "(restart 1 of at most 1)"
        ]
        kill_the_only_worker()
        with pytest.raises(TooManyRestarts, match=r"worker 0 .* ended by SIGKILL, and max_env_restarts \(1\) allows"):
            pool.step(np.array([0, 0]))
    assert len(warnings) == 1


def test_episodes_lost_with_a_worker_are_reported_on_restore():
    with EnvPool("CartPole-v1", workers=1) as pool, EnvPool("CartPole-v1") as fresh:
        pool.reset()
        kill_the_only_worker()
        state = pool.snapshot()
        [reason] = fresh.restore(state)
        assert reason.startswith(
            "environment 0 could not be restored exactly: its saved state is of kind 'lost with its"
        )
        assert pool.restore(state) == ["environment 0 could not be restored exactly: its worker process died"]
        np.testing.assert_array_equal(pool.obs, fresh.obs)  # both are in episode 1


def test_workers_ignore_stop_signals():
    with EnvPool("CartPole-v1", workers=1) as pool:
        pool.reset()
        [worker] = multiprocessing.active_children()
        for signum in (signal.SIGINT, signal.SIGTERM):
            os.kill(worker.pid or 0, signum)
        pool.step(np.array([0]))
        assert pool.restarts == 0
    assert multiprocessing.active_children() == []


USES_WORKERS = """
import multiprocessing, sys, time
from rl_training.envs.pool import EnvPool

pool = EnvPool("CartPole-v1", 2, workers=2)
pool.reset()
print(len(multiprocessing.active_children()), "workers, torch imported:", "torch" in sys.modules, flush=True)
time.sleep(float(sys.argv[1]))
"""


@pytest.mark.parametrize("killed", [True, False])
def test_no_worker_outlives_its_run(killed: bool):
    command = [sys.executable, "-c", USES_WORKERS, "60" if killed else "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout
        assert run.stderr
        assert run.stdout.readline() == "2 workers, torch imported: False\n"  # for a fast start
        if killed:
            run.kill()
        assert run.stderr.read() == ""  # closes with the last process that has it open
        assert run.wait(20) == (-signal.SIGKILL if killed else 0)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_step_in_two_parts_equals_a_step(workers: int):
    with EnvPool("CartPole-v1", 2, seed=3, workers=workers) as split, EnvPool("CartPole-v1", 2, seed=3) as whole:
        with pytest.raises(RuntimeError, match="call begin_step"):
            split.end_step()
        split.reset(), whole.reset()
        for _ in range(30):
            split.begin_step(np.array([0, 1]))
            one, other = split.end_step(), whole.step(np.array([0, 1]))
            for column in range(5):
                np.testing.assert_array_equal(one[column], other[column])
            assert one.finished == other.finished


def test_a_pool_is_not_saved_during_a_step():
    with EnvPool("CartPole-v1") as pool:
        pool.reset()
        state = pool.snapshot()
        pool.begin_step(np.array([0]))
        for call in (pool.snapshot, pool.reset, partial(pool.restore, state), partial(pool.begin_step, np.array([0]))):
            with pytest.raises(RuntimeError, match=r"call end_step\(\) before .*: a step of the pool is under way"):
                call()
        pool.end_step()
        pool.snapshot()
