"""Measures a Dreamer's world model: the errors of imagined frames, or the rewards it predicts.

python benchmarks/dreams.py errors [RUN ...] > benchmarks/results/dream_errors.json
python benchmarks/dreams.py rewards RUN [--episodes 4] [--steps 1800] [--device cuda]

`errors` compares frames imagined from actions alone with two baselines. Its runs are those that benchmarks/figures.py
stores for one cell, by default in runs/figures/dreamer_catch.
`rewards` compares the rewards received with those predicted after each frame and in imagination. Imagined rewards that
are far too high mislead the policy. The reward of an episode's last step is not counted: no action follows that frame.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from command_line import ask, shown
from provenance import known_commit, provenance
from torch import Tensor

from rl_training import streams
from rl_training.algorithms import DreamerAlgorithm
from rl_training.envs.pools.pool import EnvPool
from rl_training.experiment.agent import Agent, load_agent
from rl_training.models.rssm import Latent
from rl_training.runtime.memory import Memory

BASELINES = {
    "of_copy_last": "of repeating the last frame",
    "of_shuffled": "of its own error with another episode's actions",
}
AHEAD = (1, 2, 4, 8, 15)  # steps of imagination to report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    errors = commands.add_parser("errors", help="errors of imagined frames")
    runs = sorted(Path("runs/figures/dreamer_catch").glob("seed_*"))
    errors.add_argument("runs", nargs="*", type=Path, metavar="RUN", default=runs)
    errors.add_argument("--context", type=int, default=1, help="frames that the model sees first")
    errors.add_argument("--steps", type=int, default=10, help="frames that it imagines, at most")
    rewards = commands.add_parser("rewards", help="rewards received and predicted")
    rewards.add_argument("run")
    rewards.add_argument("--episodes", type=int, default=4, help="environments that run at the same time")
    rewards.add_argument("--steps", type=int, default=1_800, help="steps of each environment")
    rewards.add_argument("--device", default="cpu")
    args = parser.parse_args()
    if args.command == "errors" and not args.runs:
        parser.error("there is no run: train some by benchmarks/figures.py --cells dreamer_catch")
    print(json.dumps(frame_errors(args) if args.command == "errors" else reward_errors(args), indent=2))


def frame_errors(args: argparse.Namespace) -> dict[str, Any]:
    command = ["dream", "RUN", "--context", str(args.context), "--steps", str(args.steps), "--json"]
    with tempfile.TemporaryDirectory() as folder:
        picture = ["--output", f"{folder}/dream.png"]
        found = [ask([word if word != "RUN" else str(run) for word in command] + picture) for run in args.runs]
    worst = {name: max(each[name] for each in found) for name in BASELINES}
    commits = {known_commit(json.loads((run / "run.json").read_text())["git"]) for run in args.runs}
    frames = f"up to {args.steps} predicted frames after {args.context} observed"
    return {
        "what": f"Dreamer on Catch: error of {frames}, worst of {len(found)} seeds",
        "result": "; ".join(f"{worst[name]:.3f} {baseline}" for name, baseline in BASELINES.items()),
        "goal": "at most 0.5 and 0.7",
        "errors": [{name: each[name] for name in ("prediction_error", *BASELINES)} for each in found],
        "commands": [shown(command)],
        **provenance(),
        "commit": ", ".join(sorted(commits)),
    }


def reward_errors(args: argparse.Namespace) -> dict[str, object]:
    agent = load_agent(args.run, device=args.device)
    return predicted(agent, *play(agent, args.episodes, args.steps))


@torch.no_grad()
def play(agent: Agent, episodes: int, steps: int, seed: int = 77) -> tuple[Latent, Tensor]:
    """The latents at each frame [time, episodes, ...] and the rewards received with it, for sampled actions."""
    device = next(agent.learner.parameters()).device
    generator, memory = streams.generator(seed, "dream", device=device), Memory()
    received = np.zeros(episodes, np.float32)
    deters, stochs, rewards = [], [], []
    with EnvPool(str(agent.config.env_id), episodes, seed=seed, env_kwargs=agent.config.env_kwargs) as pool:
        pool.reset()
        for _ in range(steps):
            action = agent.learner.act(torch.as_tensor(pool.obs).to(device), memory.rows, generator=generator)
            deters.append(action.memory["deter"])
            stochs.append(action.memory["stoch"])
            rewards.append(torch.as_tensor(received, device=device))
            step = pool.step(action.actions.cpu().numpy())
            ended = step.terminated | step.truncated
            memory.keep(action, ended)
            received = np.where(ended, 0, step.rewards).astype(np.float32)  # the first frame has no reward
    return cast(DreamerAlgorithm, agent.learner).restore_latent(torch.stack(deters), torch.stack(stochs)), torch.stack(
        rewards
    )


@torch.no_grad()
def predicted(agent: Agent, latents: Latent, received: Tensor) -> dict[str, object]:
    model, features = cast(DreamerAlgorithm, agent.learner).model, latents.features
    seen = model.reward(features).mean()
    imagined = model.reward(model.imagine(latents.flat(), max(AHEAD))[0].features).mean().mean(1)
    return {
        "paid_a_step": received.mean().item(),
        "seen_a_step": seen.mean().item(),
        "correlation_of_seen_and_paid": torch.corrcoef(torch.stack([seen.flatten(), received.flatten()]))[0, 1].item(),
        "dreamt_by_steps_ahead": {str(step): imagined[step].item() for step in AHEAD},
        "value": model.critic(features).mean().mean().item(),
    }


if __name__ == "__main__":
    main()
