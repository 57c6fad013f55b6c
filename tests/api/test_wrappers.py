"""Wrappers given to the Python interface: their order, their names in the config, and resume."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import ClipReward, FlattenObservation, TimeLimit

from rl_training import PPO, evaluate_checkpoint
from rl_training.experiment.verify import compare_runs
from rl_training.runtime.callbacks.training import StopAtStep

TINY: dict[str, Any] = {
    "total_timesteps": 64, "num_steps": 8, "batch_size": 8, "epochs": 1, "hidden_sizes": [8], "eval_episodes": 2,
    "eval_interval": 32, "checkpoint_interval": 16, "keep_checkpoints": 9,
}  # fmt: skip


class Shift(gym.ObservationWrapper):
    def __init__(self, env: Any, by: float = 1.0) -> None:
        super().__init__(env)
        self.by = by

    def observation(self, observation: Any) -> Any:
        return observation + np.float32(self.by)


def test_wrappers_are_applied_in_order_after_the_environment(tmp_path):
    wrappers: list[Any] = [Shift, partial(TimeLimit, max_episode_steps=2)]
    agent = PPO("CartPole-v1", output_dir=str(tmp_path / "run"), wrappers=wrappers, **TINY)
    source = agent.config.environment()
    assert source is not None
    env = source.make(training=True)
    assert type(env) is TimeLimit
    assert type(env.env) is Shift
    assert env.reset(seed=0)[0].min() > 0.9  # CartPole starts within 0.05 of 0
    assert agent.learn().evaluate(num_episodes=2)["lengths"] == [2, 2]
    assert PPO.load(tmp_path / "run").evaluate(num_episodes=2)["lengths"] == [2, 2]
    assert PPO.load(tmp_path / "run", wrappers=[Shift]).evaluate(num_episodes=2)["lengths"] != [2, 2]


@pytest.mark.parametrize("wrapper", [Shift, f"{__name__}:Shift"])
def test_a_single_wrapper_is_a_list_of_one(wrapper):
    assert PPO("CartPole-v1", wrappers=wrapper).config.env_wrappers == (f"{__name__}:Shift",)


def test_resume_replays_the_episode_through_wrappers_of_the_user(tmp_path):
    options: dict[str, Any] = {**TINY, "num_envs": 2, "wrappers": [Shift]}
    PPO("CartPole-v1", output_dir=str(tmp_path / "whole"), **options).learn()
    halved = PPO("CartPole-v1", output_dir=str(tmp_path / "halved"), **options)
    halved.learn(callbacks=[StopAtStep(32)])
    halved.learn()
    assert compare_runs(tmp_path / "whole", tmp_path / "halved") == []
    assert json.loads((tmp_path / "whole" / "run.json").read_text())["resume"] == "replay"


def test_a_local_wrapper_is_recorded_as_such(tmp_path):
    def shifted(env: Any) -> Any:
        return Shift(env, by=2.0)

    agent = PPO("CartPole-v1", output_dir=str(tmp_path / "run"), wrappers=[shifted], **TINY).learn()
    assert agent.config.env_wrappers == (f"<local> shifted in {__name__}",)
    assert not json.loads((tmp_path / "run" / "run.json").read_text())["environment"]["can_be_repeated"]
    with pytest.raises(ValueError, match=r"a wrapper was given in Python as shifted in .*pass the wrapped environment"):
        evaluate_checkpoint(tmp_path / "run")
    assert evaluate_checkpoint(tmp_path / "run", num_episodes=2, wrappers=[shifted])["episodes"] == 2
    wrapped = Shift(gym.make("CartPole-v1"), 2.0)
    assert evaluate_checkpoint(tmp_path / "run", num_episodes=2, env=wrapped)["episodes"] == 2


def test_an_object_of_gymnasium_keeps_its_options_and_wrappers(tmp_path):
    env = ClipReward(FlattenObservation(gym.make("Pendulum-v1", g=5.0, max_episode_steps=7)), 0.0, 1.0)
    agent = PPO(env, output_dir=str(tmp_path / "run"), num_envs=2, wrappers=[partial(Shift, by=0.5)], **TINY).learn()
    config = agent.config
    assert (config.env_id, config.env_kwargs) == ("Pendulum-v1", {"g": 5.0, "max_episode_steps": 7})
    flatten, clip, shift = config.env_wrappers
    assert flatten == "gymnasium.wrappers.transform_observation:FlattenObservation"
    assert isinstance(clip, dict)
    assert (clip["min_reward"], clip["max_reward"]) == (0.0, 1.0)
    assert shift == {"wrapper": f"{__name__}:Shift", "by": 0.5}
    played = agent.evaluate(num_episodes=2)
    assert played["lengths"] == [7, 7]
    assert played == PPO.load(tmp_path / "run").evaluate(num_episodes=2)  # created from the config alone
