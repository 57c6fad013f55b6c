"""The fit of a dynamics ensemble: passes over the rows until no member gets better, each then put back at its best."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from rl_training.algorithms import Updater
from rl_training.algorithms.core.updater import load_tensors
from rl_training.algorithms.dynamics import Dynamics
from rl_training.data.replay.bootstrap import BootstrapSampler
from rl_training.runtime.state import DivergedError
from rl_training.types import Metrics

BETTER = 0.99  # of a member's least error so far, which a new one must be below to count


@contextmanager
def full_precision() -> Iterator[None]:
    """Without TF32: a step's change is small beside what it changes."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


class ModelFit:
    """One fit after another, each from where the last has ended; weights and optimizer carry over.

    A fit goes on by one `epoch` at a time, so that a run can be watched, stopped and resumed in the middle of it.
    """

    def __init__(self, dynamics: Dynamics, updater: Updater, rows: BootstrapSampler) -> None:
        self.dynamics, self.updater, self.rows = dynamics, updater, rows
        self.networks = {name: value for name, value in updater.params.items() if name.startswith("model.net.")}
        self.best = {name: value.detach().clone() for name, value in self.networks.items()}
        self.least_errors = torch.full((dynamics.model.members,), torch.inf, device=updater.device)
        self.held = torch.empty(0, dtype=torch.int64, device=updater.device)  # numbers of the rows held out
        self.epochs = self.quiet = 0  # passes of this fit, and those since a member last got better
        self.running = False

    def begin(self) -> None:
        config, count = self.dynamics.config, len(self.rows.source)
        if count < 2:
            raise ValueError(f"a model needs at least 2 rows, one of them to judge it by, got {count}")
        held_out = min(max(int(config.model_holdout * count), 1), config.model_max_holdout)
        learnt, self.held = self.rows.split(held_out)
        self.dynamics.prepare(self.rows.rows(learnt))
        self.least_errors.fill_(torch.inf)
        self.epochs, self.quiet, self.running = 0, 0, True

    def epoch(self) -> Metrics:
        """One pass; the last one also puts every member back at its best and chooses the elites."""
        config = self.dynamics.config
        with full_precision():
            self.rows.shuffle()
            metrics = self.updater.run(self.rows, math.ceil(self.rows.count / config.batch_size)).metrics
            better = self._remember_better()
            self.epochs, self.quiet = self.epochs + 1, 0 if better else self.quiet + 1
            if self.quiet > config.model_patience or self.epochs >= config.model_max_epochs:
                self._end()
        error = self.least_errors.mean()
        return {**metrics, "model_error": error, "model_epochs": torch.full_like(error, self.epochs)}

    def _remember_better(self) -> bool:
        """The one number a pass reads on the host: whether any member got better."""
        errors = self.dynamics.errors(self.rows.rows(self.held))
        better = errors < BETTER * self.least_errors
        self.least_errors.copy_(torch.where(better, errors, self.least_errors))
        for name, value in self.networks.items():
            self.best[name].copy_(torch.where(better.view(-1, 1, 1), value.detach(), self.best[name]))
        return bool(better.any())

    @torch.no_grad()
    def _end(self) -> None:
        if not bool(self.least_errors.isfinite().all()):
            raise DivergedError("the model's errors are not finite; its model_learning_rate is likely too high")
        for name, value in self.networks.items():
            value.copy_(self.best[name])
        elites = self.dynamics.model.elites
        elites.copy_(self.least_errors.argsort()[: len(elites)])
        self.running = False

    def state_dict(self) -> dict[str, Any]:
        state = {"model": self.updater.state_dict(), "running": self.running}
        if not self.running:
            return state
        return {**state, "epochs": self.epochs, "quiet": self.quiet, "held": self.held, "orders": self.rows.orders,
                "least_errors": self.least_errors, "best": self.best}  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.updater.load_state_dict(state["model"])
        self.running = state["running"]
        if not self.running:
            return
        self.epochs, self.quiet = state["epochs"], state["quiet"]
        self.held, self.rows.orders = (state[name].to(self.updater.device) for name in ("held", "orders"))
        self.least_errors.copy_(state["least_errors"])
        load_tensors(self.best, state["best"])
