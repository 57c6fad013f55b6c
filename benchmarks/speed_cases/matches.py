"""Settings of the trainings that `speed.py trainings` compares, in the option names of rl_training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from peers import CARTPOLE_PPO, DQN, SAC, ppo

ONLINE_PEERS = ("sb3", "sbx", "tianshou")
IMAGE_PEERS = ("sb3",)
OFFLINE_PEERS = ("d3rlpy",)


@dataclass(frozen=True)
class SpeedMatch:
    what: str
    algo: str
    options: dict[str, Any]
    steps: int
    warm_up: int  # steps before the measured ones, enough for compilers and tracers of all libraries
    env: str | None = None  # None: from a dataset
    num_envs: int = 1
    images: bool = False

    @property
    def peers(self) -> tuple[str, ...]:
        if self.env is None:
            return OFFLINE_PEERS
        return IMAGE_PEERS if self.images else ONLINE_PEERS

    def scaled(self, factor: float) -> SpeedMatch:
        from dataclasses import replace

        return replace(self, steps=self.warm_up + round(factor * (self.steps - self.warm_up)))


NETWORK = {"hidden_sizes": [256, 256]}
HOPPER = {**SAC, **NETWORK, "learning_rate": 3e-4, "learning_starts": 500}
OFFLINE = {**NETWORK, "batch_size": 256, "learning_rate": 3e-4, "gamma": 0.99}
BREAKOUT = "BreakoutNoFrameskip-v4"
BREAKOUT_DQN = {  # of RL Zoo, with shorter starts; the packaged config dqn/breakout_atari
    "learning_rate": 1e-4, "batch_size": 32, "buffer_size": 10_000, "learning_starts": 500, "collect_steps": 4,
    "updates_per_collect": 1, "target_interval": 250, "epsilon_end": 0.01, "exploration_fraction": 0.1,
    "max_grad_norm": 10.0, "hidden_sizes": [512],
}  # fmt: skip
BREAKOUT_PPO = {  # of RL Zoo, with constant rates; the packaged config ppo/breakout_atari
    "learning_rate": 2.5e-4, "num_steps": 128, "batch_size": 256, "epochs": 4, "gamma": 0.99, "gae_lambda": 0.95,
    "clip_range": 0.1, "entropy_weight": 0.01, "value_weight": 0.5, "max_grad_norm": 0.5, "hidden_sizes": [],
}  # fmt: skip

MATCHES = {
    "sac_hopper": SpeedMatch("SAC on Hopper-v5", "sac", HOPPER, 3_000, 1_500, "Hopper-v5"),
    "sac_pendulum": SpeedMatch("SAC on Pendulum-v1", "sac", {**SAC, **NETWORK}, 2_500, 1_200, "Pendulum-v1"),
    "td3_hopper": SpeedMatch(
        "TD3 on Hopper-v5", "td3", {**HOPPER, "action_noise_scale": 0.1}, 4_000, 2_000, "Hopper-v5"
    ),
    "dqn_cartpole": SpeedMatch(
        "DQN on CartPole-v1, 128 updates after 256 steps", "dqn", DQN, 25_600, 10_240, "CartPole-v1"
    ),
    "ppo_cartpole": SpeedMatch(
        "PPO on CartPole-v1, 8 environments", "ppo", ppo(CARTPOLE_PPO), 61_440, 20_480, "CartPole-v1", num_envs=8
    ),
    "dqn_breakout": SpeedMatch(
        "DQN on Breakout, from images", "dqn", BREAKOUT_DQN, 4_500, 1_500, BREAKOUT, images=True
    ),
    "ppo_breakout": SpeedMatch(
        "PPO on Breakout, from images, 8 environments", "ppo", BREAKOUT_PPO, 5_120, 2_048, BREAKOUT, 8, images=True
    ),
    "iql": SpeedMatch("IQL from 100,000 rows", "iql", OFFLINE, 2_500, 900),
    "cql": SpeedMatch("CQL from 100,000 rows", "cql", {**OFFLINE, "actor_learning_rate": 1e-4}, 450, 250),
    "td3_bc": SpeedMatch("TD3+BC from 100,000 rows", "td3_bc", {**OFFLINE, "normalize_obs": True}, 2_500, 900),
}
