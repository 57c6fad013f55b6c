"""Every key of a stranger's config that can name code, through every way to open a run: nothing is imported.

All cases run in one process that watches itself with an audit hook: `python test_untrusted_names.py FOLDER`.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import rl_training
from rl_training.envs.creation.given import given_env
from rl_training.experiment.collection import collect_dataset

sys.path.insert(0, str(Path(__file__).parent))  # also in the process that opens the files
from strangers import Case, Found, command_cases, evil, invoke, main, opened  # type: ignore[import-not-found]

sys.path.pop(0)

CONTROL = "trusted now"
PLAIN = {"env_id": "CartPole-v1"}
# The keys of an environment matter where one is created; those of a learner matter everywhere.
ENVIRONMENT: dict[str, dict[str, Any]] = {
    "registered id": {"env_id": "evil:Evil-v0"},
    "class": {"env_id": "evil:Evil"},
    "class in a package": {"env_id": "pkg.sub:Evil"},
    "method": {"env_id": "evil:Evil.made"},
    "Python's own": {"env_id": "os:system", "env_kwargs": {"command": "touch executed"}},
    "wrapper": {**PLAIN, "env_wrappers": ["evil:Wrapper"]},
    "second wrapper": {**PLAIN, "env_wrappers": ["gymnasium.wrappers:FlattenObservation", "evil:Wrapper"]},
    "wrapper with options": {**PLAIN, "env_wrappers": [{"wrapper": "evil:Wrapper", "limit": 3}]},
    "wrapper of Python": {**PLAIN, "env_wrappers": [{"wrapper": "os:system"}]},
    "option of a wrapper": {**PLAIN, "env_wrappers": [{"wrapper": "evil:Wrapper", "inner": ["evil:Evil-v0"]}]},
    "option of the environment": {**PLAIN, "env_kwargs": {"inner": {"a": ["evil:Evil-v0"]}}},
}
LEARNER: dict[str, dict[str, Any]] = {
    "algorithm": {**PLAIN, "algo": "evil:Algorithm", "algo_kwargs": {}},
    "algorithm in a package": {**PLAIN, "algo": "pkg.sub:Algorithm"},
    "network": {**PLAIN, "algo_kwargs": {"network": "evil:Net"}},
    "kind of network": {**PLAIN, "algo_kwargs": {"network": {"kind": "evil:Net", "width": 3}}},
}
CALLBACKS: dict[str, dict[str, Any]] = {
    "callback": {**PLAIN, "callbacks": ["evil:Callback"]},
    "callback with options": {**PLAIN, "callbacks": [{"callback": "pkg.sub:Callback", "every": 3}]},
}
KEYS = {**ENVIRONMENT, **LEARNER, **CALLBACKS}
TRAINING = ("resume", "verify", "resume_training", "load, learn", "train with its config file")
ACTING = ("evaluate", "data collect", "evaluate_checkpoint", "load, evaluate", "collect_dataset")


def load(changes: dict[str, Any], folder: Path) -> rl_training.ManagedAlgorithm:
    return rl_training.ManagedAlgorithm.load(evil(folder, **changes))


def train_its_config(changes: dict[str, Any], folder: Path) -> None:
    invoke("train", evil(folder, **changes) / "config.yaml", "--output", folder / "own")


def calls(changes: dict[str, Any]) -> dict[str, Case]:
    """Every way to open a run with these changes of its config."""
    return {
        **dict(command_cases(**changes)),
        "train with its config file": partial(train_its_config, changes),
        "evaluate_checkpoint": lambda folder: rl_training.evaluate_checkpoint(evil(folder, **changes), num_episodes=1),
        "resume_training": lambda folder: rl_training.resume_training(evil(folder, **changes)),
        "load, evaluate": lambda folder: load(changes, folder).evaluate(num_episodes=1),
        "load, learn": lambda folder: load(changes, folder).learn(total_timesteps=8),
        "load, predict": lambda folder: load(changes, folder).predict([0.0] * 4),
        "collect_dataset": lambda folder: collect_dataset(str(evil(folder, **changes)), rows=8),
    }


def other_environment(folder: Path) -> Any:
    """The wrappers of a stranger's run, around an environment that the user gives."""
    return rl_training.evaluate_checkpoint(evil(folder, **ENVIRONMENT["wrapper"]), env="CartPole-v1")


def collected_elsewhere(folder: Path) -> Any:
    return collect_dataset(str(evil(folder, **ENVIRONMENT["wrapper"])), env_id="Acrobot-v1", rows=8)


def own_environment(folder: Path) -> Any:
    """A stranger's run of an environment that is not created, because the user gives another one."""
    path = evil(folder, **ENVIRONMENT["class"])
    return rl_training.evaluate_checkpoint(path, env=lambda: gym.make("CartPole-v1"), num_episodes=1)


def trusted_now(folder: Path) -> Any:
    return rl_training.evaluate_checkpoint(evil(folder, **ENVIRONMENT["wrapper"]), num_episodes=1, trust="evil")


def described(folder: Path) -> Any:
    """Wrappers are recorded by their name, without an import."""
    return given_env("CartPole-v1", ["evil:Wrapper"]).values


OTHERS: dict[str, Case] = {
    "wrappers around another environment": other_environment,
    "wrappers in a collection elsewhere": collected_elsewhere,
}
ALLOWED: dict[str, Case] = {"another environment": own_environment, "names of wrappers": described}
CASES = {f"{key}: {name}": case for key, changes in KEYS.items() for name, case in calls(changes).items()}
REFUSED = [f"{key}: {call}" for key in ENVIRONMENT for call in (*TRAINING, *ACTING)]
REFUSED += [f"{key}: {call}" for key in LEARNER for call in (*TRAINING, *ACTING, "predict", "load, predict")]
REFUSED += [f"{key}: {call}" for key in CALLBACKS for call in TRAINING]
PREDICTED = [f"{key}: {call}" for key in (*ENVIRONMENT, *CALLBACKS) for call in ("predict", "load, predict")]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    return opened(__file__, tmp_path_factory.mktemp("stranger"))


@pytest.mark.parametrize("case", [*CASES, *OTHERS, *ALLOWED])
def test_a_name_in_a_strangers_config_imports_nothing(found, case):
    assert found[case][1] == []
    assert not found[case][0].startswith("failed ")


@pytest.mark.parametrize("case", [*REFUSED, *OTHERS])
def test_a_name_that_would_be_imported_is_refused_in_one_sentence(found, case):
    outcome = found[case][0]
    assert outcome.startswith("refused ")
    assert "--trust " in outcome
    assert "\n" not in outcome.strip()


@pytest.mark.parametrize("case", [*PREDICTED, *ALLOWED])
def test_what_needs_no_import_works(found, case):
    assert found[case][0].startswith("returned ")


def test_the_hook_sees_a_wrapper_that_is_trusted_now(found):
    outcome, events = found[CONTROL]
    assert outcome.startswith("returned ")
    assert any(event.startswith("exec ") and event.endswith("evil.py") for event in events)


if __name__ == "__main__":
    main({**CASES, **OTHERS, **ALLOWED, CONTROL: trusted_now})
