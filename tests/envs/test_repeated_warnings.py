"""Warnings of Gymnasium's registry are shown once in a process, and not again in its workers."""

import pickle
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_training.envs.creation import quiet
from rl_training.envs.creation.making import EnvFactory, make_env


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[warnings.WarningMessage]]:
    monkeypatch.setattr(quiet, "_warned_of", set())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


@pytest.mark.parametrize(
    ("env_id", "text"), [("CartPole-v0", "CartPole-v0 is out of date"), ("CartPole", "latest versioned environment")]
)
def test_a_warning_about_an_id_is_shown_once(shown: list[warnings.WarningMessage], env_id: str, text: str):
    for _ in range(3):
        make_env(env_id).close()
    assert [text in str(each.message) for each in shown] == [True]


def test_each_id_has_its_own_warning(shown: list[warnings.WarningMessage]):
    make_env("CartPole-v0").close()
    make_env("CartPole").close()
    assert len(shown) == 2


def test_a_worker_does_not_repeat_the_warnings_of_its_parent_process(shown: list[warnings.WarningMessage]):
    pickle.loads(pickle.dumps(EnvFactory.of("CartPole-v0"))).make(training=True).close()
    assert not shown


PACKAGE = """
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium import register

for number in (0, 1):
    register(f"Packaged-v{number}", entry_point="packaged_envs:CartPoleEnv", max_episode_steps=5)
"""
WORKER = """
import pickle, sys
import gymnasium
factory = pickle.loads(bytes.fromhex(sys.argv[1]))
print(factory.make(training=True).spec.max_episode_steps, gymnasium.spec("Packaged-v1").max_episode_steps)
"""


def test_a_package_that_registers_its_ids_does_not_override_them_in_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import gymnasium

    (tmp_path / "packaged_envs.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path)
    __import__("packaged_envs")
    gymnasium.registry["Packaged-v1"].max_episode_steps = 7  # changed after the import
    factory = pickle.dumps(EnvFactory.of("Packaged-v1")).hex()
    for number in (0, 1):
        del gymnasium.registry[f"Packaged-v{number}"]
    worker = [sys.executable, "-c", WORKER, factory]
    done = subprocess.run(worker, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("7 7\n", "")
