"""A trained agent read back from its checkpoint: networks, spaces and config, and nothing that trains."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from rl_training import streams
from rl_training.algorithms import Learner
from rl_training.algorithms.core.updater import load_tensors
from rl_training.data.datasets.actions import unscale_actions
from rl_training.envs.spaces import pack
from rl_training.experiment.config.registry import build_learner, config_type
from rl_training.experiment.config.train_config import TrainConfig, parse_config
from rl_training.runtime.checkpoints.format import MANIFEST, STATE, CheckpointError, step_name
from rl_training.runtime.checkpoints.reading import Checkpoint, list_checkpoints, newest_checkpoint, read_checkpoint
from rl_training.runtime.evaluation import evaluate
from rl_training.runtime.memory import Memory
from rl_training.types import EnvSpec

CHECKPOINTS = "checkpoints"


def say(message: str) -> None:
    print(message, file=sys.stderr)


class Agent(NamedTuple):
    learner: Learner
    spec: EnvSpec
    config: TrainConfig
    path: Path

    @torch.no_grad()
    def predict(
        self, obs: Any, *, deterministic: bool = True, generator: torch.Generator | None = None,
        memory: Memory | None = None,
    ) -> np.ndarray[Any, Any]:  # fmt: skip
        """Actions in the environment's own units, with the leading shape of the observations.

        An agent that remembers goes on from `memory`, and keeps there what it saw; without one, or with a new one,
        every observation is the first of its episode. Tell `memory.forget` where episodes have ended.
        """
        rows = self.rows(obs)
        lead = rows.shape[: rows.ndim - len(self.spec.obs_shape)]
        device = next(self.learner.parameters()).device
        flat = torch.as_tensor(rows.reshape(-1, *self.spec.obs_shape)).to(device)
        remembered = memory or Memory()
        chosen = self.learner.act(flat, remembered.of(len(flat)), deterministic=deterministic, generator=generator)
        remembered.keep(chosen)
        actions = unscale_actions(chosen.actions, self.spec).cpu().numpy()
        return actions.reshape(lead + self.spec.action_shape)

    def rows(self, obs: Any) -> np.ndarray[Any, Any]:
        """Observations as the learner takes them, with any leading shape: those of a Dict as rows of bytes."""
        if self.spec.obs_parts:
            return pack(obs, self.spec.obs_parts)
        if isinstance(obs, Mapping):
            raise ValueError(f"obs must be an array that ends in shape {self.spec.obs_shape}, got a dict of {[*obs]}")
        given = np.asarray(obs)
        if self.spec.obs_dtype == "uint8" and given.dtype != np.uint8 and not ((given >= 0) & (given <= 255)).all():
            raise ValueError("obs are pixels, which must be in 0..255")
        rows = given.astype(self.spec.obs_dtype, copy=False)
        lead = rows.shape[: rows.ndim - len(self.spec.obs_shape)]
        if rows.shape[len(lead) :] != self.spec.obs_shape:
            raise ValueError(f"obs must end in shape {self.spec.obs_shape}, got {rows.shape}")
        if not np.isfinite(rows).all():
            raise ValueError("obs holds values that are not finite")
        return rows

    def evaluate(self, episodes: int, *, seed: int = 0, deterministic: bool | None = None) -> dict[str, Any]:
        """Whole episodes from fixed seeds in the environment it was trained for, by the likeliest actions or by draws;
        none: as its config has it evaluated."""
        if self.config.env_id is None:
            raise ValueError(
                "this agent was trained from data alone; there is no environment to evaluate it in, "
                "but --ope DATASET estimates its return from data"
            )
        device = next(self.learner.parameters()).device
        played = evaluate(
            self.learner,
            self.config.env_id,
            episodes=episodes,
            seed=seed,
            env_kwargs=self.config.env_kwargs,
            deterministic=not self.config.eval_stochastic if deterministic is None else deterministic,
            device=device,
        )
        return played.summary(self.config.env_id)


def find_checkpoint(path: Path, *, best: bool = False, warn: Callable[[str], None] = say) -> Checkpoint:
    """A checkpoint itself, or a run's newest good one, or its best by evaluation."""
    if not path.exists():
        raise FileNotFoundError(f"there is no run or checkpoint at {path}")
    if not (path / CHECKPOINTS).is_dir():
        if not (path.name.startswith("step_") or any((path / name).exists() for name in (MANIFEST, STATE))):
            raise ValueError(f"{path} is no run that has a checkpoint yet, and no checkpoint either{_runs_in(path)}")
        if best:
            raise ValueError(f"--best chooses among the checkpoints of a run, and {path} is a checkpoint")
        return read_checkpoint(path)
    newest = newest_checkpoint(path / CHECKPOINTS, on_damaged=warn)
    if newest is None:
        raise CheckpointError(f"the run {path} has no checkpoint that can be used")
    if not best:
        return newest
    best_so_far = newest.state["trainer"]["best"]
    if best_so_far is None:
        raise ValueError(f"the run {path} was never evaluated, so it has no best checkpoint; leave out --best")
    return read_checkpoint(path / CHECKPOINTS / newest.path.with_name(step_name(best_so_far[0])).name)


def _runs_in(path: Path) -> str:
    """The end of a sentence about a folder that was taken for a run: the run that was meant, or the first of them."""
    if path.name == CHECKPOINTS:
        return f"; its run is {path.parent}"
    first = min((found.parent for found in path.glob(f"*/{CHECKPOINTS}")), default=None)
    return "" if first is None else f"; it holds runs: name one, such as {first}"


def run_of(path: Path) -> Path:
    """The run that resume goes on with: named itself, or by its newest checkpoint."""
    if (path / "config.yaml").exists():
        return path
    run = find_checkpoint(path).path.parent.parent
    if not (run / "config.yaml").exists():
        raise ValueError(f"{path} is a checkpoint without its run; resume needs the run directory")
    newest = list_checkpoints(run / CHECKPOINTS)[-1].name
    if newest != path.name:
        raise ValueError(
            f"{path.name} is not the newest checkpoint of {run}; resume goes on from {newest}: name the run"
        )
    return run


def load_agent(
    path: Path | str, *, best: bool = False, device: str = "cpu", warn: Callable[[str], None] = say
) -> Agent:
    """Read an agent from a run or a checkpoint; every file is verified before any is used."""
    return agent_from(find_checkpoint(Path(path), best=best, warn=warn), device=device)


def agent_from(checkpoint: Checkpoint, *, device: str = "cpu") -> Agent:
    info = checkpoint.info
    config, spec = parse_config(info["config"]), EnvSpec.from_json(info["spec"])
    with streams.fork(0, "load"):
        learner = build_learner(config.algo, spec, config_type(config.algo)(**config.algo_kwargs)).to(device)
    saved = checkpoint.group("learner")
    load_tensors(dict(learner.named_parameters()), saved["parameters"])
    load_tensors(dict(learner.named_buffers()), saved.get("buffers", {}))
    return Agent(learner.eval(), spec, config, checkpoint.path)
