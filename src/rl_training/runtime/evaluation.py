"""How good a policy is: the one way to find out, from fixed seeds, without disturbing anything."""

from __future__ import annotations

from statistics import fmean, pstdev
from typing import Any, NamedTuple

import torch

from rl_training import streams
from rl_training.data import normalized_score
from rl_training.envs.group import Episode
from rl_training.envs.pool import EnvPool
from rl_training.runtime.memory import Memory
from rl_training.types import Policy

PARALLEL_EPISODES = 16  # environments stepped together; their observations share one forward pass


class Evaluation(NamedTuple):
    returns: list[float]
    lengths: list[int]

    def summary(self, env_id: str | None = None) -> dict[str, Any]:
        mean = fmean(self.returns)
        summary: dict[str, Any] = {
            "return_mean": mean, "return_std": pstdev(self.returns), "returns": self.returns,
            "lengths": self.lengths, "episodes": len(self.returns),
        }  # fmt: skip
        score = None if env_id is None else normalized_score(env_id, mean)
        return summary if score is None else {**summary, "normalized_score": score}


@torch.no_grad()
def evaluate(
    policy: Policy, env_id: Any, *, episodes: int, seed: int, env_kwargs: dict[str, Any] | None = None,
    deterministic: bool = True, device: torch.device | str = "cpu",
) -> Evaluation:  # fmt: skip
    """Whole episodes; each environment plays its share, so that short episodes do not crowd out long ones."""
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, got {episodes}")
    width = min(episodes, PARALLEL_EPISODES)
    played: list[list[Episode]] = [[] for _ in range(width)]
    generator, left = streams.generator(seed, "evaluation", device=str(device)), episodes
    with EnvPool(env_id, width, seed=streams.derive(seed, "evaluation"), env_kwargs=env_kwargs) as pool:
        obs, memory = pool.reset(), Memory()
        while left:
            rows = torch.as_tensor(obs).to(device)
            action = policy.act(rows, memory.rows, deterministic=deterministic, generator=generator)
            moved = pool.step(action.actions.cpu().numpy())
            memory.keep(action, moved.terminated | moved.truncated)
            obs = moved.obs
            for episode in moved.finished:
                mine = played[episode.env]
                if episode.env + len(mine) * width < episodes:  # environment i plays episodes i, i + width, …
                    mine.append(episode)
                    left -= 1
    kept = [played[number % width][number // width] for number in range(episodes)]
    return Evaluation([episode.return_ for episode in kept], [episode.length for episode in kept])
