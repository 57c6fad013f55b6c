"""Agents as objects: one way to set up, learn, evaluate, predict, save and load."""

from __future__ import annotations

import copy
import signal
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

import rl_training
from rl_training import BC, IQL, PPO, evaluate_checkpoint, predict_checkpoint, resume_training, runtime, train_ppo
from rl_training.experiment.config.train_config import ConfigError
from rl_training.runtime.callbacks.training import StopAtStep
from rl_training.runtime.engine import Callback, CallbackError
from rl_training.runtime.state import TrainerState

sys.path.insert(0, str(Path(__file__).parent))
from tiny_options import TINY  # type: ignore[import-not-found]

sys.path.pop(0)


class Interrupt(Callback):
    """Sends this process a signal at the end of the first step."""

    def __init__(self, number: int) -> None:
        self.number = number

    def on_step_end(self, state: TrainerState) -> None:
        if state.global_step <= 32:
            signal.raise_signal(self.number)


class Fail(Callback):
    def on_step_end(self, state: TrainerState) -> None:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("number", "error"),
    [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)],
    ids=lambda each: each.name if isinstance(each, signal.Signals) else "",
)
def test_a_signal_ends_the_script_after_the_run_is_saved(number, error, tmp_path):
    agent = PPO("CartPole-v1", output_dir=str(tmp_path / "run"), **TINY)
    with pytest.raises(error) as ended:
        agent.learn(callbacks=Interrupt(number))
    assert ended.value.code == 143 if error is SystemExit else "learn() again continues the run" in str(ended.value)
    assert agent.result is not None
    assert agent.result.status == "stopped"
    agent.learn()
    assert agent.result.steps == 64


def steps(agent: PPO) -> int:
    assert agent.result is not None
    return agent.result.steps


def test_after_ctrl_c_more_steps_count_from_the_stop(tmp_path):
    agent = PPO("CartPole-v1", output_dir=str(tmp_path / "run"), **TINY | {"total_timesteps": 640})
    with pytest.raises(KeyboardInterrupt):
        agent.learn(callbacks=Interrupt(signal.SIGINT))
    assert agent.result is not None
    assert steps(agent) == 32
    assert steps(agent.learn(total_timesteps=64)) == 96
    assert steps(agent.learn(total_timesteps=32)) == 128
    assert steps(agent.learn()) == 640
    assert steps(agent.learn(total_timesteps=32)) == 672


def test_more_steps_count_from_where_a_callback_or_an_error_stopped_the_run(tmp_path):
    agent = PPO("CartPole-v1", output_dir=str(tmp_path / "run"), **TINY | {"total_timesteps": 640})
    assert steps(agent.learn(callbacks=StopAtStep(64))) == 64
    with pytest.raises(CallbackError):
        agent.learn(total_timesteps=32, callbacks=Fail())
    assert steps(agent.learn(total_timesteps=32)) == 96
    assert steps(PPO.load(tmp_path / "run").learn().learn(total_timesteps=32)) == 672


def test_a_script_that_runs_again_trains_no_more_steps(tmp_path):
    for _ in range(2):
        agent = PPO("CartPole-v1", output_dir=str(tmp_path / "run"), **TINY)
        assert steps(agent.learn(total_timesteps=32).learn().learn(total_timesteps=32)) == 64


def test_attributes_of_other_libraries_are_answered_with_what_to_use_here(agent):
    with pytest.raises(AttributeError, match=r"^'PPO' object has no attribute 'num_timesteps'; use \.agent\.step$"):
        print(agent.num_timesteps)
    assert PPO.load(agent.agent.path).agent.step == steps(agent)  # `result` of a loaded agent is None
    with pytest.raises(AttributeError, match=r"^'PPO' object has no attribute 'colour'$"):
        print(agent.colour)
    assert (copy.deepcopy(agent).predict(np.ones(4)) == agent.predict(np.ones(4))).all()


class WithProperties(PPO):
    @property
    def lives(self) -> int:
        raise AttributeError("the wrapper counts no lives")

    env = lives  # a name that other libraries use too


@pytest.mark.parametrize("name", ["lives", "env"])
def test_the_error_of_a_property_is_raised_as_it_is(name):
    agent = WithProperties("CartPole-v1", **TINY)
    assert not hasattr(agent, name)
    with pytest.raises(AttributeError, match=r"^the wrapper counts no lives$"):
        getattr(agent, name)


def test_learning_again_reports_that_nothing_was_trained(tmp_path, capfd):
    agent = PPO("CartPole-v1", output_dir=str(tmp_path / "run"), **TINY).learn()
    assert agent.result is not None
    assert agent.result.trained
    capfd.readouterr()
    agent.learn()
    assert not agent.result.trained
    printed = capfd.readouterr().err
    assert printed.startswith("This run finished earlier, at 64 steps; nothing was trained. Pass --steps above 64")


@pytest.mark.parametrize(
    ("method", "argument", "message"),
    [
        ("predict", "state", r"predict\(\) has no argument 'state'; use memory=rl_training\.Memory\(\)"),
        ("predict", "episode_start", r"use memory\.forget\(\) at the end of an episode"),
        ("predict", "action_masks", "use the entry action_mask of a Dict observation"),
        ("evaluate", "n_eval_episodes", r"evaluate\(\) has no argument 'n_eval_episodes'; use num_episodes"),
        (
            "learn",
            "seeds",
            r"learn\(\) has no argument 'seeds'; use an agent for each seed, or `rl-training train --seeds",
        ),
        ("evaluate", "unknown", r"evaluate\(\) has no argument 'unknown'$"),
    ],
)
def test_arguments_of_other_libraries_are_refused_with_those_to_use(agent, method, argument, message):
    with pytest.raises(TypeError, match=message):
        getattr(agent, method)(np.zeros(4), **{argument: None})


def test_a_config_may_have_all_its_evaluations_draw_their_actions(tmp_path):
    """Those in training, which pick the best checkpoint, and those after; the likeliest may still be asked for."""
    drawn, still = (
        PPO("CartPole-v1", output_dir=str(tmp_path / str(eval_stochastic)), eval_stochastic=eval_stochastic, **TINY)
        for eval_stochastic in (True, False)
    )
    results = [each.learn().result for each in (drawn, still)]
    one, other = (result and result.evaluation for result in results)
    assert one
    assert other
    assert one["returns"] != other["returns"]
    played = {each: drawn.evaluate(num_episodes=5, deterministic=each)["returns"] for each in (None, False, True)}
    assert played[None] == played[False] != played[True]
    assert played[True] == still.evaluate(num_episodes=5)["returns"]


def test_several_choices_are_predicted_saved_and_loaded_in_the_environments_own_numbers(tmp_path):
    agent = PPO("Levers-v0", output_dir=str(tmp_path / "ppo"), **TINY).learn()
    signs = np.array([[[0, 0], [2, 1]]])
    chosen = agent.predict(signs, deterministic=False)
    assert chosen.shape == (1, 2, 2)
    assert all(gym.make("Levers-v0").action_space.contains(each) for each in chosen[0])  # from 5 and from 0
    loaded = PPO.load(agent.save(tmp_path / "agent"))
    np.testing.assert_array_equal(loaded.predict(signs), agent.predict(signs))
    assert loaded.evaluate(num_episodes=2) == agent.evaluate(num_episodes=2)


def test_several_choices_are_refused_with_the_offline_algorithm_that_takes_them(tmp_path):
    agent = IQL("Levers-v0", dataset={"kind": "random", "rows": 20}, output_dir=str(tmp_path / "r"), total_timesteps=2)
    sentence = "iql needs a Box or Discrete action space, got MultiDiscrete; these accept it: bc; without an env"
    with pytest.raises(TypeError, match=sentence):
        agent.learn()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_episodes": 0}, ValueError, "num_episodes must be at least 1, got 0"),
        ({"num_episodes": 1.5}, TypeError, "num_episodes must be an integer, got 1.5"),
        ({"num_episodes": "3"}, TypeError, "num_episodes must be an integer, got '3'"),
        ({"num_episodes": True}, TypeError, "num_episodes must be an integer, got True"),
        ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
        ({"seed": None}, TypeError, "seed must be an integer, got None"),
    ],
)
def test_wrong_numbers_of_an_evaluation_are_refused(agent, options, error, message):
    with pytest.raises(error, match=f"^{message}$"):
        agent.evaluate(**options)


def test_a_device_that_is_not_there_is_one_sentence(agent, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for device, message in (("cuda", "device 'cuda' is not available"), ("gpu", "device must be auto, cpu, cuda or")):
        with pytest.raises(ValueError, match=message):
            PPO.load(agent.agent.path, device=device)
    assert PPO.load(agent.agent.path, device="auto").predict([0, 0, 0, 0]) in (0, 1)


@pytest.mark.parametrize("steps", ["1e3", 1.5, True])
def test_a_wrong_number_of_steps_is_refused(agent, steps):
    with pytest.raises(TypeError, match="total_timesteps must be an integer, got"):
        resume_training(agent.agent.path, total_timesteps=steps)
    with pytest.raises(TypeError, match="total_timesteps must be an integer, got"):
        agent.learn(total_timesteps=steps)


def test_numbers_may_be_integers_of_numpy(tmp_path):
    small = {name: value for name, value in TINY.items() if name != "total_timesteps"}
    first, second, one, seed = np.array([64, 128, 1, 0])
    agent = PPO("CartPole-v1", output_dir=str(tmp_path / "run"), **small).learn(first)
    assert type(agent.config.total_timesteps) is int
    assert resume_training(tmp_path / "run", total_timesteps=second).steps == 128
    assert type(agent.evaluate(num_episodes=one, seed=seed)["episodes"]) is int


def test_a_saved_agent_acts_and_plays_the_same(agent, tmp_path):
    saved = agent.save(tmp_path / "agent")
    loaded = PPO.load(saved)
    obs = np.random.default_rng(0).normal(size=(20, 4))
    assert (loaded.predict(obs) == agent.predict(obs)).all()
    assert (predict_checkpoint(saved, obs) == agent.predict(obs)).all()
    assert evaluate_checkpoint(saved, num_episodes=3) == agent.evaluate(num_episodes=3)


def test_an_agent_of_another_algorithm_is_refused(agent, tmp_path):
    with pytest.raises(ConfigError, match="BC trains 'bc', but the config has algo: 'ppo'"):
        BC.load(agent.result.run_dir)
    with pytest.raises(ConfigError, match="train_ppo trains 'ppo'"):
        train_ppo(rl_training.TrainConfig(algo="bc", env_id="CartPole-v1"))


def test_nothing_can_be_asked_of_an_agent_that_has_not_learned():
    with pytest.raises(RuntimeError, match=r"call learn\(\) first"):
        PPO("CartPole-v1").predict(np.zeros(4))


def test_a_misspelt_option_names_the_right_one():
    with pytest.raises(ConfigError, match="learning_rate"):
        PPO("CartPole-v1", lerning_rate=0.1)  # type: ignore[call-arg]


def test_train_function_gives_run_checkpoint_and_metrics(tmp_path):
    config = {"env_id": "CartPole-v1", "output_dir": str(tmp_path / "run"), "total_timesteps": 64, "eval_episodes": 1,
              "algo_kwargs": {"num_steps": 32, "batch_size": 16, "hidden_sizes": [8]}}  # fmt: skip
    result = runtime.train_ppo(config, run_suffix="again")
    assert result.run_dir == tmp_path / "run-again"
    assert result.checkpoint_path.parent.parent == result.run_dir
    assert {"policy_loss", "value_loss", "entropy", "episode_return"} <= result.metrics.keys()
    further = resume_training(result.run_dir, total_timesteps=96)
    assert (further.steps, further.status) == (96, "finished")


def test_learning_afresh_removes_the_run_there_was(tmp_path):
    options = {**TINY, "output_dir": str(tmp_path / "ppo")}
    PPO("CartPole-v1", **options).learn()
    other = PPO("CartPole-v1", seed=1, **options)
    with pytest.raises(ConfigError, match=r"output_dir in Python.*fresh=True in Python"):
        other.learn()
    first, again = (other.learn(fresh=True).result for _ in range(2))  # each with nothing of what it has learned
    assert first
    assert again
    assert first.metrics == again.metrics
    assert train_ppo(PPO("CartPole-v1", seed=2, **options).config, fresh=True).steps == 64


def test_a_checkpoint_to_start_from_is_not_removed_first(agent):
    with pytest.raises(
        ConfigError, match=r"fresh would delete the run in .*ppo, which holds .*step_000000064 to start from"
    ):
        train_ppo(agent.config, fresh=True, checkpoint_state=agent.agent.path)
    assert agent.agent.path.exists()


def test_an_agent_goes_on_from_another_ones_checkpoint(agent, tmp_path):
    options = {**TINY, "total_timesteps": 96, "output_dir": str(tmp_path / "on")}
    config = PPO("CartPole-v1", **options).config
    result = train_ppo(config, checkpoint_state=agent.agent.path)
    assert (result.steps, result.updates) == (96, agent.result.updates * 96 // 64)
