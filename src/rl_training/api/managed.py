"""Managed algorithms: configure, train, evaluate, predict, save and load, the same way for every algorithm."""

from __future__ import annotations  # the stub prints the annotations as they are written

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from rl_training.experiment.agent import Agent, load_agent, run_of
from rl_training.experiment.config.train_config import ConfigError, TrainConfig, parse_config
from rl_training.experiment.run import TrainResult, default_directory, resume_run, run_training
from rl_training.experiment.trust import Trust, learner_modules, modules_of, require_trusted
from rl_training.modules import approve
from rl_training.runtime.checkpoints.reading import Checkpoint
from rl_training.runtime.engine import Callback
from rl_training.runtime.memory import Memory

Managed = TypeVar("Managed", bound="ManagedAlgorithm")


class ManagedAlgorithm:
    """Create with `X(config)` or `X("Env-v0", **options)`. Options are those of the run and of the algorithm."""

    algorithm: ClassVar[str] = ""

    def __init__(self, config: TrainConfig | Mapping[str, Any] | str | None = None, **options: Any) -> None:
        self.config = self._configured(config, options)
        self.result: TrainResult | None = None
        self._agent: Agent | None = None
        self._trust: tuple[str, ...] | None = None  # of a config that was loaded from a file

    @classmethod
    def _configured(cls, config: TrainConfig | Mapping[str, Any] | str | None, options: dict[str, Any]) -> TrainConfig:
        given: dict[str, Any]
        if isinstance(config, TrainConfig):
            given = config.model_dump(exclude_unset=True)
        else:
            given = dict(config) if isinstance(config, Mapping) else ({} if config is None else {"env_id": config})
        run = {name: value for name, value in options.items() if name in TrainConfig.model_fields}
        algorithm = {name: value for name, value in options.items() if name not in run}
        merged = {"algo": cls.algorithm, **given, **run} if cls.algorithm else {**given, **run}
        merged["algo_kwargs"] = {**merged.get("algo_kwargs", {}), **algorithm}
        approve(learner_modules(merged))
        parsed = parse_config(merged)
        if cls.algorithm and parsed.algo != cls.algorithm:
            raise ConfigError(f"{cls.__name__} trains {cls.algorithm!r}, but the config has algo: {parsed.algo!r}")
        return parsed

    def learn(
        self: Managed, *, callbacks: Sequence[Callback] | None = None, fresh: bool = False, quiet: bool = True
    ) -> Managed:
        """Trains to the end of the config, and resumes a run that was stopped.

        `fresh` deletes the run in the output directory and starts from the beginning.
        """
        modules, own = modules_of(self.config), self._trust is None
        if self._trust is not None and self._agent is not None:
            require_trusted(modules, self._trust, self._agent.path)
        start = None if fresh or self._agent is None else self._agent.path
        self.result = run_training(
            self.config, callbacks=callbacks or (), fresh=fresh, quiet=quiet, start_from=start, own=own
        )
        if self.result.checkpoint_path is None:
            raise RuntimeError("Training wrote no checkpoint.")
        self._agent = load_agent(self.result.checkpoint_path, trust=modules)
        return self

    def evaluate(self, *, num_episodes: int = 10, seed: int = 0, deterministic: bool | None = None) -> dict[str, Any]:
        """Plays whole episodes from fixed seeds and returns their statistics.

        `deterministic` selects the most likely or sampled actions. None: as the config has it.
        """
        return self.agent.evaluate(num_episodes, seed=seed, deterministic=deterministic)

    def predict(self, obs: Any, deterministic: bool = True, memory: Memory | None = None) -> np.ndarray[Any, Any]:
        """Returns actions in the environment's units. Recurrent policies need a `memory`; see `Agent.predict`."""
        return self.agent.predict(obs, deterministic=deterministic, memory=memory)

    def save(self, path: Path | str) -> Path:
        """Copies the agent's checkpoint to `path`, a new directory."""
        target = Path(path)
        if target.exists():
            raise FileExistsError(f"{target} already exists. Choose another path.")
        shutil.copytree(self.agent.path, target)
        return target

    @classmethod
    def load(
        cls: type[Managed], path: Path | str, *, best: bool = False, device: str = "cpu", trust: Trust = ()
    ) -> Managed:
        """Loads an agent from a run or a checkpoint. Every file is verified first, and no environment is imported.

        `evaluate` and `learn` import the module of an `env_id` such as `module:Id` only if you have trained with it
        on this machine, or `trust` names it.
        """
        agent = load_agent(path, best=best, device=device, trust=trust)
        managed = cls(agent.config)
        managed._agent, managed._trust = agent, agent.trust
        return managed

    @property
    def agent(self) -> Agent:
        if self._agent is None:
            raise RuntimeError("The agent is not trained: call learn() first, or load() a trained agent.")
        return self._agent


def evaluate_checkpoint(
    path: Path | str, *, num_episodes: int = 10, seed: int = 0, deterministic: bool | None = None, best: bool = False,
    trust: Trust = (),
) -> dict[str, Any]:  # fmt: skip
    """Evaluates an agent from its run directory or checkpoint. `trust`: see `ManagedAlgorithm.load`."""
    return load_agent(path, best=best, trust=trust).evaluate(num_episodes, seed=seed, deterministic=deterministic)


def predict_checkpoint(
    path: Path | str, obs: Any, *, deterministic: bool = True, best: bool = False
) -> np.ndarray[Any, Any]:
    """Returns the actions of a stored agent. To predict more than once, `load` the agent and keep it."""
    return load_agent(path, best=best).predict(obs, deterministic=deterministic)


def resume_training(
    path: Path | str, *, total_timesteps: int | None = None, callbacks: Sequence[Callback] | None = None,
    trust: Trust = (),
) -> TrainResult:  # fmt: skip
    """Resumes a run as if it had not stopped. `path` is the run or its newest checkpoint.

    `trust`: see `ManagedAlgorithm.load`.
    """
    return resume_run(run_of(Path(path)), steps=total_timesteps, callbacks=callbacks or (), trust=trust)


def train_as(
    algorithm: str, config: TrainConfig | Mapping[str, Any], *, run_suffix: str | None = None,
    checkpoint_state: Checkpoint | Path | str | None = None, callbacks: Sequence[Callback] | None = None,
    fresh: bool = False,
) -> TrainResult:  # fmt: skip
    """Trains `config`, which must have this `algo`. The run directory's name ends in `run_suffix`.

    `fresh` deletes the run in the directory and starts from the beginning.
    """
    if not isinstance(config, TrainConfig):
        approve(learner_modules(config))
    parsed = config if isinstance(config, TrainConfig) else parse_config({"algo": algorithm, **config})
    if parsed.algo != algorithm:
        raise ConfigError(f"train_{algorithm} trains {algorithm!r}, but the config has algo: {parsed.algo!r}")
    if run_suffix:
        base = Path(parsed.output_dir or default_directory(parsed))
        parsed = parsed.model_copy(update={"output_dir": f"{base}-{run_suffix}"})
    return run_training(parsed, callbacks=callbacks or (), fresh=fresh, start_from=checkpoint_state)
