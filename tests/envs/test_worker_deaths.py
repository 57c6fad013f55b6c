"""Worker processes that are killed or get a signal; none of them outlives its run."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from rl_training.envs.pools import workers
from rl_training.envs.pools.pool import EnvPool
from rl_training.envs.pools.workers import TooManyRestarts


def kill_the_only_worker() -> None:
    [worker] = multiprocessing.active_children()
    worker.kill()
    worker.join()


@pytest.mark.parametrize("cores", [1, 64])
@pytest.mark.usefixtures("forked_workers")
def test_the_episodes_of_a_killed_worker_are_truncated_and_its_environments_continue(cores, monkeypatch):
    monkeypatch.setattr(workers, "usable_cores", lambda: cores)
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


@pytest.mark.usefixtures("forked_workers")
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


@pytest.mark.usefixtures("forked_workers")
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
from rl_training.envs.pools.pool import EnvPool

pool = EnvPool("CartPole-v1", 2, workers=2)
pool.reset()
print(len(multiprocessing.active_children()), "workers, torch imported:", "torch" in sys.modules, flush=True)
time.sleep(float(sys.argv[1]))
"""


def shared_memory_files() -> set[Path]:
    return set(Path("/dev/shm").glob("*"))


@pytest.mark.parametrize("killed", [True, False])
def test_no_worker_outlives_its_run(killed: bool):
    command, before = [sys.executable, "-c", USES_WORKERS, "60" if killed else "0"], shared_memory_files()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout
        assert run.stderr
        assert run.stdout.readline() == "2 workers, torch imported: False\n"  # for a fast start
        if killed:
            run.kill()
        assert run.stderr.read() == ""  # closes with the last process that has it open
        assert run.wait(20) == (-signal.SIGKILL if killed else 0)
    assert shared_memory_files() <= before


@pytest.mark.usefixtures("forked_workers")
def test_a_worker_that_dies_while_one_member_is_restored_is_replaced_at_the_next_step():
    with EnvPool("CartPole-v1", 2, seed=(2, 5), workers=1) as pool:
        pool.reset()
        saved, before = pool.snapshot(1), pool.obs.copy()
        kill_the_only_worker()
        assert pool.restore(saved, 1) == ["environment 0 could not be restored exactly: its worker process died"]
        step = pool.step(np.array([0, 0]))
        np.testing.assert_array_equal(step.next_obs, before)
        assert (step.truncated.tolist(), step.finished, pool.restarts) == ([True, True], [], 1)
        with EnvPool("CartPole-v1", 1, seed=5) as own:
            own.reset()
            np.testing.assert_array_equal(step.obs[1:], own.reset())  # episode 1
