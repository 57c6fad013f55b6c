"""The walk of docs/extend.md, as a user would take it: files in an empty folder, commands in processes."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import types
from pathlib import Path

import pytest

from rl_training.testing import check_algorithm

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "extend.md").read_text()
BIN = Path(sys.executable).parent
FILES = dict(re.findall(r"<!-- file: (\w+\.py) -->\n```python\n(.*?)```", PAGE, re.DOTALL))
COMMANDS = [line for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


def test_the_algorithm_has_at_most_forty_lines_and_the_number_that_the_page_says():
    lines = len(FILES["my_algos.py"].splitlines())
    assert lines <= 40
    assert f"in {lines} lines" in PAGE


def test_the_page_tests_trains_resumes_exports_and_benches_it():
    assert [command.split()[:2] for command in COMMANDS] == [
        ["pytest", "test_my_algos.py"],
        *(
            ["rl-training", name]
            for name in ["explain", "train", "evaluate", "resume", "verify", "export", "bench", "compare"]
        ),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "env_id"),
    [
        ("DDPGAlgorithm", "Pendulum-v1"),
        ("A2CAlgorithm", "Pendulum-v1"),
        ("DelayedAlgorithm", "Pendulum-v1"),
        ("QLearningAlgorithm", "rl_training.envs:CombinationLock-v0"),
    ],
)
def test_the_algorithms_of_the_page_on_the_learner_pass_the_checks(name, env_id, monkeypatch):
    page = (ROOT / "docs" / "guide" / "new_algorithm.md").read_text()
    blocks = [
        block
        for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        if "(Learner):" in block or "Delayed" in block
    ]
    own = types.ModuleType("own_learners")
    monkeypatch.setitem(sys.modules, "own_learners", own)
    for block in blocks:
        exec(re.split(r"^\w+ = rl_training", block, flags=re.MULTILINE)[0], vars(own))  # the classes, without training
    check_algorithm(getattr(own, name), env_id)


@pytest.mark.slow  # a minute of work, in processes; test_blocks.py runs the same commands with fewer steps
@pytest.mark.timeout(1800)
def test_the_walk_runs_as_written(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "config"), "OMP_NUM_THREADS": "1"}
    for command in COMMANDS:
        program, *arguments = shlex.split(command)
        words = [sys.executable, "-m", "pytest", "-q"] if program == "pytest" else [str(BIN / program)]
        ended = subprocess.run(
            [*words, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
        )
        assert ended.returncode == 0, f"{command}\n{ended.stdout}{ended.stderr}"
    assert sorted(path.name for path in tmp_path.glob("runs/soft_q_bench/*/seed_*")) == ["seed_0"] * 2 + ["seed_1"] * 2
    assert "my_algos:SoftQ over dqn" in ended.stdout or "dqn over my_algos:SoftQ" in ended.stdout
