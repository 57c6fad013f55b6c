"""Off-policy evaluation: fitted Q evaluation (FQE) by a population, each member on a bootstrap of the episodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from rl_training import streams
from rl_training.algorithms import FQE, FQEConfig, Updater
from rl_training.data import TransitionDataset, load_transition_dataset
from rl_training.data.datasets.actions import Bounds
from rl_training.data.datasets.columns import REQUIRED
from rl_training.data.datasets.episode_bootstrap import EpisodeBootstrap
from rl_training.experiment.agent import Agent
from rl_training.experiment.config.messages import ConfigError, describe
from rl_training.runtime.engine import Callback, notify, train
from rl_training.runtime.lanes import OfflineLane
from rl_training.runtime.state import DivergedError, TrainerState
from rl_training.statistics import Interval, student_interval
from rl_training.types import EnvSpec, Policy

UPDATES, MEMBERS = 10_000, 10
CHUNK = 16_384  # observations per forward pass of the policy
PROBES, COMPARED = 1_000, 20_000  # states to check for unseen actions, and states to compare them with
NEIGHBOURS = 50  # nearest states to compare actions with
QUANTILE = 0.95  # of the dataset's own action distances; larger distances count as unseen
# Warning thresholds.
MAX_UNSEEN = 0.3  # fraction of unseen actions; 0.05 is usual
MAX_CHANGE = 0.05  # change of the estimate in the last fifth of the updates, in standard deviations of the returns
MAX_BEYOND = 0.2  # discounted weight beyond the ends of truncated episodes
MIN_EPISODES = 10


class HasAgent(Protocol):
    @property
    def agent(self) -> Agent: ...


class OffPolicyEstimate(NamedTuple):
    """Discounted returns from the first states of the episodes, in the rewards of the data."""

    estimate: float
    interval: Interval  # 95%, over bootstraps and fits; it does not cover states that the data do not visit
    behaviour_return: float  # of the episodes; the rest of a truncated one is estimated from its rewards
    behaviour_interval: Interval | None  # 95%; None for fewer than three episodes
    behaviour_undiscounted_return: float
    gamma: float
    episodes: int
    updates: int
    members: int
    unseen_actions: float  # fraction of states whose policy action does not occur in similar states of the data
    warnings: list[str]


def evaluate_policy_offline(
    policy: Agent | HasAgent | Policy, dataset: TransitionDataset | Path | str, *, updates: int = UPDATES,
    members: int = MEMBERS, action_samples: int | None = None, seed: int = 0, device: str = "auto",
    callbacks: Sequence[Callback] = (), **options: Any,
) -> OffPolicyEstimate:  # fmt: skip
    """Estimates a policy's discounted return by fitted Q evaluation; `options` are fields of FQEConfig, such as gamma.

    The policy acts deterministically; with `action_samples`, the values of that many sampled actions are averaged.
    Each member is fitted to a bootstrap of the episodes, and the spread of the members gives the interval. Equal
    seeds give equal bootstraps, so estimates of different policies are comparable.
    """
    config = _config(options)
    actor, dataset, spec = _resolve(policy, dataset)
    for name, value, least in (("updates", updates, 1), ("members", members, 3), ("rows of data", len(dataset), 2)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    device = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    actions = PolicyActions(actor, action_samples, seed)
    data = _with_policy_actions(dataset, actions, config.gamma).to(device)
    fit = FQEFit(data, spec, config, actions, members=members, seed=seed)
    fit.run(updates, callbacks)
    return _summary(fit, data, updates, unseen=_unseen(dataset, actions, seed))


def _config(options: dict[str, Any]) -> FQEConfig:
    try:
        return FQEConfig(**options)
    except ValidationError as error:
        known = {name: name for name in FQEConfig.model_fields}
        raise ConfigError("\n".join(describe(error, options, lambda section: known))) from None


class PolicyActions:
    def __init__(self, policy: Policy, samples: int | None, seed: int) -> None:
        if samples is not None and samples < 1:
            raise ValueError(f"action_samples must be at least 1, got {samples}")
        self.policy, self.samples = policy, samples
        self.device = next(policy.parameters()).device if isinstance(policy, nn.Module) else torch.device("cpu")
        self.generator = streams.generator(seed, "policy", device=self.device)

    @torch.no_grad()
    def at(self, obs: Tensor) -> Tensor:
        """Returns actions [rows, samples, ...] on the device of `obs`; Box actions are clipped to [-1, 1]."""
        actions = torch.cat([self._at(rows.to(self.device)).to(obs.device) for rows in obs.split(CHUNK)])
        return actions.clamp(-1, 1) if actions.is_floating_point() else actions

    def _at(self, rows: Tensor) -> Tensor:
        samples = [
            self.policy.act(rows, deterministic=self.samples is None, generator=self.generator)
            for _ in range(self.samples or 1)
        ]
        if any(sample.memory is not None for sample in samples):
            raise TypeError("a recurrent policy cannot be evaluated from single transitions; evaluate it by episodes")
        return torch.stack([sample.actions for sample in samples], 1)


class FQEFit:
    """A population of FQE learners and their values of the first states."""

    def __init__(
        self, data: TransitionDataset, spec: EnvSpec, config: FQEConfig, actions: PolicyActions, *, members: int,
        seed: int,
    ) -> None:  # fmt: skip
        self.source = EpisodeBootstrap(data, members, seed=streams.derive(seed, "resamples"))
        self.source.seed(streams.derive(seed, "sampling"))
        self.learners = []
        for member in range(members):
            with streams.fork(seed, "init", member):
                self.learners.append(FQE.build(spec, config).to(data.columns["obs"].device))
            self.learners[-1].prepare(data.columns)
        self.obs = data.columns["obs"][data.episode_offsets]
        self.actions = actions.at(self.obs)
        self.earlier_values = self.values()

    def run(self, updates: int, callbacks: Sequence[Callback]) -> None:
        updater = Updater(self.learners, capture=self.obs.is_cuda)
        state = TrainerState(updater, OfflineLane(self.source), updates)
        try:
            train(state, [RecordValues(self, updates * 4 // 5), *callbacks])
        except KeyboardInterrupt:
            notify(callbacks, "on_train_end", state)  # lets a progress bar restore the terminal
            raise
        if not bool(self.values().isfinite().all()):
            raise DivergedError("the fit diverged: values are NaN or infinite; use a smaller tau or learning_rate")

    @torch.no_grad()
    def values(self) -> Tensor:
        """Returns the values of the first states, [members, episodes]."""
        values = [each.values(each.model.q, self.obs, self.actions).mean(1) for each in self.learners]
        return torch.stack(values).double()


class RecordValues(Callback):
    """Records the values at an earlier step, to check convergence."""

    def __init__(self, fit: FQEFit, step: int) -> None:
        self.fit, self.interval = fit, max(1, step)

    def on_step_end(self, state: TrainerState) -> None:
        if state.passed(self.interval):
            self.fit.earlier_values = self.fit.values()


def _resolve(policy: Any, dataset: TransitionDataset | Path | str) -> tuple[Policy, TransitionDataset, EnvSpec]:
    """Returns the policy, the loaded data and their spec; raises ValueError if their spaces differ."""
    agent = policy if isinstance(policy, Agent) else getattr(policy, "agent", None)
    if not isinstance(dataset, TransitionDataset):
        dataset = load_transition_dataset(dataset) if agent is None else load_dataset_for(agent, dataset)
    if agent is None:
        return policy, dataset, dataset.spec
    for name in ("obs_shape", "obs_dtype", "action_kind", "action_low", "action_high", "action_start"):
        expected, value = getattr(agent.spec, name), getattr(dataset.spec, name)
        if expected != value:
            raise ValueError(
                f"the agent's {name} is {expected}, but the dataset's is {value}; load the data with spec=agent.spec"
            )
    return agent.learner, dataset, agent.spec


def load_dataset_for(
    agent: Agent, source: Path | str, *, dataset_columns: Mapping[str, str] | None = None,
    action_range: Bounds | None = None, allow: Collection[str] = (), **table: Any,
) -> TransitionDataset:  # fmt: skip
    """Loads data with the options of the agent's training data as defaults; `table` holds options of tables."""
    config = agent.config
    return load_transition_dataset(
        source, spec=agent.spec, columns={**config.dataset_columns, **(dataset_columns or {})},
        action_range=action_range or config.action_range, allow=(*config.allow, *allow),
        **{**config.table.model_dump(), **table},
    )  # fmt: skip


def _with_policy_actions(dataset: TransitionDataset, actions: PolicyActions, gamma: float) -> TransitionDataset:
    columns = {name: dataset.columns[name] for name in (*REQUIRED, "truncated")}
    columns["policy_next_actions"] = actions.at(columns["next_obs"])
    data = TransitionDataset(columns, episode_ends=dataset.episode_ends, spec=dataset.spec)
    return data.with_discounted_returns_to_go(gamma)


def _unseen(dataset: TransitionDataset, policy_actions: PolicyActions, seed: int) -> float:
    obs, actions = dataset.columns["obs"], dataset.columns["actions"]
    neighbours = min(COMPARED, 20_000_000 // obs[0].numel())  # fewer for images, to limit memory
    shuffled = torch.randperm(len(obs), generator=streams.generator(seed, "probes"))[:neighbours].to(obs.device)
    return unseen_action_fraction(obs[shuffled], actions[shuffled], policy_actions.at(obs[shuffled[:PROBES]])[:, 0])


def unseen_action_fraction(obs: Tensor, actions: Tensor, chosen: Tensor) -> float:
    """Fraction of states in which the policy's action is far from the dataset's actions in similar states."""
    # `chosen` are the policy's actions in the first rows of `obs`. An action's distance is that to the nearest action
    # in the nearest other states; Discrete actions are 0 or 1 apart. The dataset's own actions score at most 0.05.
    nearest = _nearest_states(obs.flatten(1).float(), len(chosen))
    limit = _distance(actions[: len(chosen)], actions[nearest]).quantile(QUANTILE)
    return float((_distance(chosen, actions[nearest]) > limit).float().mean())


def _nearest_states(obs: Tensor, count: int) -> Tensor:
    """The nearest other rows of each of the first `count` rows, [count, neighbours]."""
    scaled = (obs - obs.mean(0)) / (obs.std(0) + 1e-3)
    distances = torch.cdist(scaled[:count], scaled)
    distances.fill_diagonal_(torch.inf)  # excludes the state itself
    return distances.topk(min(NEIGHBOURS, len(obs) - 1), largest=False).indices


def _distance(actions: Tensor, others: Tensor) -> Tensor:
    """Distance from each action [rows, ...] to the nearest of `others` [rows, neighbours, ...]."""
    if not actions.is_floating_point():
        return (actions.unsqueeze(1) != others).all(1).float()
    return (actions.unsqueeze(1) - others).square().sum(-1).amin(1).sqrt()


def _summary(fit: FQEFit, data: TransitionDataset, updates: int, *, unseen: float) -> OffPolicyEstimate:
    values, members = fit.values(), len(fit.learners)
    estimate = float(values.mean())
    error = float(fit.source.mean_over_episodes(values).std())
    returns = data.columns["returns_to_go"][data.episode_offsets].double()
    return OffPolicyEstimate(
        estimate, interval=student_interval(estimate, error, members - 1),
        behaviour_return=float(returns.mean()), behaviour_interval=_mean_interval(returns),
        behaviour_undiscounted_return=float(data.episode_returns().double().mean()),
        gamma=fit.learners[0].config.gamma, episodes=len(returns), updates=updates, members=members,
        unseen_actions=unseen, warnings=_warnings(fit, data, estimate, unseen),
    )  # fmt: skip


def _mean_interval(values: Tensor) -> Interval | None:
    if len(values) < 3:
        return None
    return student_interval(float(values.mean()), float(values.std()) / len(values) ** 0.5, len(values) - 1)


def _warnings(fit: FQEFit, data: TransitionDataset, estimate: float, unseen: float) -> list[str]:
    warnings, episodes = [], len(fit.obs)
    if unseen > MAX_UNSEEN:
        warnings.append(
            f"in {unseen:.0%} of states the policy's action differs from all actions of the data in similar states "
            "(5% is usual): the estimate is unreliable there"
        )
    change = abs(estimate - float(fit.earlier_values.mean()))
    if change > MAX_CHANGE * float(fit.learners[0].value_std):
        warnings.append(f"the estimate still changed by {change:.4g} in the last fifth of the updates: use more")
    beyond = _weight_beyond_ends(data, fit.learners[0].config.gamma)
    if beyond > MAX_BEYOND:
        warnings.append(
            f"{beyond:.0%} of the behaviour's discounted time lies beyond the ends of truncated episodes: "
            "its return is uncertain to that extent"
        )
    if episodes < MIN_EPISODES:
        warnings.append(f"the interval rests on only {episodes} episode{'s' * (episodes > 1)}: collect more")
    return warnings


def _weight_beyond_ends(data: TransitionDataset, gamma: float) -> float:
    """Mean of gamma^T over the episodes, with 0 for terminated ones."""
    lengths = torch.diff(data.episode_offsets, append=data.episode_offsets.new_tensor([len(data)]))
    is_truncated = 1 - data.columns["dones"][data.episode_ends]
    return float((is_truncated * gamma**lengths).mean())
