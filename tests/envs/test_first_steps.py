"""The checks that training makes on the first steps of an environment."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rl_training.envs.checks.first_steps import CHECKED_STEPS, WARNED
from rl_training.envs.pools.group import EnvError
from rl_training.envs.pools.pool import EnvPool

FOLDER = Path(__file__).parent
MODULES = ("broken_envs", "broken_steps")
PLACES = {
    match[1]: f"{file.name}:{number}"
    for file in (FOLDER / f"{module}.py" for module in MODULES)
    for number, line in enumerate(file.read_text().splitlines(), 1)
    if (match := re.search(r"# <- (\w+): ", line))
}


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setenv("PYTHONPATH", str(FOLDER), prepend=":")
    WARNED.clear()
    return SimpleNamespace(**{name: each for module in MODULES for name, each in vars(import_module(module)).items()})


def step(env: Any, steps: int, *, warnings: list[str] | None = None, **options: Any) -> None:
    with EnvPool(env, 2, warn=print if warnings is None else warnings.append, **options) as pool:
        pool.reset()
        for _ in range(steps):
            pool.step(np.array([0, 1]))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("OldReset", "`reset` does not take seed and options: write def reset(self, *, seed=None, options=None)"),
        ("ResetObsOnly", "`reset` returned only the observation; Gymnasium expects 2 values: return obs, {}"),
        ("OldStep", "`step` returned 4 values; Gymnasium expects 5: obs, reward, terminated, truncated, info"),
        ("StepNone", "`step` returned nothing; Gymnasium expects 5 values: obs, reward, terminated, truncated, info"),
        ("OtherShape", "`step` returned an observation of shape (3,), but its space has (2,)"),
        ("NoneReward", "`step` returned None as reward, not a number: return a float"),
        ("ArrayReward", "`step` returned an array of shape (1,) as reward, not a number: return reward.item()"),
        ("TextReward", "`step` returned a str as reward, not a number: return a float"),
        ("SwappedFlag", "`step` returned a float as terminated; Gymnasium expects True or False: use bool(terminated)"),
        ("SwappedInt", "`step` returned an int as terminated; Gymnasium expects True or False: use bool(terminated)"),
        ("NoneFlag", "`step` returned None as truncated; Gymnasium expects True or False: use bool(truncated)"),
    ],
)
@pytest.mark.usefixtures("forked_workers")
def test_a_value_that_training_cannot_use_ends_it_with_file_and_line(
    broken: Any, name: str, sentence: str, workers: int
):
    with pytest.raises(EnvError) as raised:
        step(getattr(broken, name), 2, workers=workers)
    assert str(raised.value).startswith(f"environment 0: {sentence} (")
    assert str(raised.value).endswith(f"{PLACES[name]})")


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("position", "value", "sentence"),
    [
        (1, "1.0", "`step` returned a str as reward, not a number: return a float"),
        (1, None, "`step` returned None as reward, not a number: return a float"),
        (1, np.ones(1), "`step` returned an array of shape (1,) as reward, not a number: return reward.item()"),
        (2, None, "`step` returned None as terminated; Gymnasium expects True or False: use bool(terminated)"),
        (3, "", "`step` returned a str as truncated; Gymnasium expects True or False"),
    ],
)
@pytest.mark.usefixtures("forked_workers")
def test_a_wrong_reward_or_flag_ends_training_in_later_steps_too(
    broken: Any, position: int, value: Any, sentence: str, workers: int
):
    with pytest.raises(EnvError) as raised:
        step(broken.Late, 12, workers=workers, env_kwargs={"position": position, "value": value})
    assert str(raised.value).startswith(f"environment 0: {sentence} (")
    line = inspect.getsourcelines(broken.Late.step)[1]
    assert str(raised.value).endswith(f"broken_steps.py:{line})")


def test_an_observation_of_text_ends_training_in_later_steps_too(broken: Any):
    options = {"position": 0, "value": np.array(["1.0", "0.5"])}
    with pytest.raises(EnvError, match=r"failed in step: .*must be float32 of shape \(2,\), got <U3 of shape \(2,\)"):
        step(broken.Late, 12, env_kwargs=options)


@pytest.mark.parametrize(
    "outcome", [(1, np.float64(1.0)), (1, np.array(1.0)), (1, True), (2, 0), (3, np.False_), (2, np.int64(0))]
)
def test_a_usable_reward_or_flag_of_another_type_is_accepted_in_later_steps(broken: Any, outcome: Any):
    step(broken.Late, 14, env_kwargs={"position": outcome[0], "value": outcome[1]})


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("NoActionSpace", "the environment has no action_space: set self.action_space in __init__"),
        ("WrongSpace", "observation_space is of the type tuple, not a space: use one of gymnasium.spaces"),
    ],
)
def test_a_missing_space_ends_training_with_file_and_line(broken: Any, name: str, sentence: str):
    with pytest.raises(TypeError) as raised:
        step(getattr(broken, name), 1)
    assert str(raised.value).startswith(f"{sentence} (")
    assert str(raised.value).endswith(f"{PLACES[name]})")


def test_an_observation_outside_its_space_is_one_warning(broken: Any):
    warnings: list[str] = []
    step(broken.Outside, 8, warnings=warnings)
    step(broken.Outside, 8, warnings=warnings)
    (warning,) = warnings
    assert warning.startswith("`step` returned the observation 3 at index [0], outside its space (-1 to 1)")
    assert warning.endswith(f"{PLACES['Outside']})")


@pytest.mark.parametrize(("name", "steps"), [("ChangedActions", 1), ("ChangedActionsLater", 21)])
def test_another_action_space_after_a_reset_is_one_warning(broken: Any, name: str, steps: int):
    warnings: list[str] = []
    step(getattr(broken, name), steps, warnings=warnings)
    step(getattr(broken, name), steps, warnings=warnings)
    (warning,) = warnings
    assert warning.startswith("action_space was Discrete(2) and is Discrete(3) after `reset`, but an agent keeps the ")


@pytest.mark.parametrize("name", ["OtherDtype", "ListObs", "IntFlag", "InfoList", "Good"])
def test_a_value_that_training_converts_is_accepted(broken: Any, name: str):
    warnings: list[str] = []
    step(getattr(broken, name), 8, warnings=warnings)
    assert warnings == []


def test_the_environment_has_its_own_methods_again_after_the_first_steps(broken: Any):
    made: list[Any] = []

    def make() -> Any:
        made.append(broken.Good())
        return made[-1]

    with EnvPool(make, 2) as pool:
        pool.reset()
        assert all("step" in vars(env) and "reset" not in vars(env) for env in made)
        for _ in range(CHECKED_STEPS):
            pool.step(np.array([0, 1]))
        assert not any("step" in vars(env) for env in made)
