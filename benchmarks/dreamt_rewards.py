"""What a Dreamer is paid, and what it expects: after each frame it has seen, and in dreams from there on.

python benchmarks/dreamt_rewards.py RUN [--episodes 4] [--steps 1800] [--device cuda]

Dreams that promise far more than is paid are where a policy learns what does not work. What an episode's last step pays
is not counted: no frame that is acted on comes with it.
"""

from __future__ import annotations

import argparse
import json
from typing import cast

import numpy as np
import torch
from torch import Tensor

from rl_training import streams
from rl_training.algorithms import DreamerAlgorithm
from rl_training.envs.pool import EnvPool
from rl_training.experiment.agent import Agent, load_agent
from rl_training.models.rssm import Latent
from rl_training.runtime.memory import Memory

AHEAD = (1, 2, 4, 8, 15)  # steps of a dream that are told of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--episodes", type=int, default=4, help="played side by side, at any time")
    parser.add_argument("--steps", type=int, default=1_800, help="of each, through one episode after another")
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    agent = load_agent(asked.run, device=asked.device)
    print(json.dumps(expected(agent, *play(agent, asked.episodes, asked.steps)), indent=2))


@torch.no_grad()
def play(agent: Agent, episodes: int, steps: int, seed: int = 77) -> tuple[Latent, Tensor]:
    """What is believed at each frame [time, episodes, ...], and what was paid on arriving there; drawn actions."""
    device = next(agent.learner.parameters()).device
    generator, memory = streams.generator(seed, "dream", device=device), Memory()
    paid = np.zeros(episodes, np.float32)
    deters, stochs, rewards = [], [], []
    with EnvPool(str(agent.config.env_id), episodes, seed=seed, env_kwargs=agent.config.env_kwargs) as pool:
        pool.reset()
        for _ in range(steps):
            action = agent.learner.act(torch.as_tensor(pool.obs).to(device), memory.rows, generator=generator)
            deters.append(action.memory["deter"])
            stochs.append(action.memory["stoch"])
            rewards.append(torch.as_tensor(paid, device=device))
            moved = pool.step(action.actions.cpu().numpy())
            ended = moved.terminated | moved.truncated
            memory.keep(action, ended)
            paid = np.where(ended, 0, moved.rewards).astype(np.float32)  # a first frame is paid nothing
    return cast(DreamerAlgorithm, agent.learner).restored(torch.stack(deters), torch.stack(stochs)), torch.stack(
        rewards
    )


@torch.no_grad()
def expected(agent: Agent, latents: Latent, paid: Tensor) -> dict[str, object]:
    model, features = cast(DreamerAlgorithm, agent.learner).model, latents.features
    seen = model.reward(features).mean()
    dreamt = model.reward(model.imagine(latents.flat(), max(AHEAD))[0].features).mean().mean(1)
    return {
        "paid_a_step": paid.mean().item(),
        "seen_a_step": seen.mean().item(),
        "correlation_of_seen_and_paid": torch.corrcoef(torch.stack([seen.flatten(), paid.flatten()]))[0, 1].item(),
        "dreamt_by_steps_ahead": {str(step): dreamt[step].item() for step in AHEAD},
        "value": model.critic(features).mean().mean().item(),
    }


if __name__ == "__main__":
    main()
