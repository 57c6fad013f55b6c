"""The environment boundary: which environments are converted, what is refused, and runs of earlier versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation

from rl_training import TransitionDataset, load_transition_dataset
from rl_training.data.spaces import observations_of
from rl_training.envs import spaces as boundary
from rl_training.envs.creation.making import make_env, spec_of
from rl_training.envs.pools.pool import EnvPool
from rl_training.envs.spaces import LibrarySpaces, with_library_spaces
from rl_training.envs.spec import env_spec_of
from rl_training.experiment.agent import load_agent
from rl_training.experiment.collection import collect_dataset
from rl_training.experiment.config.train_config import ConfigError, parse_config
from rl_training.experiment.run import resume_run, run_training
from rl_training.experiment.verify import compare_runs
from rl_training.runtime.callbacks.training import StopAtStep
from rl_training.types import EnvSpec

VECTOR, CHOICE = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)
SMALL = {"hidden_sizes": [8], "batch_size": 8, "learning_starts": 10}


class Spaces(gym.Env[Any, Any]):
    def __init__(self, obs: spaces.Space[Any] = VECTOR, actions: spaces.Space[Any] = CHOICE) -> None:
        self.observation_space, self.action_space = obs, actions

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 1.0, bool(self.np_random.integers(5) == 0), False, {}


class Matrix(Spaces):
    def __init__(self) -> None:
        super().__init__(spaces.Box(-1, 1, (2, 3), np.float32))


class Choices(Spaces):
    """Spaces of the same length as FrozenLake's."""

    def __init__(self) -> None:
        super().__init__(spaces.MultiDiscrete([6, 10]), spaces.Discrete(4))


class Planes(Spaces):
    """Read as [height, width, channels], but earlier versions took it for [channels, height, width]."""

    def __init__(self) -> None:
        super().__init__(spaces.Box(0, 255, (8, 8, 6), np.uint8))


@pytest.fixture(autouse=True)
def _registered() -> Any:
    for name, env_class in {"Matrix-v0": Matrix, "Planes-v0": Planes, "Choices-v0": Choices}.items():
        gym.register(name, lambda env_class=env_class, **_: env_class())
    yield
    for name in ("Matrix-v0", "Planes-v0", "Choices-v0"):
        del gym.registry[name]


def spec_for(obs: spaces.Space[Any] = VECTOR, actions: spaces.Space[Any] = CHOICE) -> EnvSpec:
    return env_spec_of(with_library_spaces(Spaces(obs, actions)))


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "Catch-v0", "Hopper-v5", "ALE/Pong-v5"])
def test_plain_environments_are_not_wrapped(env_id):
    pytest.importorskip("mujoco" if env_id == "Hopper-v5" else "ale_py" if "ALE" in env_id else "gymnasium")
    env = make_env(env_id, {})
    assert not isinstance(env, LibrarySpaces)
    assert {"obs_space", "action_space"}.isdisjoint(env_spec_of(env).to_json())


@pytest.mark.parametrize(
    ("obs", "message"),
    [
        (spaces.Sequence(CHOICE), "Sequence.* is not supported; wrap .* gymnasium.wrappers.TransformObservation"),
        (spaces.Dict(a=VECTOR, b=spaces.Sequence(CHOICE)), "Sequence.* is not supported"),
        (spaces.Box(-1, 1, (0,)), "Box.* is not supported"),
        (spaces.Text(5), "has nothing to learn from; wrap"),
    ],
)
def test_other_observations_are_refused_with_the_wrapper_that_helps(obs, message):
    with pytest.raises(TypeError, match=message):
        spec_for(obs)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (spaces.Dict(a=VECTOR, b=CHOICE), "numbers .* or choices .*, not both, got Dict.*wrappers.TransformAction"),
        (spaces.Box(0, 5000, (2,), np.int64), "at most 1024 values, got Box.*TransformAction"),
        (spaces.Box(-(2**63), 2**63 - 1, (2,), np.int64), "at most 1024 values"),
        (spaces.Sequence(CHOICE), "Sequence.* is not supported; wrap .*TransformAction"),
        (spaces.Tuple([]), "must be numbers"),
        (spaces.Box(-1, 1, (0,)), "has no entries; wrap .*TransformAction"),
    ],
)
def test_other_actions_are_refused_with_the_wrapper_that_helps(actions, message):
    with pytest.raises(TypeError, match=message):
        spec_for(actions=actions)


def test_infinite_bounds_get_the_documented_range():
    low, high = np.array([-np.inf, -np.inf, 3, -4], np.float32), np.array([np.inf, 5, np.inf, 4], np.float32)
    env: Any = with_library_spaces(Spaces(actions=spaces.Box(low, high)))
    spec = env_spec_of(env)
    assert (spec.action_low, spec.action_high) == ((-1, 3, 3, -4), (1, 5, 5, 4))
    assert env.notes == ["3 of 4 action bounds are infinite; actions are limited to [-1, 1], [3, 5] there"]


def test_a_run_keeps_the_range_that_it_started_with():
    box = spaces.Box(-np.inf, np.inf, (1,))
    began = EnvSpec((2,), "box", 1, action_shape=(1,), action_low=(-7.0,), action_high=(7.0,))
    spec = env_spec_of(with_library_spaces(Spaces(actions=box), began))
    assert (spec.action_low, spec.action_high) == ((-7,), (7,))


def test_the_config_sets_another_range_for_infinite_bounds(tmp_path):
    gym.register("Unbounded-v0", lambda **_: Spaces(actions=spaces.Box(-np.inf, np.inf, (2,))))
    values = {
        "algo": "ppo",
        "env_id": "Unbounded-v0",
        "total_timesteps": 16,
        "output_dir": str(tmp_path / "run"),
        "eval_episodes": 1,
        "action_range": [[-2, -3], 5],
        "algo_kwargs": {"batch_size": 8, "num_steps": 8},
    }
    run_training(parse_config(values), warn=lambda text: None)
    agent = load_agent(tmp_path / "run")
    assert (agent.spec.action_low, agent.spec.action_high) == ((-2, -3), (5, 5))
    assert len(agent.evaluate(1)["returns"]) == 1
    with pytest.raises(ValueError, match="action_range has 3 bounds, the actions have 2 dimensions"):
        run_training(parse_config({**values, "action_range": [[1, 2, 3], 5], "output_dir": str(tmp_path / "wrong")}))
    with pytest.raises(ConfigError, match=r"is for infinite action bounds, and those of Pend.* are finite"):
        run_training(parse_config({**values, "env_id": "Pendulum-v1", "output_dir": str(tmp_path / "finite")}))
    del gym.registry["Unbounded-v0"]


def test_a_single_choice_is_a_discrete_action():
    spec = spec_for(actions=spaces.Dict(a=spaces.Discrete(4, start=2)))
    assert (spec.action_kind, spec.action_dim, spec.action_start) == ("discrete", 4, 2)


def test_text_is_left_out_with_one_warning(tmp_path):
    space = spaces.Dict(x=VECTOR, deep=spaces.Tuple([spaces.Text(4), CHOICE]))
    gym.register("Words-v0", lambda **_: Spaces(space))
    warnings: list[str] = []
    config = {"algo": "ppo", "env_id": "Words-v0", "total_timesteps": 32, "output_dir": str(tmp_path), "num_envs": 2,
              "eval_episodes": 1, "algo_kwargs": {"num_steps": 8, "batch_size": 8}}  # fmt: skip
    run_training(parse_config(config), warn=warnings.append)
    assert warnings.count("text in observations is left out: deep/0") == 1
    agent = load_agent(tmp_path)
    assert agent.spec.obs_shape == (4,)
    assert agent.predict({"x": [0, 1], "deep": ("word", 1)}) in (0, 1)
    assert agent.predict({"x": [0, 1], "deep": ("", 1)}) in (0, 1)


def config(env_id: str, folder: Path, **changes: Any) -> Any:
    return parse_config({"algo": "dqn", "env_id": env_id, "total_timesteps": 60, "eval_interval": 30,
                         "eval_episodes": 1, "output_dir": str(folder), "algo_kwargs": SMALL, **changes})  # fmt: skip


@pytest.mark.parametrize("env_id", ["Matrix-v0", "Planes-v0"])
def test_runs_of_earlier_versions_keep_the_form_of_their_observations(env_id, tmp_path, monkeypatch):
    with monkeypatch.context() as earlier:
        earlier.setattr(boundary, "_is_plain", lambda space: True)
        run_training(config(env_id, tmp_path / "whole"))
        run_training(config(env_id, tmp_path / "halved"), callbacks=[StopAtStep(35)])
    shape = env_spec_of(make_env(env_id, {})).obs_shape
    assert load_agent(tmp_path / "whole").spec.obs_shape != shape
    resume_run(tmp_path / "halved")
    assert compare_runs(tmp_path / "whole", tmp_path / "halved") == []
    assert len(load_agent(tmp_path / "whole").evaluate(2)["returns"]) == 2
    collected = collect_dataset(str(tmp_path / "whole"), rows=20, epsilon=0.5).dataset
    assert collected.spec.obs_shape == load_agent(tmp_path / "whole").spec.obs_shape


def test_an_agent_is_not_evaluated_in_another_space_of_the_same_length(tmp_path):
    agent = run_training(config("FrozenLake-v1", tmp_path)).run_dir
    with pytest.raises(ValueError, match=r"has the observation space .*MultiDiscrete.*, but the agent was trained for"):
        collect_dataset(str(agent), env_id="Choices-v0", rows=10)


@pytest.mark.usefixtures("forked_workers")
def test_a_converted_environment_in_a_worker_resumes_exactly(tmp_path):
    options = {"num_envs": 2, "env_workers": 1}
    run_training(config("FrozenLake-v1", tmp_path / "whole", **options))
    run_training(config("FrozenLake-v1", tmp_path / "halved", **options), callbacks=[StopAtStep(36)])
    warnings: list[str] = []
    resume_run(tmp_path / "halved", warn=warnings.append)
    assert warnings == []
    assert compare_runs(tmp_path / "whole", tmp_path / "halved") == []


def test_snapshots_stay_exact_behind_the_boundary():
    gym.register("Stacked-v0", lambda **_: FrameStackObservation(gym.make("Pendulum-v1", disable_env_checker=True), 3))
    actions = np.random.default_rng(0).uniform(-1, 1, (30, 1, 1)).astype(np.float32)
    with EnvPool("Stacked-v0") as pool, EnvPool("Stacked-v0") as fresh:
        assert (pool.resume_kind, pool.spec.obs_shape) == ("snapshot", (9,))
        pool.reset()
        for row in actions[:20]:
            pool.step(row)
        assert fresh.restore(pool.snapshot()) == []
        for row in actions[20:]:
            np.testing.assert_array_equal(pool.step(row).obs, fresh.step(row).obs)
    del gym.registry["Stacked-v0"]


def test_a_run_is_not_resumed_after_its_spaces_have_changed(tmp_path):
    held: dict[str, Any] = {"obs": spaces.Discrete(5), "actions": CHOICE}
    gym.register("Changing-v0", lambda **_: Spaces(**held))
    run_training(config("Changing-v0", tmp_path), callbacks=[StopAtStep(20)])
    held["obs"] = spaces.MultiDiscrete([2, 3])  # of the same length
    with pytest.raises(
        ConfigError, match=r'the observation space was .*"Discrete".* when this run started, and is .*Multi'
    ):
        resume_run(tmp_path)
    del gym.registry["Changing-v0"]


@pytest.mark.parametrize("suffix", [".npz", ".parquet", ""])
def test_collected_data_train_offline_and_convert_back(suffix, tmp_path):
    from rl_training.data import save_transition_dataset

    collected = collect_dataset("random", env_id="FrozenLake-v1", rows=300, seed=1).dataset
    save_transition_dataset(collected, tmp_path / f"lake{suffix}")
    spec = spec_of("FrozenLake-v1", {})
    dataset = load_transition_dataset(str(tmp_path / f"lake{suffix}"), spec=spec)
    assert dataset.columns["obs"].equal(collected.columns["obs"])
    converter = observations_of(dataset.spec)
    assert converter is not None
    states = converter.own(dataset.columns["obs"].numpy())
    assert (states.dtype, states.shape, states.min(), states[0]) == (np.int64, (len(dataset),), 0, 0)
    run = run_training(parse_config({
        "algo": "cql", "env_id": "FrozenLake-v1", "dataset": str(tmp_path / f"lake{suffix}"), "total_timesteps": 40,
        "output_dir": str(tmp_path / "run"), "algo_kwargs": {"hidden_sizes": [8], "batch_size": 8}, "eval_episodes": 1,
    }))  # fmt: skip
    agent = load_agent(run.run_dir)
    assert agent.predict([0, 5, 15]).shape == (3,)
    assert len(agent.evaluate(3)["returns"]) == 3


@pytest.mark.parametrize("dtype", [np.int64, np.float32])  # tables store integers as floats
def test_data_in_the_form_of_the_environment_are_converted(dtype):
    states = np.array([0, 4, 8], dtype)
    rows: Any = {"obs": states, "next_obs": states + 1, "actions": [1, 1, 2], "rewards": [0, 0, 0], "dones": [0, 0, 1]}
    dataset = TransitionDataset.from_dict(rows, spec=spec_of("FrozenLake-v1", {}))
    assert dataset.columns["obs"].argmax(-1).tolist() == [0, 4, 8]
    assert dataset.columns["next_obs"].argmax(-1).tolist() == [1, 5, 9]
    with pytest.raises(ValueError, match="obs must hold integers from 0 to 15, got"):
        TransitionDataset.from_dict({**rows, "obs": states + 10}, spec=spec_of("FrozenLake-v1", {}))
