"""Dict observations of an image and vectors: packed without loss, supported by Dreamer, refused by the others."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rl_training import BC, PPO, Dreamer, Memory, resume_training, save_transition_dataset
from rl_training.envs.group import EnvError
from rl_training.envs.making import make_env
from rl_training.envs.pool import EnvPool
from rl_training.envs.spaces import pack, parts_of
from rl_training.envs.spec import env_spec_of
from rl_training.experiment.agent import load_agent
from rl_training.experiment.config.train_config import ConfigError
from rl_training.experiment.dreams import dream
from rl_training.models.dreamer import SIZES, DreamerModel
from rl_training.models.two_hot import symlog
from rl_training.runtime.recipes import roll_dataset
from rl_training.types import EnvSpec

IMAGE, PAIR = spaces.Box(0, 255, (1, 16, 16), np.uint8), spaces.Box(-np.inf, np.inf, (2,), np.float64)
BOTH = spaces.Dict(word=PAIR, eye=IMAGE, pace=spaces.Box(-1, 1, (1,), np.float32))
PARTS = parts_of(BOTH)
SHORT: dict[str, Any] = {
    "size": "tiny", "total_timesteps": 300, "learning_starts": 100, "window": 8, "horizon": 4, "train_ratio": 16
}  # fmt: skip


def observations(rng: np.random.Generator, *lead: int) -> dict[str, Any]:
    image = rng.integers(256, size=(*lead, 1, 16, 16), dtype=np.uint8)
    return {"eye": image, "word": 1000 * rng.normal(size=(*lead, 2)), "pace": rng.normal(size=(*lead, 1))}


def test_the_image_comes_first_and_vectors_follow_by_name():
    assert [(part.name, part.shape, part.dtype, part.bytes) for part in PARTS] == [
        ("eye", (1, 16, 16), "uint8", 256), ("pace", (1,), "float32", 4), ("word", (2,), "float32", 8),
    ]  # fmt: skip


@pytest.mark.parametrize("side", [16, 15])  # 225 pixels are no whole number of floats
@pytest.mark.parametrize("lead", [(), (1, 1), (3,), (2, 5)])
def test_a_world_model_unpacks_every_bit(lead, side):
    parts = (PARTS[0]._replace(shape=(1, side, side)), *PARTS[1:])
    obs = observations(np.random.default_rng(0), *lead)
    obs["eye"] = obs["eye"][..., :side, :side]
    rows, pixels = pack(obs, parts), side * side
    assert (rows.shape, rows.dtype) == ((*lead, pixels + 12), np.uint8)
    model = DreamerModel(EnvSpec((pixels + 12,), "discrete", 2, "uint8", obs_parts=parts), SIZES["tiny"])
    scaled = model.scaled(torch.as_tensor(rows))
    assert model.images(scaled).equal(torch.as_tensor(obs["eye"]).float() / 255)
    numbers = np.concatenate([obs["pace"], obs["word"]], -1).astype(np.float32)
    assert scaled[..., pixels:].equal(symlog(torch.as_tensor(numbers)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"word": None}, r"obs must be a dict of eye, pace, word, got \['eye', 'pace'\]"),
        ({"word": np.zeros(3)}, r"word must end in shape \(2,\), got \(3,\)"),
        ({"word": np.array([0.0, np.inf])}, "word holds NaN or infinite values"),
        ({"eye": np.full((1, 16, 16), 300)}, r"eye is an image: its pixels must be in 0\.\.255"),
        ({"pace": np.zeros((4, 1))}, r"same leading shape, got eye of \(1, 16, 16\), pace of \(4, 1\)"),
    ],
)
def test_invalid_parts_are_refused_by_name(change, message):
    given = {**observations(np.random.default_rng(0)), **change}
    with pytest.raises(ValueError, match=message):
        pack({name: value for name, value in given.items() if value is not None}, PARTS)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Dict(x=PAIR), spaces.Dict(x=IMAGE), spaces.Dict(x=IMAGE, y=IMAGE, z=PAIR),
        spaces.Dict(x=spaces.Box(0, 255, (9,), np.uint8), y=PAIR), spaces.Dict(x=IMAGE, y=spaces.Discrete(3)),
        spaces.Dict(x=IMAGE, y=spaces.Box(-1, 1, (0,))),
    ],
)  # fmt: skip
def test_other_dicts_are_refused(space):
    with pytest.raises(TypeError, match="a Dict observation must hold"):
        parts_of(space)


def test_a_spec_of_parts_survives_json():
    spec = env_spec_of(make_env("SignedSide-v0", {}))
    assert (spec.obs_shape, spec.obs_dtype, len(spec.obs_parts)) == ((260,), "uint8", 2)
    assert EnvSpec.from_json(spec.to_json()) == spec


def test_nan_is_detected_before_packing():
    def broken() -> gym.Env[Any, Any]:
        env = gym.make("SignedSide-v0", disable_env_checker=True)
        return gym.wrappers.TransformObservation(env, lambda obs: {**obs, "sign": [math.nan]}, env.observation_space)

    with (
        EnvPool(broken) as pool,
        pytest.raises(EnvError, match=r"environment 0 .*sign holds NaN or infinite values"),
    ):
        pool.reset()


def test_other_algorithms_and_datasets_refuse_dict_observations(tmp_path):
    with pytest.raises(TypeError, match=r"ppo needs a Box observation space, got a Dict of side, sign\. Use dreamer"):
        PPO("SignedSide-v0", output_dir=str(tmp_path / "ppo")).learn()
    with pytest.raises(TypeError, match="datasets need Box observations, but SignedSide-v0 has a Dict"):
        roll_dataset("SignedSide-v0", rows=10)
    save_transition_dataset(roll_dataset("CartPole-v1", rows=10), tmp_path / "rows.npz")
    with pytest.raises(TypeError, match=r"datasets need Box .*, but the environment has a Dict of side, sign; wrap"):
        BC("SignedSide-v0", dataset=str(tmp_path / "rows.npz"), output_dir=str(tmp_path / "bc")).learn()


def test_a_run_cannot_be_resumed_after_its_dict_has_changed(tmp_path):
    """Renaming a vector changes the order of the packed bytes but not their number."""
    names = ["sign", "ahead"]

    class Renamed(gym.Wrapper[Any, Any, Any, Any]):
        def __init__(self) -> None:
            super().__init__(gym.make("SignedSide-v0", disable_env_checker=True))
            number = spaces.Box(-1, 1, (1,), np.float32)
            self.observation_space = spaces.Dict({"side": IMAGE, **dict.fromkeys(names, number)})

        def reset(self, **options: Any) -> Any:
            obs, info = self.env.reset(**options)
            return {"side": obs["side"], **dict.fromkeys(names, obs["sign"])}, info

        def step(self, action: Any) -> Any:
            obs, *rest = self.env.step(action)
            return {"side": obs["side"], **dict.fromkeys(names, obs["sign"])}, *rest

    gym.register("Renamed-v0", lambda **_: Renamed())
    Dreamer("Renamed-v0", output_dir=str(tmp_path / "run"), **{**SHORT, "total_timesteps": 40}).learn()
    names[1] = "word"
    with pytest.raises(ConfigError, match=r"had side \(1, 16, 16\), ahead \(1,\), sign \(1,\) when this run started"):
        resume_training(tmp_path / "run", total_timesteps=60)


def test_dreamer_trains_predicts_and_dreams_on_dict_observations(tmp_path):
    agent = Dreamer("SignedSide-v0", output_dir=str(tmp_path / "run"), **SHORT).learn()
    obs = {"side": np.zeros((3, 1, 16, 16), np.uint8), "sign": np.ones((3, 1))}
    assert agent.predict(obs, memory=Memory()).shape == (3,)
    with pytest.raises(ValueError, match="obs must be a dict of side, sign, got ndarray"):
        agent.predict(np.zeros(260, np.uint8))
    dreams = dream(load_agent(tmp_path / "run"), context=1, steps=1, episodes=4)
    assert dreams.truth.shape == dreams.prediction.shape == (4, 2, 1, 16, 16)
