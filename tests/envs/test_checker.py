"""`check_env`: each mistake in one sentence, with the file and line of the user's code."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers import TimeLimit

import rl_training
from rl_training.envs.checks.checker import EnvReport

FOLDER = Path(__file__).parent
MODULES = ("broken_envs", "broken_steps")
EXPECTED = {  # name: place, and a part of the sentence
    match[1]: ((str(file), number), match[2].strip())
    for file in (FOLDER / f"{module}.py" for module in MODULES)
    for number, line in enumerate(file.read_text().splitlines(), 1)
    if (match := re.search(r"# <- (\w+): (.*)$", line))
}


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    return SimpleNamespace(**{name: each for module in MODULES for name, each in vars(import_module(module)).items()})


def check(env: Any, **options: Any) -> EnvReport:
    return rl_training.check_env(env, **{"steps": 100, "timeout": 0.3, **options})


def test_there_are_enough_broken_environments():
    assert len(EXPECTED) >= 30


@pytest.mark.parametrize("name", EXPECTED)
def test_a_mistake_is_named_with_its_file_and_line(broken: Any, name: str, capfd: pytest.CaptureFixture[str]):
    report = check(getattr(broken, name))
    place, part = EXPECTED[name]
    named = [each for each in report.mistakes if each.place == place and part in each.sentence]
    assert len(named) == 1, [str(each) for each in report.mistakes]
    assert not report.ok
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("name", sorted(EXPECTED.keys() - {"OldReset", "UnseededReset"}))
def test_one_mistake_is_one_sentence(broken: Any, name: str):
    assert [str(each) for each in check(getattr(broken, name)).mistakes[1:]] == []


def test_every_mistake_is_reported_not_only_the_first(broken: Any):
    codes = [each.code for each in check(broken.OldReset).mistakes]
    assert codes == ["reset_signature", "reset_values:reset"]


def test_a_mistake_of_a_wrapped_environment_names_that_environment(broken: Any):
    (mistake,) = check(lambda: TimeLimit(broken.WrappedOldStep(), 20)).mistakes
    assert mistake.place == EXPECTED["InfoList"][0]


@pytest.mark.parametrize("kind", ["CartPole-v1", "Pendulum-v1", "class", "object", "function"])
def test_a_good_environment_has_no_mistakes(broken: Any, kind: str):
    report = check({"class": broken.Good, "object": broken.Good(), "function": lambda: broken.Good()}.get(kind, kind))
    assert report.mistakes == []
    assert report.pace is not None
    assert report.pace.steps_per_second > 0


def test_a_good_environment_that_is_registered_has_no_mistakes(broken: Any):
    report = check("broken_envs:BrokenGood-v0")
    assert (report.mistakes, report.notes, report.ok) == ([], [], True)
    assert report.resume == "exact: an episode is replayed from its seed and actions"
    assert report.workers == "yes: other processes can create it"


@pytest.mark.parametrize("name", ["OldStep", "NeedsArguments", "RaisingConstructor", "RaisingStep"])
def test_an_id_names_the_same_places_as_its_class(broken: Any, name: str):
    (mistake,) = check(f"broken_envs:Broken{name}-v0").mistakes
    assert mistake.place == EXPECTED[name][0]
    assert EXPECTED[name][1] in mistake.sentence


def test_constructor_arguments_are_passed(broken: Any):
    assert check(broken.NeedsArguments, env_kwargs={"size": 3}).ok


def test_a_single_wrapper_is_taken_like_a_list_of_one():
    def short(env: Any) -> Any:
        wrapped.append(env)
        return TimeLimit(env, 5)

    for given in (short, [short]):
        wrapped: list[Any] = []
        assert rl_training.check_env("CartPole-v1", wrappers=given, steps=20).mistakes == []
        assert wrapped


def test_the_report_has_how_a_run_resumes(broken: Any):
    assert check("CartPole-v1").resume == "exact: the state of the environment is saved"
    assert str(check(broken.UnseededStep).resume).startswith("not exact: a replayed episode would differ")


def test_the_report_has_whether_worker_processes_can_create_it(broken: Any, monkeypatch: pytest.MonkeyPatch):
    assert check(broken.Good).workers.startswith("yes")
    assert check(broken.Good()).workers.startswith("no: an object")
    assert check(lambda: broken.Good()).workers.startswith("no: other processes")
    monkeypatch.setitem(gym.registry, "Here-v0", EnvSpec("Here-v0", lambda **options: broken.Good(**options)))
    assert check("Here-v0").workers.startswith("no: other processes")


def test_masked_environments_get_valid_actions_only(broken: Any):
    report = check(broken.Masked)
    assert [str(each) for each in report.mistakes] == []
    assert report.to_json()["steps"] == 100
    assert check("CombinationLock-v0").ok


@pytest.mark.parametrize(
    ("reward", "part"),
    [
        (None, "has none"),
        (lambda *goals: -1.0, "one reward for each row"),
        (lambda *goals: goals[0][:, 0], "instead of 7"),
    ],
)
def test_goals_that_hindsight_cannot_use_are_a_note(reward: Any, part: str):
    class Goals(gym.Env[Any, Any]):
        observation_space = gym.spaces.Dict(
            {name: gym.spaces.Box(-1, 1, (2,)) for name in ("observation", "achieved_goal", "desired_goal")}
        )
        action_space = gym.spaces.Discrete(2)

        def observe(self) -> Any:
            return {name: np.zeros(2, np.float32) for name in self.observation_space}

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return self.observe(), {}

        def step(self, action: Any) -> Any:
            return self.observe(), 7.0, True, False, {}

    if reward is not None:
        Goals.compute_reward = staticmethod(reward)  # type: ignore[attr-defined]
    report = check(Goals)
    assert report.ok
    (note,) = [each.sentence for each in report.notes if each.code == "goals"]
    assert note.startswith("hindsight cannot be used: ")
    assert part in note
    assert not [each for each in check("PointGoal-v0").notes if each.code == "goals"]


@pytest.mark.parametrize("in_info", [True, False])
def test_the_steps_that_check_goals_are_valid_ones(in_info: bool):
    class MaskedGoals(gym.Env[Any, Any]):
        """One action is valid, and another one at each step; others raise an error."""

        action_space = gym.spaces.Discrete(4)
        observation_space = gym.spaces.Dict({
            **{name: gym.spaces.Box(-1, 1, (2,)) for name in ("observation", "achieved_goal", "desired_goal")},
            **({} if in_info else {"action_mask": gym.spaces.MultiBinary(4)}),
        })  # fmt: skip

        def observe(self) -> Any:
            mask = np.eye(4, dtype=np.int8)[self.steps % 4]
            goals = {name: np.zeros(2, np.float32) for name in ("observation", "achieved_goal", "desired_goal")}
            return (goals, {"action_mask": mask}) if in_info else ({**goals, "action_mask": mask}, {})

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            self.steps = 0
            return self.observe()

        def step(self, action: Any) -> Any:
            assert action == self.steps % 4, "an invalid action"
            self.steps += 1
            obs, info = self.observe()
            return obs, 0.0, False, self.steps == 10, info

        def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
            return np.zeros(achieved.shape[:-1])

    report = check(MaskedGoals)
    assert report.ok
    assert [each.sentence for each in report.notes if each.code == "goals"] == []


def test_infinite_bounds_are_a_note():
    assert [each.code for each in check("CartPole-v1").notes] == ["infinite_bounds"]


@pytest.mark.parametrize(
    ("env", "options", "error", "message"),
    [
        ("CartPol-v1", {}, ValueError, "Did you mean 'CartPole-v1'"),
        (3, {}, TypeError, "env must be an id, a gymnasium.Env, a class or a function, got int"),
        ("CartPole-v1", {"steps": 0}, ValueError, "steps must be at least 1, got 0"),
        ("CartPole-v1", {"timeout": 0}, ValueError, "timeout must be greater than 0 seconds, got 0"),
    ],
)
def test_a_wrong_call_is_refused(env: Any, options: dict[str, Any], error: type[Exception], message: str):
    with pytest.raises(error, match=re.escape(message)):
        check(env, **options)


def test_an_object_takes_no_arguments(broken: Any):
    with pytest.raises(ValueError, match="env_kwargs need an id, a class or a function; this is an environment object"):
        check(broken.Good(), env_kwargs={"size": 3})


def test_the_checked_object_stays_open_and_usable():
    env = gym.make("CartPole-v1")
    assert check(env).ok
    env.reset(seed=0)
