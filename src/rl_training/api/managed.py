"""Agents as objects: set up, learn, evaluate, predict, save and load, the same way for every algorithm."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from rl_training.experiment.agent import Agent, load_agent, run_of
from rl_training.experiment.config.train_config import ConfigError, TrainConfig, parse_config
from rl_training.experiment.run import TrainResult, default_directory, resume_run, run_training
from rl_training.runtime.checkpoints.reading import Checkpoint
from rl_training.runtime.engine import Callback
from rl_training.runtime.memory import Memory

Managed = TypeVar("Managed", bound="ManagedAlgorithm")


class ManagedAlgorithm:
    """`X(config)`, or `X("Env-v0", **options)` with any option of TrainConfig or of the algorithm."""

    algorithm: ClassVar[str] = ""

    def __init__(self, config: TrainConfig | Mapping[str, Any] | str | None = None, **options: Any) -> None:
        self.config = self._configured(config, options)
        self.result: TrainResult | None = None
        self._agent: Agent | None = None

    @classmethod
    def _configured(cls, config: TrainConfig | Mapping[str, Any] | str | None, options: dict[str, Any]) -> TrainConfig:
        given: dict[str, Any]
        if isinstance(config, TrainConfig):
            given = config.model_dump(exclude_unset=True)
        else:
            given = dict(config) if isinstance(config, Mapping) else ({} if config is None else {"env_id": config})
        ours = {name: value for name, value in options.items() if name in TrainConfig.model_fields}
        theirs = {name: value for name, value in options.items() if name not in ours}
        merged = {"algo": cls.algorithm, **given, **ours} if cls.algorithm else {**given, **ours}
        merged["algo_kwargs"] = {**merged.get("algo_kwargs", {}), **theirs}
        parsed = parse_config(merged)
        if cls.algorithm and parsed.algo != cls.algorithm:
            raise ConfigError(f"{cls.__name__} trains {cls.algorithm!r}, and the config says algo: {parsed.algo!r}")
        return parsed

    def learn(
        self: Managed, *, callbacks: Sequence[Callback] | None = None, fresh: bool = False, quiet: bool = True
    ) -> Managed:
        """Train to the end of the config, or go on with its run where it stopped; `fresh` removes the run that its
        directory holds, and starts over with nothing learned."""
        start = None if fresh or self._agent is None else self._agent.path
        self.result = run_training(self.config, callbacks=callbacks or (), fresh=fresh, quiet=quiet, start_from=start)
        self._agent = load_agent(self._trained_path())
        return self

    def evaluate(self, *, num_episodes: int = 10, seed: int = 0, deterministic: bool | None = None) -> dict[str, Any]:
        """Returns of whole episodes from fixed seeds, by the likeliest actions or by draws; none: as configured."""
        return self.agent.evaluate(num_episodes, seed=seed, deterministic=deterministic)

    def predict(self, obs: Any, deterministic: bool = True, memory: Memory | None = None) -> np.ndarray[Any, Any]:
        """Actions in the environment's own units; who remembers needs a `memory`, see `Agent.predict`."""
        return self.agent.predict(obs, deterministic=deterministic, memory=memory)

    def save(self, path: Path | str) -> Path:
        """Copy the agent's checkpoint to `path`, a new directory."""
        target = Path(path)
        if target.exists():
            raise FileExistsError(f"{target} exists already; name a path that does not")
        shutil.copytree(self.agent.path, target)
        return target

    @classmethod
    def load(cls: type[Managed], path: Path | str, *, best: bool = False, device: str = "cpu") -> Managed:
        """From a run or a checkpoint; every file is verified before any is used."""
        agent = load_agent(path, best=best, device=device)
        managed = cls(agent.config)
        managed._agent = agent
        return managed

    @property
    def agent(self) -> Agent:
        if self._agent is None:
            raise RuntimeError("nothing has been learned yet: call learn() first, or load() a trained agent")
        return self._agent

    def _trained_path(self) -> Path:
        if self.result is None or self.result.checkpoint_path is None:
            raise RuntimeError("training left no checkpoint")
        return self.result.checkpoint_path


def evaluate_checkpoint(
    path: Path | str, *, num_episodes: int = 10, seed: int = 0, deterministic: bool | None = None, best: bool = False
) -> dict[str, Any]:
    """How a stored agent plays: from a run directory or a checkpoint alone."""
    return load_agent(path, best=best).evaluate(num_episodes, seed=seed, deterministic=deterministic)


def predict_checkpoint(
    path: Path | str, obs: Any, *, deterministic: bool = True, best: bool = False
) -> np.ndarray[Any, Any]:
    """What a stored agent would do; to ask more than once, `load` it and keep it."""
    return load_agent(path, best=best).predict(obs, deterministic=deterministic)


def resume_training(
    path: Path | str, *, total_timesteps: int | None = None, callbacks: Sequence[Callback] | None = None
) -> TrainResult:
    """Go on with a run as if it had never stopped; `path` is the run or its newest checkpoint."""
    return resume_run(run_of(Path(path)), steps=total_timesteps, callbacks=callbacks or ())


def train_as(
    algorithm: str, config: TrainConfig | Mapping[str, Any], *, run_suffix: str | None = None,
    checkpoint_state: Checkpoint | Path | str | None = None, callbacks: Sequence[Callback] | None = None,
    fresh: bool = False,
) -> TrainResult:  # fmt: skip
    """Train `config`, which must be this algorithm's, in a directory whose name ends in `run_suffix`.

    `fresh` removes the run that the directory holds, and starts over.
    """
    parsed = config if isinstance(config, TrainConfig) else parse_config({"algo": algorithm, **config})
    if parsed.algo != algorithm:
        raise ConfigError(f"train_{algorithm} trains {algorithm!r}, and the config says algo: {parsed.algo!r}")
    if run_suffix:
        base = Path(parsed.output_dir or default_directory(parsed))
        parsed = parsed.model_copy(update={"output_dir": f"{base}-{run_suffix}"})
    return run_training(parsed, callbacks=callbacks or (), fresh=fresh, start_from=checkpoint_state)
