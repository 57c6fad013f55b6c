"""Trains with stable-baselines3, or with sbx, which has the same options. Needs the Python of the peer's venv."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
from marks import Marks, answer, request
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack

NAMES = {
    "collect_steps": "train_freq", "updates_per_collect": "gradient_steps", "epsilon_end": "exploration_final_eps",
    "num_steps": "n_steps", "epochs": "n_epochs", "entropy_weight": "ent_coef", "value_weight": "vf_coef",
}  # fmt: skip
LIBRARIES = {"sb3": "stable_baselines3", "sbx": "sbx"}


def main() -> None:
    asked = request()
    library = importlib.import_module(LIBRARIES[asked["library"]])
    env = (atari if asked["images"] else vectors)(asked["env"], asked["num_envs"])
    options = renamed(asked["options"], env.action_space)
    if asked["images"]:
        options.pop("policy_kwargs")  # by default, the networks of the papers
    if asked["library"] == "sb3":
        options["device"] = "cpu"
    elif asked["algo"] == "dqn":
        options.pop("max_grad_norm")  # its DQN does not clip
    policy = "CnnPolicy" if asked["images"] else "MlpPolicy"
    model = getattr(library, asked["algo"].upper())(policy, env, seed=asked["seed"], **options)
    marks = Marks(asked["warm_up"])
    model.learn(asked["steps"], callback=callback(marks))
    marks.mark(model.num_timesteps)
    answer(marks, library, gymnasium, np, *backend(asked["library"]))


def vectors(env_id: str, count: int) -> VecEnv:
    return make_vec_env(env_id, count, env_kwargs={"disable_env_checker": True})


def atari(env_id: str, count: int) -> VecEnv:
    gymnasium.register_envs(importlib.import_module("ale_py"))
    return VecFrameStack(make_atari_env(env_id, count), 4)


def renamed(options: dict[str, Any], actions: gymnasium.Space[Any]) -> dict[str, Any]:
    found = {NAMES.get(name, name): value for name, value in options.items()}
    found["policy_kwargs"] = {"net_arch": found.pop("hidden_sizes")}
    if (interval := found.pop("target_interval", None)) is not None:  # in updates here, in steps there
        found["target_update_interval"] = interval * found["train_freq"] // found["gradient_steps"]
    if (scale := found.pop("action_noise_scale", None)) is not None:
        found["action_noise"] = NormalActionNoise(np.zeros(actions.shape), np.full(actions.shape, scale))
    return found


def backend(library: str) -> tuple[ModuleType, ...]:
    module = importlib.import_module("jax" if library == "sbx" else "torch")
    if library == "sb3":
        module.set_num_threads(1)
    return (module,)


def callback(marks: Marks) -> BaseCallback:
    class MarkSteps(BaseCallback):
        def _on_step(self) -> bool:
            marks.mark(self.num_timesteps)
            return True

    return MarkSteps()


if __name__ == "__main__":
    main()
