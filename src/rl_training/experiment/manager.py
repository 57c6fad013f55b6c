"""Sets up, trains, resumes and sweeps an experiment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.experiment.config.messages import shown
from rl_training.experiment.config.train_config import TrainConfig, load_config, parse_config
from rl_training.experiment.machine import kept_torch_settings
from rl_training.experiment.run import TrainResult, resume_run, run_training
from rl_training.experiment.run_directory import RunDirectory
from rl_training.experiment.seeds.sweep import train_seeds
from rl_training.experiment.trust import Trust, approve_typed
from rl_training.runtime.engine import Callback


class ExperimentManager:
    """One config and its runs, each seed in a directory of its own."""

    def __init__(self, config: TrainConfig) -> None:
        if not isinstance(config, TrainConfig):
            kind = type(config).__name__
            raise TypeError(f"config must be a TrainConfig, got {kind}; ExperimentManager.setup(config) takes others")
        self.config = config

    @classmethod
    def setup(cls, config: TrainConfig | str | Path | dict[str, Any]) -> ExperimentManager:
        """Accepts a config, a packaged name, the path of a YAML file, or a mapping."""
        if isinstance(config, TrainConfig):
            return cls(config)
        values = config if isinstance(config, dict) else load_config(str(config))
        approve_typed(values, {}, None if isinstance(config, dict) else Path(config), ())
        return cls(parse_config(values))

    @property
    def run_dir(self) -> Path:
        return RunDirectory.of(self.config).path

    @kept_torch_settings()
    def train(
        self, *, callbacks: Callback | Sequence[Callback] = (), fresh: bool = False, quiet: bool = True
    ) -> TrainResult:
        """Trains, or continues the run in `run_dir`; `fresh` deletes that run and starts over."""
        return run_training(self.config, callbacks=callbacks, fresh=fresh, quiet=quiet)

    @kept_torch_settings()
    def resume(
        self, *, steps: int | None = None, callbacks: Callback | Sequence[Callback] = (), quiet: bool = True,
        trust: Trust = (),
    ) -> TrainResult:  # fmt: skip
        return resume_run(self.run_dir, steps=steps, callbacks=callbacks, quiet=quiet, trust=trust)

    def seed_configs(self, seeds: Iterable[int]) -> list[TrainConfig]:
        """Returns the config of each seed, in `seed_<s>` folders of `output_dir` if it is set."""
        chosen, base = [int(seed) if isinstance(seed, np.integer) else seed for seed in seeds], self.config.output_dir
        are_numbers = all(isinstance(seed, int) and seed >= 0 for seed in chosen)
        if not chosen or len({*chosen}) < len(chosen) or not are_numbers:
            raise ValueError(f"seeds must be integers from 0, each once, such as range(5), got {shown(seeds)}")
        return [
            self.config.model_copy(
                update={"seed": seed, "output_dir": None if base is None else str(Path(base) / f"seed_{seed}")}
            )
            for seed in chosen
        ]

    @kept_torch_settings()
    def sweep(self, seeds: Iterable[int], *, fresh: bool = False, quiet: bool = True) -> list[TrainResult]:
        """Trains every seed, as one population if possible; finished seeds return their stored result."""
        return train_seeds(self.seed_configs(seeds), fresh=fresh, quiet=quiet)
