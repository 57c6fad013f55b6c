"""What a policy would earn, from data alone: fitted Q evaluation by a population, each member on its own resample."""

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
from rl_training.data.datasets.action_coverage import unseen_action_fraction
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
CHUNK = 16_384  # observations the policy is asked about at once
PROBES, WITNESSES = 1_000, 20_000  # states in which the policy's actions are compared, and with how many others
MANY_UNSEEN = 0.3  # a share of unlike actions that is worth a warning; 0.05 is ordinary
STILL_MOVING = 0.05  # of the returns' deviation, in the last fifth of the updates
MUCH_BEYOND = 0.2  # of the discounted weight of the data's episodes
FEW_EPISODES = 10


class HasAgent(Protocol):
    """A managed algorithm."""

    @property
    def agent(self) -> Agent: ...


class OffPolicyEstimate(NamedTuple):
    """Values are discounted, from the first states of the data's episodes on, in the data's own rewards."""

    estimate: float
    interval: Interval  # 95%, of the data's luck and the fit's; what the data never show is not in it
    behaviour_return: float  # of the episodes themselves; what a cut one would still pay is estimated from its rewards
    behaviour_interval: Interval | None  # 95%; fewer than three episodes have none
    behaviour_undiscounted_return: float
    gamma: float
    episodes: int
    updates: int
    members: int
    unseen_actions: float  # the share of states in which the policy does what the data never did in states like it
    warnings: list[str]


def evaluate_policy_offline(
    policy: Agent | HasAgent | Policy, dataset: TransitionDataset | Path | str, *, updates: int = UPDATES,
    members: int = MEMBERS, action_samples: int | None = None, seed: int = 0, device: str = "auto",
    callbacks: Sequence[Callback] = (), **options: Any,
) -> OffPolicyEstimate:  # fmt: skip
    """Estimate a policy's discounted return by fitted Q evaluation; `options` are those of FQEConfig, such as gamma.

    The policy acts deterministically, or, with `action_samples`, by that many draws whose values are averaged. Each
    member of a population learns from a bootstrap resample of the episodes, and the interval is made of the spread
    among members. The same seed draws the same resamples for every policy, which makes them comparable.
    """
    config = _config(options)
    actor, dataset, spec = _asked(policy, dataset)
    for name, value, least in (("updates", updates, 1), ("members", members, 3), ("rows of data", len(dataset), 2)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    device = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    choices = PolicyChoices(actor, action_samples, seed)
    data = _with_choices(dataset, choices, config.gamma).to(device)
    fit = Fit(data, spec, config, choices, members=members, seed=seed)
    fit.run(updates, callbacks)
    return _summary(fit, data, updates, unseen=_unseen(dataset, choices, seed))


def _config(options: dict[str, Any]) -> FQEConfig:
    try:
        return FQEConfig(**options)
    except ValidationError as error:
        known = {name: name for name in FQEConfig.model_fields}
        raise ConfigError("\n".join(describe(error, options, lambda section: known))) from None


class PolicyChoices:
    """What a policy would do, asked once and in pieces."""

    def __init__(self, policy: Policy, samples: int | None, seed: int) -> None:
        if samples is not None and samples < 1:
            raise ValueError(f"action_samples must be at least 1, got {samples}")
        self.policy, self.samples = policy, samples
        self.device = next(policy.parameters()).device if isinstance(policy, nn.Module) else torch.device("cpu")
        self.generator = streams.generator(seed, "policy", device=self.device)

    @torch.no_grad()
    def at(self, obs: Tensor) -> Tensor:
        """[rows, choices, ...], on the device of the observations; Box actions in [-1, 1], as an environment clips."""
        chosen = torch.cat([self._at(rows.to(self.device)).to(obs.device) for rows in obs.split(CHUNK)])
        return chosen.clamp(-1, 1) if chosen.is_floating_point() else chosen

    def _at(self, rows: Tensor) -> Tensor:
        still = self.samples is None
        draws = [self.policy.act(rows, deterministic=still, generator=self.generator) for _ in range(self.samples or 1)]
        if any(draw.memory is not None for draw in draws):
            raise TypeError("a policy with a memory cannot be evaluated from single transitions")
        return torch.stack([draw.actions for draw in draws], 1)


class Fit:
    """A population of FQE learners, and what they say of the first states."""

    def __init__(
        self,
        data: TransitionDataset,
        spec: EnvSpec,
        config: FQEConfig,
        choices: PolicyChoices,
        *,
        members: int,
        seed: int,
    ) -> None:
        self.source = EpisodeBootstrap(data, members, seed=streams.derive(seed, "resamples"))
        self.source.seed(streams.derive(seed, "sampling"))
        self.learners = []
        for member in range(members):
            with streams.fork(seed, "init", member):
                self.learners.append(FQE.build(spec, config).to(data.columns["obs"].device))
            self.learners[-1].prepare(data.columns)
        self.obs = data.columns["obs"][data.episode_offsets]
        self.actions = choices.at(self.obs)
        self.before = self.values()

    def run(self, updates: int, callbacks: Sequence[Callback]) -> None:
        updater = Updater(self.learners, capture=self.obs.is_cuda)
        state = TrainerState(updater, OfflineLane(self.source), updates)
        told = [Remember(self, updates * 4 // 5), *callbacks]
        try:
            train(state, told)
        except KeyboardInterrupt:
            notify(callbacks, "on_train_end", state)  # a progress bar gives the terminal back
            raise
        if not bool(self.values().isfinite().all()):
            raise DivergedError("the fit diverged: the values are no longer finite; try a smaller tau or learning_rate")

    @torch.no_grad()
    def values(self) -> Tensor:
        """[members, episodes]."""
        said = [each.values(each.model.q, self.obs, self.actions).mean(1) for each in self.learners]
        return torch.stack(said).double()


class Remember(Callback):
    """Keeps what the members say some time before the end, so that one can see whether they still move."""

    def __init__(self, fit: Fit, step: int) -> None:
        self.fit, self.interval = fit, max(1, step)

    def on_step_end(self, state: TrainerState) -> None:
        if state.passed(self.interval):
            self.fit.before = self.fit.values()


def _asked(policy: Any, dataset: TransitionDataset | Path | str) -> tuple[Policy, TransitionDataset, EnvSpec]:
    """The policy itself, the data as it would see them, and the spaces of both."""
    agent = policy if isinstance(policy, Agent) else getattr(policy, "agent", None)
    if not isinstance(dataset, TransitionDataset):
        dataset = load_transition_dataset(dataset) if agent is None else read_as(agent, dataset)
    if agent is None:
        return policy, dataset, dataset.spec
    for name in ("obs_shape", "obs_dtype", "action_kind", "action_low", "action_high", "action_start"):
        ours, theirs = getattr(agent.spec, name), getattr(dataset.spec, name)
        if ours != theirs:
            raise ValueError(f"the agent's {name} is {ours}, the dataset's {theirs}; load it with spec=agent.spec")
    return agent.learner, dataset, agent.spec


def read_as(
    agent: Agent, source: Path | str, *, dataset_columns: Mapping[str, str] | None = None,
    action_range: Bounds | None = None, allow: Collection[str] = (),
) -> TransitionDataset:  # fmt: skip
    """Data as the agent's own was read, with its names, bounds and allowed faults where no others are given."""
    config = agent.config
    return load_transition_dataset(
        source, spec=agent.spec, columns={**config.dataset_columns, **(dataset_columns or {})},
        action_range=action_range or config.action_range, allow=(*config.allow, *allow),
    )  # fmt: skip


def _with_choices(dataset: TransitionDataset, choices: PolicyChoices, gamma: float) -> TransitionDataset:
    """What the fit needs of the data, and what the policy would have done next."""
    columns = {name: dataset.columns[name] for name in (*REQUIRED, "truncated")}
    columns["policy_next_actions"] = choices.at(columns["next_obs"])
    needed = TransitionDataset(columns, episode_ends=dataset.episode_ends, spec=dataset.spec)
    return needed.with_discounted_returns_to_go(gamma)


def _unseen(dataset: TransitionDataset, choices: PolicyChoices, seed: int) -> float:
    obs, actions = dataset.columns["obs"], dataset.columns["actions"]
    witnesses = min(WITNESSES, 20_000_000 // obs[0].numel())  # of pixels, as many as memory bears
    shuffled = torch.randperm(len(obs), generator=streams.generator(seed, "probes"))[:witnesses].to(obs.device)
    return unseen_action_fraction(obs[shuffled], actions[shuffled], choices.at(obs[shuffled[:PROBES]])[:, 0])


def _summary(fit: Fit, data: TransitionDataset, updates: int, *, unseen: float) -> OffPolicyEstimate:
    values, members = fit.values(), len(fit.learners)
    estimate = float(values.mean())
    error = float(fit.source.mean_over_episodes(values).std())
    interval = student_interval(estimate, error, members - 1)
    returns = data.columns["returns_to_go"][data.episode_offsets].double()
    return OffPolicyEstimate(
        estimate=estimate,
        interval=interval,
        behaviour_return=float(returns.mean()),
        behaviour_interval=_mean_interval(returns),
        behaviour_undiscounted_return=float(data.episode_returns().double().mean()),
        gamma=fit.learners[0].config.gamma,
        episodes=len(returns),
        updates=updates,
        members=members,
        unseen_actions=unseen,
        warnings=_warnings(fit, data, estimate, unseen),
    )


def _mean_interval(values: Tensor) -> Interval | None:
    if len(values) < 3:
        return None
    return student_interval(float(values.mean()), float(values.std()) / len(values) ** 0.5, len(values) - 1)


def _warnings(fit: Fit, data: TransitionDataset, estimate: float, unseen: float) -> list[str]:
    told, episodes = [], len(fit.obs)
    if unseen > MANY_UNSEEN:
        told.append(
            f"in {unseen:.0%} of states the policy's action is unlike all that the data did in similar states "
            "(5% is ordinary): there the estimate is a guess"
        )
    moved = abs(estimate - float(fit.before.mean()))
    if moved > STILL_MOVING * float(fit.learners[0].value_std):
        told.append(f"the estimate still moved by {moved:.4g} in the last fifth of the updates: give it more")
    beyond = _weight_beyond_cuts(data, fit.learners[0].config.gamma)
    if beyond > MUCH_BEYOND:
        told.append(
            f"{beyond:.0%} of the behaviour's discounted time lies beyond the ends of cut episodes: "
            "to that extent its return is a guess"
        )
    if episodes < FEW_EPISODES:
        told.append(f"the interval rests on {episodes} episode{'s' * (episodes > 1)}, which are few to judge by")
    return told


def _weight_beyond_cuts(data: TransitionDataset, gamma: float) -> float:
    """The mean of gamma^T over the episodes, 0 for those that terminated."""
    lengths = torch.diff(data.episode_offsets, append=data.episode_offsets.new_tensor([len(data)]))
    going_on = 1 - data.columns["dones"][data.episode_ends]
    return float((going_on * gamma**lengths).mean())
