"""Environments given in Python: objects, classes and functions."""

from __future__ import annotations

import json
import threading
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import FlattenObservation

from rl_training import DQN, PPO, ExperimentManager, evaluate_checkpoint, resume_training, train_ppo
from rl_training.envs.creation.lending import KeptOpen
from rl_training.experiment.config.train_config import ConfigError
from rl_training.experiment.verify import compare_runs
from rl_training.runtime.callbacks.training import StopAtStep

TINY: dict[str, Any] = {
    "total_timesteps": 64, "num_steps": 8, "batch_size": 8, "epochs": 1, "hidden_sizes": [8], "eval_episodes": 2,
    "eval_interval": 32, "checkpoint_interval": 16, "keep_checkpoints": 9,
}  # fmt: skip


class Walk(gym.Env):
    """Position 0 to 5; the right end pays 1 and ends the episode. Importable, because it is in a module."""

    observation_space = gym.spaces.Box(-10, 10, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length: int = 5) -> None:
        self.length, self.steps, self.is_closed = length, 0, False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.position, self.time = int(self.np_random.integers(0, 2)), 0
        return np.array([self.position], np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps, self.time = self.steps + 1, self.time + 1
        self.position += 1 if action else -1
        return np.array([self.position], np.float32), 0.0, abs(self.position) >= self.length, self.time >= 9, {}

    def close(self) -> None:
        self.is_closed = True


def local_class() -> type[Walk]:
    class Grid(Walk):
        pass

    return Grid


def steps(agent: PPO) -> int:
    return 0 if agent.result is None else agent.result.steps


def record(run: Any) -> dict[str, Any]:
    return dict(json.loads((run / "run.json").read_text())["environment"])


def test_a_local_class_trains_evaluates_predicts_and_continues(tmp_path):
    grid = local_class()
    agent = PPO(grid, output_dir=str(tmp_path / "run"), num_envs=4, **TINY).learn()
    assert agent.config.env_id == f"<local> Grid in {__name__}"
    assert agent.evaluate(num_episodes=3)["episodes"] == 3
    assert agent.predict(np.zeros(1, np.float32)) in (0, 1)
    assert record(tmp_path / "run") == {
        "name": f"<local> Grid in {__name__}", "kind": "class", "can_be_repeated": False
    }  # fmt: skip
    assert steps(agent.learn(total_timesteps=64)) == 128


def test_an_agent_of_a_local_class_that_cannot_be_closed_is_trained(tmp_path):
    class Stuck(Walk):
        def close(self) -> None:
            raise OSError("the simulator is gone")

    assert steps(PPO(Stuck, output_dir=str(tmp_path / "run"), **TINY).learn()) == 64


def test_a_local_class_asks_for_the_environment_after_load(tmp_path):
    grid, run = local_class(), tmp_path / "run"
    PPO(grid, output_dir=str(run), **TINY).learn()
    sentence = (
        r"given in Python as Grid in .*cannot be created from its name; pass it again in Python: load\(RUN, env=…"
    )
    for call in (
        PPO.load(run).evaluate, partial(PPO.load(run).learn, 8), partial(evaluate_checkpoint, run),
        partial(resume_training, run, total_timesteps=80),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=sentence):
            call()
    assert PPO.load(run).predict(np.zeros(1, np.float32)) in (0, 1)  # needs no environment
    loaded = PPO.load(run, env=grid)
    played = loaded.evaluate(num_episodes=2)
    assert played == PPO.load(run).evaluate(num_episodes=2, env=grid)
    assert played == evaluate_checkpoint(run, num_episodes=2, env=grid())
    assert steps(loaded.learn(total_timesteps=8)) == 72
    assert resume_training(run, env=grid, total_timesteps=80).steps == 80


def test_the_resume_of_a_local_class_is_exact(tmp_path):
    grid = local_class()
    PPO(grid, output_dir=str(tmp_path / "whole"), num_envs=2, **TINY).learn()
    halved = PPO(grid, output_dir=str(tmp_path / "halved"), num_envs=2, **TINY)
    assert steps(halved.learn(callbacks=[StopAtStep(32)])) == 32
    halved.learn()
    assert compare_runs(tmp_path / "whole", tmp_path / "halved") == []


def test_a_class_of_a_module_is_recorded_by_its_name(tmp_path):
    agent = PPO(partial(Walk, length=3), output_dir=str(tmp_path / "run"), **TINY).learn()
    assert (agent.config.env_id, agent.config.env_kwargs) == (f"{__name__}:Walk", {"length": 3})
    assert record(tmp_path / "run")["can_be_repeated"]
    loaded = PPO.load(tmp_path / "run")
    assert loaded.evaluate(num_episodes=2) == agent.evaluate(num_episodes=2)
    assert steps(loaded.learn(total_timesteps=8)) == 72


@pytest.mark.parametrize("make", [lambda: Walk(3), partial(Walk, 3)], ids=["lambda", "partial with positions"])
def test_functions_are_called_for_every_environment(tmp_path, make):
    agent = PPO(make, output_dir=str(tmp_path / "run"), num_envs=3, **TINY).learn()
    assert str(agent.config.env_id).startswith("<local> ")
    assert agent.evaluate(num_episodes=2)["episodes"] == 2


def test_an_object_is_trained_in_and_its_copies_are_evaluated(tmp_path):
    env = Walk(3)
    agent = PPO(env, output_dir=str(tmp_path / "run"), num_envs=4, **TINY).learn()
    assert env.steps == 16  # of 64 steps in four environments
    assert not env.is_closed
    agent.evaluate(num_episodes=2)
    assert env.steps == 16
    assert agent.config.env_id == f"<local> Walk in {__name__}"


def test_an_object_of_gymnasium_trains_exactly_as_its_id(tmp_path):
    PPO(gym.make("CartPole-v1"), output_dir=str(tmp_path / "object"), num_envs=2, **TINY).learn()
    PPO("CartPole-v1", output_dir=str(tmp_path / "id"), num_envs=2, **TINY).learn()
    differences = compare_runs(tmp_path / "object", tmp_path / "id")
    assert differences == ["state.json differs at step 64"]  # only in a cache of Gymnasium's wrappers
    assert record(tmp_path / "object") == {"name": "CartPole-v1", "kind": "object", "can_be_repeated": True}
    assert resume_training(tmp_path / "object", total_timesteps=80).steps == 80  # by its id


class Locked(Walk):
    """Cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


def test_an_object_that_cannot_be_copied_asks_for_a_function(tmp_path):
    env = Locked()
    sentence = r"object Locked .* cannot be copied \(TypeError: .*lock.*\); pass a class or a function .*lambda: Locked"
    with pytest.raises(ConfigError, match=f"{sentence}.*or set eval_interval to 0"):
        PPO(env, output_dir=str(tmp_path / "evaluated"), **TINY).learn()
    alone = {**TINY, "eval_interval": 0}
    with pytest.raises(ValueError, match=sentence):
        PPO(env, output_dir=str(tmp_path / "several"), num_envs=2, **alone).learn()
    agent = PPO(env, output_dir=str(tmp_path / "alone"), **alone).learn()
    assert agent.evaluate(num_episodes=3)["episodes"] == 3  # one after the other, in the object itself
    assert env.steps > 64
    assert not env.is_closed


def test_workers_cannot_import_a_local_class(tmp_path):
    agent = PPO(local_class(), output_dir=str(tmp_path / "run"), num_envs=2, env_workers=2, **TINY)
    with pytest.raises(TypeError, match=r"worker processes cannot create Grid in .*; move it to a module"):
        agent.learn()


def test_seeds_train_in_a_local_class_as_a_population(tmp_path):
    options = {**TINY, "learning_starts": 4}
    for name in ("num_steps", "epochs"):
        del options[name]
    config = DQN(local_class(), output_dir=str(tmp_path / "seeds"), **options).config
    results = ExperimentManager(config).sweep([0, 1])
    assert [result.steps for result in results] == [64, 64]
    alone = DQN(local_class(), output_dir=str(tmp_path / "alone"), seed=1, **options).learn().result
    assert alone is not None
    assert alone.metrics.keys() == results[1].metrics.keys()


def test_seeds_in_processes_refuse_a_local_class_in_one_sentence(tmp_path):
    config = PPO(local_class(), output_dir=str(tmp_path / "seeds"), **TINY).config
    with pytest.raises(TypeError, match=r"processes of their own cannot create Grid in .*; move it to a module"):
        ExperimentManager(config).sweep([0, 1])


def test_an_environment_with_other_spaces_is_refused(tmp_path):
    PPO(local_class(), output_dir=str(tmp_path / "run"), **TINY).learn()
    sentence = r"CartPole-v1 has observations of shape \(4,\) and 2 actions, but the agent was trained for .*\(1,\)"
    for call in (partial(PPO.load, env="CartPole-v1"), partial(evaluate_checkpoint, env=gym.make("CartPole-v1"))):
        with pytest.raises(ValueError, match=sentence):
            call(tmp_path / "run")


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        (3, "env must be an environment id, a gymnasium.Env, or a class or function that creates one, got int"),
        (gym.make_vec("CartPole-v1", num_envs=2), "pass one environment, not a CartPoleVectorEnv of several"),
    ],
)
def test_what_is_no_environment_is_refused(env, sentence):
    with pytest.raises(TypeError, match=sentence):
        PPO(env)


class NotEnv:
    def step(self, action: Any) -> Any: ...


@pytest.mark.parametrize(
    ("make", "got"),
    [
        (lambda: 3, "int; return an environment"),
        (lambda: None, "NoneType; the function returned None; return the environment"),
        (lambda: gym.make_vec("CartPole-v1"), "CartPoleVectorEnv; return one environment; num_envs sets how many"),
        (NotEnv, "NotEnv; NotEnv must subclass gymnasium.Env"),
    ],
)
def test_a_function_that_makes_no_environment_is_refused(tmp_path, make, got):
    with pytest.raises(TypeError, match=rf"must be an id or a function returning a gymnasium\.Env, got {got}"):
        PPO(make, output_dir=str(tmp_path / "run"), **TINY).learn()


def test_a_class_that_needs_arguments_is_named(tmp_path):
    class Sized(Walk):
        def __init__(self, length: int) -> None:
            super().__init__(length)

    with pytest.raises(
        TypeError, match=r"Sized in .* could not be created: .*'length'; see env_kwargs, or pass a func"
    ):
        PPO(Sized, output_dir=str(tmp_path / "run"), **TINY).learn()
    assert steps(PPO(Sized, env_kwargs={"length": 3}, output_dir=str(tmp_path / "run"), **TINY).learn()) == 64
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'lenght'; did you mean 'length'\?"):
        PPO(Sized, env_kwargs={"lenght": 3}, output_dir=str(tmp_path / "other"), **TINY).learn()


def test_a_training_function_takes_a_class_too(tmp_path):
    config = {"env_id": local_class(), "output_dir": str(tmp_path / "run"), "total_timesteps": 8, "eval_interval": 0,
              "algo_kwargs": {"num_steps": 8, "batch_size": 8}}  # fmt: skip
    assert train_ppo(config).steps == 8


def test_an_object_of_gymnasium_is_recorded_in_another_render_mode(tmp_path):
    env = FlattenObservation(gym.make("CartPole-v1"))
    agent = PPO(env, output_dir=str(tmp_path / "run"), **TINY).learn()
    agent.evaluate(num_episodes=1, video=tmp_path / "played.gif")
    assert (tmp_path / "played.gif").stat().st_size > 1000


def test_an_object_takes_no_options():
    with pytest.raises(ValueError, match="env_kwargs are options of an id, class or function"):
        PPO(Walk(), env_kwargs={"length": 3})


def test_the_first_arguments_of_other_libraries_are_answered():
    with pytest.raises(TypeError, match=r"'MlpPolicy' is not needed here.*hidden_sizes.*PPO\(env, …\)"):
        PPO("MlpPolicy", "CartPole-v1")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="takes one environment or config, then options by name"):
        PPO("CartPole-v1", 3)  # type: ignore[call-arg,arg-type]
    with pytest.raises(TypeError, match="given twice"):
        PPO("CartPole-v1", env="CartPole-v1")
    assert PPO(env="CartPole-v1").config.env_id == "CartPole-v1"


def test_an_id_that_a_module_registers_is_recorded_with_the_module():
    gym.register("RecordedWalk-v0", lambda **options: Walk(**options), max_episode_steps=5)
    try:
        config = PPO(gym.make("RecordedWalk-v0", length=3)).config
    finally:
        del gym.registry["RecordedWalk-v0"]
    assert (config.env_id, config.env_kwargs) == (f"{__name__}:RecordedWalk-v0", {"length": 3})


def test_the_object_of_the_user_stays_open_for_one_borrower_at_a_time():
    agent = PPO(Walk())
    source = agent.config.environment()
    assert source is not None
    first, second = source.make(training=True), source.make(training=True)
    assert (type(first), type(second)) == (KeptOpen, Walk)
    first.close()
    assert type(source.make(training=True)) is KeptOpen
