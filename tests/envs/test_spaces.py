"""Dict observations of images and vectors: packed without loss, unpacked by the networks."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rl_training import BC, DQN, PPO, Dreamer, Memory, resume_training, save_transition_dataset
from rl_training.data.spaces import observations_of
from rl_training.envs.creation.making import make_env
from rl_training.envs.pools.group import EnvError
from rl_training.envs.pools.pool import EnvPool
from rl_training.envs.spec import env_spec_of
from rl_training.experiment.agent import load_agent
from rl_training.experiment.config.train_config import ConfigError, TrainConfig, parse_config
from rl_training.experiment.dreams import dream
from rl_training.experiment.run import run_population
from rl_training.models.dreamer import SIZES, DreamerModel
from rl_training.models.encoders import PartsEncoder, encoder_for
from rl_training.models.two_hot import symlog
from rl_training.runtime.recipes import roll_dataset
from rl_training.types import EnvSpec, ObsPart

IMAGE, PAIR = spaces.Box(0, 255, (1, 16, 16), np.uint8), spaces.Box(-np.inf, np.inf, (2,), np.float64)
BOTH = spaces.Dict(word=PAIR, eye=IMAGE, pace=spaces.Box(-1, 1, (1,), np.float32))
PARTS = (ObsPart("eye", (1, 16, 16), "uint8"), ObsPart("pace", (1,), "float32"), ObsPart("word", (2,), "float32"))
SHORT: dict[str, Any] = {
    "size": "tiny", "total_timesteps": 140, "learning_starts": 100, "window": 8, "horizon": 4, "train_ratio": 16
}  # fmt: skip


def observations(rng: np.random.Generator, *lead: int) -> dict[str, Any]:
    image = rng.integers(256, size=(*lead, 1, 16, 16), dtype=np.uint8)
    return {"eye": image, "word": 1000 * rng.normal(size=(*lead, 2)), "pace": rng.normal(size=(*lead, 1))}


def spec_of(parts: tuple[ObsPart, ...]) -> EnvSpec:
    return EnvSpec((sum(part.bytes for part in parts),), "discrete", 2, "uint8", obs_parts=parts)


def pack(obs: Any, parts: tuple[ObsPart, ...] = PARTS) -> np.ndarray:
    converter = observations_of(spec_of(parts))
    assert converter is not None
    return converter.rows(obs)


def test_images_come_first_and_vectors_follow_by_name():
    class Both(gym.Env[Any, Any]):
        observation_space, action_space = BOTH, spaces.Discrete(2)

    spec = env_spec_of(make_env(Both, {}))
    assert (spec.obs_parts, spec.obs_shape, spec.obs_dtype) == (PARTS, (268,), "uint8")
    assert spec == spec_of(PARTS)  # nothing more is stored, as in earlier versions


@pytest.mark.parametrize("side", [16, 15])  # 225 pixels are no whole number of floats
@pytest.mark.parametrize("lead", [(), (1, 1), (3,), (2, 5)])
def test_a_world_model_unpacks_every_bit(lead, side):
    parts = (PARTS[0]._replace(shape=(1, side, side)), *PARTS[1:])
    obs = observations(np.random.default_rng(0), *lead)
    obs["eye"] = obs["eye"][..., :side, :side]
    rows, pixels = pack(obs, parts), side * side
    assert (rows.shape, rows.dtype) == ((*lead, pixels + 12), np.dtype(np.uint8))
    model = DreamerModel(spec_of(parts), SIZES["tiny"])
    scaled = model.scaled(torch.as_tensor(rows))
    assert model.images(scaled).equal(torch.as_tensor(obs["eye"]).float() / 255)
    numbers = np.concatenate([obs["pace"], obs["word"]], -1).astype(np.float32)
    assert scaled[..., pixels:].equal(symlog(torch.as_tensor(numbers)))


@pytest.mark.parametrize("side", [16, 15])
def test_the_encoder_of_other_algorithms_gives_image_features_and_every_bit_of_the_vectors(side):
    parts = (PARTS[0]._replace(shape=(1, side, side)), PARTS[0]._replace(name="second", shape=(3, 40, 40)), *PARTS[1:])
    obs = observations(np.random.default_rng(0), 4)
    obs["eye"], obs["second"] = obs["eye"][..., :side, :side], np.full((4, 3, 40, 40), 7, np.uint8)
    encoder, features = encoder_for(spec_of(parts))
    encoded = encoder(torch.as_tensor(pack(obs, parts)))
    assert encoded.shape == (4, features) == (4, 128 + 512 + 3)
    assert isinstance(encoder, PartsEncoder)
    first, second = encoder.images
    assert encoded[:, :128].equal(first(torch.as_tensor(obs["eye"])))
    assert encoded[:, 128:640].equal(second(torch.as_tensor(obs["second"])))
    numbers = np.concatenate([obs["pace"], obs["word"]], -1).astype(np.float32)
    assert encoded[:, 640:].equal(torch.as_tensor(numbers))


def test_dreamer_stacks_images_of_one_size_and_refuses_others():
    parts = (PARTS[0], PARTS[0]._replace(name="second", shape=(3, 16, 16)), PARTS[1])
    obs = {"eye": np.full((1, 16, 16), 51, np.uint8), "second": np.full((3, 16, 16), 255, np.uint8), "pace": [1.0]}
    model = DreamerModel(spec_of(parts), SIZES["tiny"])
    images = model.images(model.scaled(torch.as_tensor(pack(obs, parts))))
    assert images.mean((1, 2)).tolist() == pytest.approx([0.2, 1, 1, 1])
    with pytest.raises(TypeError, match=r"dreamer needs images of one size, got \(1, 16, 16\), \(3, 8, 8\); resize"):
        DreamerModel(spec_of((PARTS[0], parts[1]._replace(shape=(3, 8, 8)))), SIZES["tiny"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"word": None}, r"obs must be a dict of eye, pace, word, got \['eye', 'pace'\]"),
        ({"word": np.zeros(3)}, r"word must end in shape \(2,\), got \(3,\)"),
        ({"word": np.array([0.0, np.inf])}, "word holds NaN or infinite values"),
        ({"eye": np.full((1, 16, 16), 300)}, r"eye is an image: its pixels must be integers in 0\.\.255"),
        ({"pace": np.zeros((4, 1))}, r"same leading shape, got eye of \(1, 16, 16\), pace of \(4, 1\)"),
    ],
)
def test_invalid_parts_are_refused_by_name(change, message):
    given = {**observations(np.random.default_rng(0)), **change}
    with pytest.raises(ValueError, match=message):
        pack({name: value for name, value in given.items() if value is not None})


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


def test_datasets_and_normalisation_refuse_images_beside_vectors(tmp_path):
    for algorithm in (PPO, DQN):
        with pytest.raises(ValueError, match="normalize_obs is for vectors only"):
            algorithm("SignedSide-v0", normalize_obs=True, output_dir=str(tmp_path / algorithm.__name__)).learn()
    with pytest.raises(TypeError, match="datasets cannot hold images beside other parts, but Signed"):
        roll_dataset("SignedSide-v0", rows=10)
    save_transition_dataset(roll_dataset("CartPole-v1", rows=10), tmp_path / "rows.npz")
    with pytest.raises(TypeError, match=r"but the environment has side, sign; keep .*FilterObservation"):
        BC("SignedSide-v0", dataset=str(tmp_path / "rows.npz"), output_dir=str(tmp_path / "bc")).learn()


def test_a_population_of_dqn_learns_from_an_image_and_a_vector(tmp_path):
    """Updates of a population are vmapped, and so is the unpacking of the bytes."""
    options = {"total_timesteps": 400, "learning_starts": 50, "hidden_sizes": [32], "eval_interval": 0, "batch_size": 8}
    runs = [
        parse_config({"algo": "dqn", "env_id": "SignedSide-v0", "seed": seed, "output_dir": str(tmp_path / str(seed)),
                      **{k: v for k, v in options.items() if k in TrainConfig.model_fields},
                      "algo_kwargs": {k: v for k, v in options.items() if k not in TrainConfig.model_fields}})
        for seed in (0, 1)
    ]  # fmt: skip
    results = run_population(runs)
    assert results[0].updates == results[1].updates > 0


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
