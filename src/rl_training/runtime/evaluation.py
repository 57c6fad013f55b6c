"""Evaluates a policy in fresh environments with fixed seeds, without side effects on training."""

from statistics import fmean, pstdev
from typing import Any, NamedTuple

import torch

from rl_training import streams
from rl_training.data import normalized_score
from rl_training.envs.group import Episode
from rl_training.envs.pool import EnvPool
from rl_training.runtime.memory import Memory
from rl_training.types import Policy

PARALLEL_EPISODES = 16  # environments that share one forward pass


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
    """Plays whole episodes. Each environment plays a fixed share, so short episodes are not over-represented."""
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, got {episodes}")
    width = min(episodes, PARALLEL_EPISODES)
    finished: list[list[Episode]] = [[] for _ in range(width)]
    generator, remaining = streams.generator(seed, "evaluation", device=str(device)), episodes
    with EnvPool(env_id, width, seed=streams.derive(seed, "evaluation"), env_kwargs=env_kwargs) as pool:
        obs, memory = pool.reset(), Memory()
        while remaining:
            rows = torch.as_tensor(obs).to(device)
            action = policy.act(rows, memory.rows, deterministic=deterministic, generator=generator)
            step = pool.step(action.actions.cpu().numpy())
            memory.keep(action, step.terminated | step.truncated)
            obs = step.obs
            for episode in step.finished:
                counted = finished[episode.env]
                if episode.env + len(counted) * width < episodes:  # environment i plays episodes i, i + width, …
                    counted.append(episode)
                    remaining -= 1
    ordered = [finished[number % width][number // width] for number in range(episodes)]
    return Evaluation([episode.return_ for episode in ordered], [episode.length for episode in ordered])
