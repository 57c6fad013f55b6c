"""Fitted Q evaluation (FQE) of several policies as one population, each fit on a bootstrap of the episodes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from rl_training import streams
from rl_training.algorithms import FQE, FQEConfig, Updater
from rl_training.data import TransitionDataset
from rl_training.data.datasets.episode_bootstrap import EpisodeBootstrap
from rl_training.data.sampling import gather
from rl_training.experiment.ope.importance import Episodes, Estimate
from rl_training.experiment.ope.policies import CHUNK, PolicyActions, with_policy_actions
from rl_training.runtime.engine import Callback, notify, train
from rl_training.runtime.lanes import OfflineLane
from rl_training.runtime.state import DivergedError, TrainerState
from rl_training.statistics import student_interval
from rl_training.types import Batch, EnvSpec

UPDATES, MEMBERS = 10_000, 5
# Fits err in the same direction together, which no bootstrap shows. The width was chosen with
# benchmarks/ope_calibration.py, on other checkpoints than those of the stored results.
UNFINISHED = 4.0  # of the change of the estimate in the last fifth of the updates


def fit_policies(
    dataset: TransitionDataset, spec: EnvSpec, config: FQEConfig, policies: Sequence[PolicyActions], *,
    updates: int, members: int, seed: int, device: str, callbacks: Sequence[Callback],
) -> FQEFit:  # fmt: skip
    for name, value, least in (("updates", updates, 1), ("members", members, 3), ("rows of data", len(dataset), 2)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    data = with_policy_actions(dataset, policies, config.gamma).to(device)
    fit = FQEFit(data, spec, config, policies, fits=members, seed=seed)
    fit.run(updates, callbacks)
    return fit


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
    """FQE learners of every policy and fit, and their values of the first states of the episodes.

    `data` has the actions of the policies, see `with_policy_actions`. The behaviour policy is fitted as well, after all
    others. The data show its return, and so the error of the fit.
    """

    def __init__(
        self, data: TransitionDataset, spec: EnvSpec, config: FQEConfig, policies: Sequence[PolicyActions], *,
        fits: int, seed: int,
    ) -> None:  # fmt: skip
        self.source = PolicyBootstrap(data, len(policies) + 1, fits, seed=streams.derive(seed, "resamples"))
        self.source.seed(streams.derive(seed, "sampling"))
        self.data, self.config, self.policies, self.fits = data, config, len(policies), fits
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

    @cached_property
    def episodes(self) -> Episodes:
        return Episodes(self.data, self.config.gamma)

    @cached_property
    def behaviour_error(self) -> float:
        """Error of the behaviour's estimate, |mean_i sum_t D_it delta_it|, averaged over the fits.

        delta is the TD error of the behaviour's values and D the discount before step t. The sum is the return of
        episode i minus its fitted value; after a truncated episode the return continues with the fitted value.
        """
        errors = self.td_errors(self.policies).mean(0)
        return abs(float((self.episodes.discounts * self.episodes.grid(errors)).sum(1).mean()))

    def estimate(self, policy: int) -> Estimate:
        """Mean over fits and first states, with its 95% interval.

        half width = t * std over fits and bootstraps + behaviour_error + UNFINISHED * last_change
        """
        values = self.values()[policy]
        estimate, spread = float(values.mean()), float(self.source.mean_over_episodes(values).std())
        more = self.behaviour_error + UNFINISHED * self.last_change(policy)
        return Estimate(estimate, student_interval(estimate, spread, self.fits - 1).widened(more))

    def last_change(self, policy: int) -> float:
        """Change of the estimate in the last fifth of the updates."""
        return abs(float(self.values()[policy].mean() - self.earlier_values[policy].mean()))

    @torch.no_grad()
    def td_errors(self, policy: int) -> Tensor:
        """TD errors r + discount (1 - done) V(s') - Q(s, a) of every row, [fits, rows]."""
        chosen = self.data.columns["policy_next_actions"][:, policy]
        columns = {**self.data.columns, "policy_next_actions": chosen}
        parts = [
            torch.stack([each.td_errors(gather(columns, rows)) for each in self.of(policy)])
            for rows in torch.arange(len(self.data), device=self.obs.device).split(CHUNK)
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
