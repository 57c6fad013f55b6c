"""Fitted Q evaluation (FQE) of several policies as one population, each fit on a bootstrap of the episodes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rl_training import streams
from rl_training.algorithms import FQE, FQEConfig, Updater
from rl_training.data import TransitionDataset
from rl_training.data.datasets.episode_bootstrap import EpisodeBootstrap
from rl_training.data.sampling import gather
from rl_training.experiment.ope.policies import CHUNK, PolicyActions
from rl_training.runtime.engine import Callback, notify, train
from rl_training.runtime.lanes import OfflineLane
from rl_training.runtime.state import DivergedError, TrainerState
from rl_training.types import Batch, EnvSpec

UPDATES, MEMBERS = 10_000, 5


class PolicyBootstrap(EpisodeBootstrap):
    """Batches [policies * fits, rows]: fit k of every policy sees the same rows, with the policy's own next actions."""

    def __init__(self, dataset: TransitionDataset, policies: int, fits: int, *, seed: int) -> None:
        super().__init__(dataset, fits, seed=seed)
        self.policies, self.fits = policies, fits

    def sample(self, batch_size: int, members: tuple[int, ...] = ()) -> Batch:
        batch = super().sample(batch_size, (self.fits,))
        next_actions = batch.pop("policy_next_actions").movedim(2, 0).flatten(0, 1)
        shared = {name: each.expand(self.policies, *each.shape).flatten(0, 1) for name, each in batch.items()}
        return {**shared, "policy_next_actions": next_actions}


class FQEFit:
    """FQE learners of every policy and fit, and their values of the first states.

    The behaviour policy is fitted as well, after all others. The data show its return, and so the error of the fit.
    """

    def __init__(
        self, data: TransitionDataset, spec: EnvSpec, config: FQEConfig, policies: Sequence[PolicyActions], *,
        fits: int, seed: int,
    ) -> None:  # fmt: skip
        self.source = PolicyBootstrap(data, len(policies) + 1, fits, seed=streams.derive(seed, "resamples"))
        self.source.seed(streams.derive(seed, "sampling"))
        self.config, self.policies, self.fits = config, len(policies), fits
        self.learners: list[FQE] = []
        for member in [*range(fits)] * (len(policies) + 1):  # policies share the initial weights of a fit
            with streams.fork(seed, "init", member):
                self.learners.append(FQE.build(spec, config).to(data.columns["obs"].device))
            self.learners[-1].prepare(data.columns)
        self.value_std = float(self.learners[0].value_std)
        self.obs = data.columns["obs"][data.first_rows]
        self.actions = [policy.at(self.obs) for policy in policies]
        self.finished: Tensor | None = None  # values after the last update
        self.earlier_values = self.values()

    def run(self, updates: int, callbacks: Sequence[Callback]) -> None:
        updater = Updater(self.learners, capture=self.obs.is_cuda)
        state = TrainerState(updater, OfflineLane(self.source), updates)
        try:
            train(state, [RecordValues(self, updates * 4 // 5), *callbacks])
        except KeyboardInterrupt:
            notify(callbacks, "on_train_end", state)  # lets a progress bar restore the terminal
            raise
        self.finished = self.values()
        if not bool(self.values().isfinite().all()):
            raise DivergedError("the fit diverged: values are NaN or infinite; use a smaller tau or learning_rate")

    @torch.no_grad()
    def td_errors(self, data: TransitionDataset, policy: int) -> Tensor:
        """TD errors r + discount (1 - done) V(s') - Q(s, a) of every row, [fits, rows]."""
        columns = {name: column for name, column in data.columns.items() if name != "policy_next_actions"}
        columns["policy_next_actions"] = data.columns["policy_next_actions"][:, policy]
        parts = [
            torch.stack([each.td_errors(gather(columns, rows)) for each in self.of(policy)])
            for rows in torch.arange(len(data), device=self.obs.device).split(CHUNK)
        ]
        return torch.cat(parts, 1).double()

    def of(self, policy: int) -> list[FQE]:
        return self.learners[policy * self.fits : (policy + 1) * self.fits]

    @torch.no_grad()
    def values(self) -> Tensor:
        """Returns the values of the first states, [policies, fits, episodes], without the behaviour."""
        if self.finished is not None:
            return self.finished
        values = [
            each.values(each.model.q, self.obs, self.actions[member // self.fits]).mean(1)
            for member, each in enumerate(self.learners[: -self.fits])
        ]
        return torch.stack(values).double().unflatten(0, (-1, self.fits))


class RecordValues(Callback):
    """Records the values at an earlier step, to check convergence."""

    def __init__(self, fit: FQEFit, step: int) -> None:
        self.fit, self.interval = fit, max(1, step)

    def on_step_end(self, state: TrainerState) -> None:
        if state.passed(self.interval):
            self.fit.earlier_values = self.fit.values()
