"""`load` with other options starts a new run from the checkpoint, and every option takes effect."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import yaml

from rl_training import DQN, GAIL, IQL, MBPO, PPO, SAC, CalQL, resume_training, train_cal_ql, train_dqn, train_ppo
from rl_training.experiment.config.train_config import ConfigError
from rl_training.experiment.verify import compare_runs, verify_run
from rl_training.runtime.callbacks.training import StopAtStep
from rl_training.runtime.checkpoints.reading import read_checkpoint
from rl_training.runtime.engine import Callback, CallbackError
from rl_training.runtime.state import TrainerState

STEP_32 = "checkpoints/step_000000032"
TINY: dict[str, Any] = {
    "num_steps": 8, "batch_size": 8, "epochs": 1, "hidden_sizes": [8], "eval_episodes": 1, "eval_interval": 0,
}  # fmt: skip


class NoReward(gym.RewardWrapper):
    def reward(self, reward: Any) -> float:
        return 0.0


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    PPO("CartPole-v1", output_dir="old", **TINY).learn(total_timesteps=32)
    return Path("old")


def rates(agent: Any) -> list[float]:
    return [round(float(rate), 9) for rate in read_checkpoint(agent.agent.path).state["updater"]["rates"]]


def number(agent: Any, name: str) -> float:
    groups = read_checkpoint(agent.agent.path).group("learner")
    return round(float({**groups["parameters"], **groups["buffers"]}[name]), 6)


def files(run: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_evaluations_of_the_other_run_do_not_count_for_the_best_one_or_for_early_stopping(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stop = {"patience": 1, "min_delta": 1_000.0}
    PPO("CartPole-v1", output_dir="old", early_stopping=stop, **{**TINY, "eval_interval": 8}).learn(total_timesteps=32)
    agent = PPO.load("old", output_dir="new", learning_rate=1e-9).learn(total_timesteps=8)
    assert agent.result is not None
    assert (agent.result.status, agent.result.steps) == ("finished", 24)
    assert agent.result.best_checkpoint == Path("new/checkpoints/step_000000024")
    assert PPO.load("new", best=True).agent.step == 24
    found = verify_run(Path("new"))
    assert (found.repeat, found.resume) == ([], [])


def test_other_options_start_a_new_run_and_leave_the_old_one(trained):
    before = files(trained)
    agent = PPO.load(trained, learning_rate=1e-5, clip_range=0.1, gamma=0.5)
    agent.learn(total_timesteps=32)
    assert agent.result is not None
    assert (agent.result.steps, agent.result.run_dir) == (64, Path("runs/ppo-CartPole-v1-s0"))
    assert (rates(agent), number(agent, "clip_range")) == ([1e-5], 0.1)
    assert agent.config.algo_kwargs["gamma"] == 0.5
    agent.learn(total_timesteps=8)  # further calls continue the new run
    assert agent.result.steps == 72
    assert files(trained) == before


def test_the_directory_of_the_new_run_can_be_chosen(trained):
    before = files(trained)
    agent = PPO.load(trained, output_dir="new", learning_rate=1e-5)
    agent.learn(total_timesteps=32)
    assert agent.result is not None
    assert agent.result.run_dir == Path("new")
    PPO.load(trained, output_dir="new").learn(total_timesteps=16, fresh=True)  # deletes `new`, not `old`
    assert files(trained) == before


def test_a_run_that_started_from_another_ones_checkpoint_is_verified_from_there(trained):
    PPO.load(trained, output_dir="new", learning_rate=1e-3, log_interval=8).learn(total_timesteps=32)
    record = json.loads(Path("new/run.json").read_text())
    assert record["started_from"] == {"checkpoint": str((trained / STEP_32).resolve()), "step": 32}
    found = verify_run(Path("new"))
    assert (found.steps, found.repeat, found.resume) == (56, [], [])
    with pytest.raises(ConfigError, match="new started at step 32 of another run; repeat up to a later step than 32"):
        verify_run(Path("new"), steps=32)
    shutil.rmtree(trained)
    with pytest.raises(ConfigError, match=r"new started from .*step_000000032, which is missing; restore it"):
        verify_run(Path("new"))


class Crash(Callback):
    def on_step_end(self, state: TrainerState) -> None:
        raise ZeroDivisionError


def test_a_new_run_that_ended_before_its_first_checkpoint_resumes_from_the_old_one(trained):
    with pytest.raises(CallbackError):
        PPO.load(trained, output_dir="new", learning_rate=1e-3).learn(total_timesteps=32, callbacks=Crash())
    shutil.copytree("new", "lost")
    assert resume_training("new").steps == 64
    PPO.load(trained, output_dir="whole", learning_rate=1e-3).learn(total_timesteps=32)
    assert compare_runs(Path("whole"), Path("new")) == []
    PPO.load(trained).save("copy")
    shutil.rmtree(trained)
    with pytest.raises(ConfigError, match=r"lost started from .*step_000000032, which is missing; restore it"):
        resume_training("lost")
    PPO.load("copy", output_dir="lost", learning_rate=1e-3).learn(total_timesteps=32)
    assert json.loads(Path("lost/run.json").read_text())["started_from"]["checkpoint"] == str(Path("copy").resolve())


def test_a_checkpoint_to_start_from_takes_the_learning_rate_of_the_config(trained):
    config = PPO("CartPole-v1", output_dir="new", total_timesteps=64, learning_rate=1e-5, **TINY).config
    result = train_ppo(config, checkpoint_state=trained)
    assert rates(PPO.load(result.run_dir)) == [1e-5]


def test_a_schedule_that_is_left_out_no_longer_counts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    falling = {"kind": "linear", "end": 0.0}
    schedules = {"learning_rate": falling, "clip_range": falling}
    old = PPO("CartPole-v1", output_dir="old", learning_rate=1e-3, schedules=schedules, **TINY).learn(32)
    assert (rates(old), number(old, "clip_range")) == ([0.0], 0.0)
    new = PPO.load("old", schedules={}).learn(total_timesteps=32)
    assert (rates(new), number(new, "clip_range")) == ([1e-3], 0.2)


def test_the_learned_temperature_is_kept_unless_it_is_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny: dict[str, Any] = {"learning_starts": 8, "batch_size": 8, "hidden_sizes": [8], "eval_interval": 0}
    old = SAC("Pendulum-v1", output_dir="old", temperature=0.5, **tiny).learn(total_timesteps=32)
    learned = number(old, "log_alpha")
    assert learned != round(-0.693147, 6)
    kept = SAC.load("old", tune_temperature=False, gamma=0.9).learn(total_timesteps=8)
    assert number(kept, "log_alpha") == learned
    given = SAC.load("old", tune_temperature=False, temperature=1.0).learn(total_timesteps=8)
    assert number(given, "log_alpha") == 0.0


@pytest.mark.parametrize(
    ("kind", "options", "changed"),
    [
        (GAIL, {**TINY, "dataset": {"kind": "random", "rows": 64}}, {"discriminator_learning_rate": 1e-5}),
        (
            MBPO,
            {"learning_starts": 16, "batch_size": 8, "hidden_sizes": [8], "model_hidden_sizes": [8],
             "model_max_epochs": 1, "updates_per_collect": 1, "eval_interval": 0},
            {"model_learning_rate": 1e-5},
        ),
    ],
)  # fmt: skip
def test_the_rates_of_models_beside_the_policy_change_too(tmp_path, monkeypatch, kind, options, changed):
    monkeypatch.chdir(tmp_path)
    env = "Pendulum-v1" if kind is MBPO else "CartPole-v1"
    kind(env, output_dir="old", **options).learn(total_timesteps=32)
    agent = kind.load("old", **changed).learn(total_timesteps=32)
    lane = read_checkpoint(agent.agent.path).state["lane"]
    model = lane["discriminator"] if kind is GAIL else lane["fit"]["model"]
    assert [round(float(rate), 9) for rate in model["rates"]] == [1e-5]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"hidden_sizes": [16]}, r"weight has shape \(16, 4\), saved as \(8, 4\); keep the old value of hidden_sizes"),
        ({"hidden_sizes": [16], "gamma": 0.5}, r"keep the old value of gamma \(0.99\), hidden_sizes .*, or train"),
        ({"num_envs": 2}, r"num_envs is 2, but .* running episodes of 1 environment; keep num_envs 1, or train a new"),
        ({"seed": 3}, r"seed cannot change from 0 to 3: .*step_000000032 continues .* or train a new agent with it"),
        ({"normalize_rewards": True}, r"it has no 'reward_scale'; keep the old value of normalize_rewards"),
    ],
)
def test_options_that_do_not_fit_the_checkpoint_are_named(trained, options, reason):
    with pytest.raises(ConfigError, match=reason):
        PPO.load(trained, **options).learn(total_timesteps=32)
    assert not [*Path("runs").glob("*")]


def test_an_offline_agent_continues_with_its_data_and_other_options(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = {"kind": "random", "rows": 64}
    IQL("Pendulum-v1", dataset=data, hidden_sizes=[8], batch_size=8, eval_interval=0, output_dir="old").learn(4)
    agent = IQL.load("old", beta=1.0, learning_rate=1e-5).learn(total_timesteps=4)
    assert set(rates(agent)) == {1e-5}
    agent = IQL.load("old", actor_learning_rate=1e-4).learn(total_timesteps=4)  # forms a group of its own
    assert sorted(rates(agent)) == [1e-4, 3e-4]
    for other in ({"dataset": {**data, "rows": 65}}, {"rewards": {"scale": 2.0}}):
        with pytest.raises(ConfigError, match=r"the dataset or its rewards differ from those of .*old/checkpoints/"):
            IQL.load("old", **other).learn(total_timesteps=4)


def test_a_new_run_with_an_online_phase_reaches_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options: dict[str, Any] = {"dataset": {"kind": "random", "rows": 64}, "hidden_sizes": [8], "batch_size": 8}
    CalQL("Pendulum-v1", total_timesteps=8, online_steps=8, eval_interval=0, output_dir="old", **options).learn(
        callbacks=StopAtStep(4)
    )
    with pytest.raises(ConfigError, match=r"4 offline steps are left; learn\(total_timesteps=N\) needs more than that"):
        CalQL.load("old", gamma=0.9).learn(total_timesteps=4)
    agent = CalQL.load("old", gamma=0.9).learn(total_timesteps=6)
    assert (agent.config.total_timesteps, agent.config.online_steps) == (8, 2)


def test_an_offline_agent_continues_online(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options: dict[str, Any] = {"dataset": {"kind": "random", "rows": 64}, "hidden_sizes": [8], "batch_size": 8}
    agent = CalQL("Pendulum-v1", eval_interval=0, output_dir="old", **options).learn(total_timesteps=6)
    agent.learn(total_timesteps=2)
    with pytest.raises(ConfigError, match=r"seed cannot change from 0 to 3: .* Leave out seed=3"):
        CalQL.load("old", seed=3).learn(total_timesteps=4)
    agent = CalQL.load("old", online_steps=400, num_envs=2, output_dir="new").learn()
    assert agent.result is not None
    assert (agent.result.steps, agent.config.total_timesteps, agent.config.online_steps) == (408, 8, 400)
    spans = read_checkpoint(agent.agent.path).manifest.replay["replay"].values()
    assert [*spans] == [(0, 400)]  # two episodes, the environment steps of the new run alone
    found = verify_run(Path("new"))
    assert (found.repeat, found.resume) == ([], [])
    early = agent.config.model_copy(update={"total_timesteps": 6, "output_dir": "early"})
    with pytest.raises(ConfigError, match="has more offline steps than total_timesteps; set it to 8"):
        train_cal_ql(early, checkpoint_state="old")


def test_an_agent_with_discounts_of_its_data_does_not_continue_online(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = {
        "obs": np.zeros((20, 3)),
        "actions": np.zeros((20, 1)),
        "rewards": np.zeros(20),
        "dones": np.arange(20) == 19,
    }
    np.savez("data.npz", **rows, next_obs=rows["obs"], mine=np.full(20, 0.5))
    options: dict[str, Any] = {"dataset": "data.npz", "dataset_columns": {"discounts": "mine"}, "hidden_sizes": [8]}
    IQL("Pendulum-v1", eval_interval=0, output_dir="old", batch_size=8, **options).learn(total_timesteps=2)
    with pytest.raises(ConfigError, match=r"^dataset_columns\.discounts is for training on a dataset alone"):
        IQL.load("old", online_steps=4, output_dir="new").learn()


def test_a_full_replay_buffer_may_shrink_but_not_grow(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny: dict[str, Any] = {"learning_starts": 8, "batch_size": 8, "hidden_sizes": [8], "eval_interval": 0}
    DQN("CartPole-v1", output_dir="old", buffer_size=32, **tiny).learn(total_timesteps=48)
    with pytest.raises(ConfigError, match=r"with 40 rows is needed, but only 32 were saved; keep .* buffer_size"):
        DQN.load("old", buffer_size=40).learn(total_timesteps=8)
    smaller = DQN.load("old", buffer_size=16).learn(total_timesteps=8)
    assert [
        span for spans in read_checkpoint(smaller.agent.path).manifest.replay.values() for span in spans.values()
    ] == [(40, 56)]
    DQN("CartPole-v1", output_dir="part", buffer_size=64, **tiny).learn(total_timesteps=48)
    assert DQN.load("part", buffer_size=128).learn(total_timesteps=8).result is not None  # it was not yet full


def test_unknown_options_are_refused_by_load(trained):
    with pytest.raises(ConfigError, match="use learning_rate"):
        PPO.load(trained, lr=1e-5)
    with pytest.raises(ConfigError, match=r"custom_objects=.* is load\(path, learning_rate=1e-4\) here"):
        PPO.load(trained, custom_objects={"learning_rate": 1e-4})
    with pytest.raises(TypeError, match=r"load\(\) takes no config; pass the options that differ, such as learn"):
        PPO.load(trained, config=PPO("CartPole-v1").config)


def test_a_checkpoint_of_another_algorithm_is_refused(trained):
    config = DQN("CartPole-v1", output_dir="new", hidden_sizes=[8], eval_interval=0).config
    with pytest.raises(ConfigError, match="is a checkpoint of ppo, but the config has dqn"):
        train_dqn(config, checkpoint_state=trained)


def test_options_of_evaluation_hold_for_the_loaded_agent(trained):
    assert PPO.load(trained, eval_stochastic=True).agent.config.eval_stochastic
    assert not PPO.load(trained).agent.config.eval_stochastic


@pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")
def test_a_new_run_trains_in_the_environment_that_load_was_given_and_records_it(trained):
    agent = PPO.load(trained, env="CartPole-v0", output_dir="new").learn(total_timesteps=32)
    stored = yaml.safe_load(Path("new/config.yaml").read_text())
    assert (agent.config.env_id, stored["env_id"]) == ("CartPole-v0", "CartPole-v0")
    wrapped = PPO.load("new", wrappers=[NoReward], gamma=0.5).learn(total_timesteps=32)
    assert wrapped.evaluate(num_episodes=1)["return_mean"] == 0
    assert wrapped.config.env_wrappers == (f"{__name__}:NoReward",)
    unwrapped = PPO.load(wrapped.agent.path.parent.parent, env="CartPole-v1", wrappers=[], gamma=0.9)
    assert unwrapped.learn(total_timesteps=8).config.env_wrappers == ()


@pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")
def test_a_run_that_continues_trains_in_the_environment_that_load_was_given(trained):
    agent = PPO.load(trained, env="CartPole-v0", wrappers=[NoReward])
    agent.learn(total_timesteps=32)
    assert str(agent.config.environment()) == "CartPole-v0"
    assert agent.evaluate(num_episodes=1)["return_mean"] == 0
