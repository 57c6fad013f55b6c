"""Fits a dynamics ensemble by epochs with early stopping on held-out transitions, then restores the best weights."""

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

IMPROVEMENT = 0.99  # a member improves where its error is below this factor of its least error


@contextmanager
def full_precision() -> Iterator[None]:
    """Turns TF32 off: the predicted change of a state is small beside the state."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


class ModelFit:
    """Repeated fits of one ensemble; weights and optimizer state carry over.

    A fit advances one `epoch` at a time, so that a run can be logged, stopped and resumed in the middle of it.
    """

    def __init__(self, dynamics: Dynamics, updater: Updater, rows: BootstrapSampler) -> None:
        self.dynamics, self.updater, self.rows = dynamics, updater, rows
        self.networks = {name: value for name, value in updater.params.items() if name.startswith("model.net.")}
        self.best = {name: value.detach().clone() for name, value in self.networks.items()}
        self.least_errors = torch.full((dynamics.model.members,), torch.inf, device=updater.device)
        self.held = torch.empty(0, dtype=torch.int64, device=updater.device)  # indices of the held-out transitions
        self.epochs = self.stale = 0  # of this fit, and since the last improvement of a member
        self.running = False

    def begin(self) -> None:
        config, count = self.dynamics.config, len(self.rows.source)
        if count < 2:
            raise ValueError(f"a dynamics model needs at least 2 transitions, one of them held out, got {count}")
        held_out = min(max(int(config.model_holdout * count), 1), config.model_max_holdout)
        fitted, self.held = self.rows.split(held_out)
        self.dynamics.prepare(self.rows.rows(fitted))
        self.least_errors.fill_(torch.inf)
        self.epochs, self.stale, self.running = 0, 0, True

    def epoch(self) -> Metrics:
        """Runs one epoch; the last one also restores each member's best weights and selects the elites."""
        config = self.dynamics.config
        with full_precision():
            self.rows.shuffle()
            metrics = self.updater.run(self.rows, math.ceil(self.rows.count / config.batch_size)).metrics
            improved = self._keep_improved()
            self.epochs, self.stale = self.epochs + 1, 0 if improved else self.stale + 1
            if self.stale > config.model_patience or self.epochs >= config.model_max_epochs:
                self._end()
        error = self.least_errors.mean()
        return {**metrics, "model_error": error, "model_epochs": torch.full_like(error, self.epochs)}

    def _keep_improved(self) -> bool:
        """Stores the weights of improved members; returns whether there are any, the only host read of an epoch."""
        errors = self.dynamics.errors(self.rows.rows(self.held))
        improved = errors < IMPROVEMENT * self.least_errors
        self.least_errors.copy_(torch.where(improved, errors, self.least_errors))
        for name, value in self.networks.items():
            self.best[name].copy_(torch.where(improved.view(-1, 1, 1), value.detach(), self.best[name]))
        return bool(improved.any())

    @torch.no_grad()
    def _end(self) -> None:
        if not bool(self.least_errors.isfinite().all()):
            raise DivergedError("the dynamics model's errors are NaN or infinite; lower model_learning_rate")
        for name, value in self.networks.items():
            value.copy_(self.best[name])
        elites = self.dynamics.model.elites
        elites.copy_(self.least_errors.argsort()[: len(elites)])
        self.running = False

    def state_dict(self) -> dict[str, Any]:
        state = {"model": self.updater.state_dict(), "running": self.running}
        if not self.running:
            return state
        return {**state, "epochs": self.epochs, "quiet": self.stale, "held": self.held, "orders": self.rows.orders,
                "least_errors": self.least_errors, "best": self.best}  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.updater.load_state_dict(state["model"])
        self.updater.reset_rates()  # the options decide: a new run may start here with another rate
        self.running = state["running"]
        if not self.running:
            return
        self.epochs, self.stale = state["epochs"], state["quiet"]
        self.held, self.rows.orders = (state[name].to(self.updater.device) for name in ("held", "orders"))
        self.least_errors.copy_(state["least_errors"])
        load_tensors(self.best, state["best"])
