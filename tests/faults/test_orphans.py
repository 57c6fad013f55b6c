"""No process outlives the process that started it for more than five seconds, even if its environment never returns."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.envs.pools.pool import EnvPool
from rl_training.processes import ORPHANED

ID = "environments:Faulty-v0"
STEPS = """
import sys
from rl_training.envs.pools.pool import EnvPool
import numpy as np

if __name__ == "__main__":
    kwargs = {"fault": sys.argv[1], "at": 2}
    pool = EnvPool("environments:Faulty-v0", 2, workers=2, env_kwargs=kwargs)
    pool.reset()
    pool.step(np.array([0, 0]))
    print("started", flush=True)
    pool.step(np.array([0, 0]))
"""


@pytest.mark.parametrize("fault", ["hang", "locked"])
def test_a_hanging_worker_ends_after_its_killed_parent(
    tmp_path: Path, fault: str, started: Any, expect_group_ends: Any
):
    (tmp_path / "steps.py").write_text(STEPS)
    with started(str(tmp_path / "steps.py"), fault) as parent:
        assert parent.stdout
        assert parent.stdout.readline() == "started\n"
        time.sleep(0.3)  # until the workers hang
        parent.kill()
        expect_group_ends(parent.pid)


STARTS = """
import os, subprocess, sys, time
from rl_training.processes import kill_with_starter, starter_variable

if sys.argv[1] == "parent":
    subprocess.run([sys.executable, __file__, "child"], env={**os.environ, **starter_variable()})
kill_with_starter()
print("started", flush=True)
sys.argv[1] == "child" and time.sleep(60)
"""


def test_a_process_is_killed_with_its_starter(tmp_path: Path, started: Any, expect_group_ends: Any):
    (tmp_path / "starts.py").write_text(STARTS)
    with started(str(tmp_path / "starts.py"), "parent") as parent:
        assert parent.stdout
        assert parent.stdout.readline() == "started\n"
        parent.kill()
        expect_group_ends(parent.pid)


@pytest.mark.soak
def test_the_cells_seeds_and_workers_of_a_killed_bench_end(tmp_path: Path, started: Any, expect_group_ends: Any):
    settings = {
        "env_kwargs": {"fault": "locked", "at": 40}, "num_envs": 2, "env_workers": 1, "eval_interval": 0,
        "log_interval": 16, "num_steps": 8, "batch_size": 16, "hidden_sizes": [8], "epochs": 1,
    }  # fmt: skip
    plan = {"algos": ["ppo"], "envs": [ID], "seeds": [0, 1], "steps": 10**6, "set": settings}
    (tmp_path / "plan.yaml").write_text(json.dumps(plan))
    output = tmp_path / "bench"
    with started("-m", "rl_training.cli", "bench", str(tmp_path / "plan.yaml"), "--output", str(output)) as bench:
        while len(list(output.glob("*/seed_*/metrics.jsonl"))) < 2:
            assert bench.poll() is None
            time.sleep(0.05)
        time.sleep(0.5)  # until the workers hang
        bench.kill()
        expect_group_ends(bench.pid)


@pytest.mark.soak
def test_a_worker_outlives_the_thread_that_started_it():
    pools: list[EnvPool] = []
    thread = threading.Thread(target=lambda: pools.append(EnvPool(ID, 1, workers=1)))
    thread.start()
    thread.join()
    with pools[0] as pool:
        pool.reset()
        time.sleep(ORPHANED + 1)  # SIGQUIT, 3, is also the time limit in seconds
        pool.step(np.array([0]))
        assert pool.restarts == 0
