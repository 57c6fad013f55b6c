"""Trains PPO in a vectorised simulator of your own: many environments as one batch of tensors, on a CPU or a GPU.

python examples/own_simulator.py
cd examples; rl-training train ppo own_simulator:Carts --set env_backend=device --set num_envs=64 --steps 60000
"""

import argparse

import torch
from torch import Tensor

from rl_training import PPO
from rl_training.envs.device.simulator import SimulatorStep, VectorSimulator
from rl_training.types import EnvSpec


class Carts(VectorSimulator):
    """Carts on rails, each pushed with a force in [-2, 2]. They are to stop in the middle; leaving the rail ends it."""

    spec = EnvSpec((2,), "box", 1, action_shape=(1,), action_low=(-2.0,), action_high=(2.0,))
    limit = 100  # steps of an episode

    def __init__(self, num_envs: int, device: str = "cpu") -> None:
        self.num_envs, self.random = num_envs, torch.Generator(device)
        self.carts = torch.zeros(num_envs, 2, device=device)  # position and velocity
        self.steps = torch.zeros(num_envs, dtype=torch.int64, device=device)

    def reset(self, seed: int) -> Tensor:
        self.random.manual_seed(seed)
        self._start(torch.ones_like(self.steps, dtype=torch.bool))
        return self.carts

    def step(self, actions: Tensor) -> SimulatorStep:
        self.carts[:, 1] += 0.1 * actions[:, 0]
        self.carts[:, 0] += 0.1 * self.carts[:, 1]
        self.steps += 1
        rewards = 1 - self.carts.square().sum(1)
        terminated, truncated = self.carts[:, 0].abs() > 2, self.steps >= self.limit
        last = self.carts.clone()
        self._start(terminated | truncated)
        return SimulatorStep(self.carts, rewards, terminated, truncated, last)

    def _start(self, ended: Tensor) -> None:
        first = torch.rand(self.carts.shape, generator=self.random, device=self.carts.device) * 2 - 1
        self.carts = torch.where(ended.unsqueeze(1), first, self.carts)
        self.steps *= ~ended

    def state(self) -> dict[str, Tensor]:  # optional: with these two, a resumed run continues exactly
        return {"carts": self.carts, "steps": self.steps, "random": self.random.get_state()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.carts.copy_(state["carts"])
        self.steps.copy_(state["steps"])
        self.random.set_state(state["random"].cpu())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60_000)
    agent = PPO(
        Carts, env_backend="device", num_envs=64, total_timesteps=parser.parse_args().steps, output_dir="runs/carts",
        algo_kwargs={"num_steps": 32, "batch_size": 512, "learning_rate": 0.002, "epochs": 5, "gae_lambda": 0.9},
    ).learn()  # fmt: skip
    print(f"return {agent.evaluate(num_episodes=10)['return_mean']:.1f} of 100 at most")
