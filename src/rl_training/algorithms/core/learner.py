"""One agent: its networks and the loss that trains them. Written for one agent; `Updater` runs one or many."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from rl_training.algorithms.core.columns import Column
from rl_training.algorithms.core.config import AlgorithmConfig
from rl_training.algorithms.core.updater import Updater
from rl_training.models import Normalizer
from rl_training.schedules import Schedule
from rl_training.types import ACTION_SPACES, Action, Batch, EnvSpec, Loss, ParameterGroup, UpdateResult

if TYPE_CHECKING:
    from typing_extensions import Self


def frozen(module: nn.Module) -> Callable[..., Any]:
    """Call `module` without sending gradients to its parameters; they still flow through its inputs."""
    still = {name: parameter.detach() for name, parameter in module.named_parameters()}
    return lambda *inputs: functional_call(module, still, inputs)


class Learner(nn.Module):
    """Subclasses say what can be set (`config_type`), what is minimised (`loss`) and how to act (`act`)."""

    name: ClassVar[str]
    lane: ClassVar[str]  # where batches come from: "offline", "replay", "sequence" or "rollout"
    lane_class: ClassVar[str] = ""  # name in `runtime.lanes.LANES`, if it is not `lane`
    config_type: ClassVar[type[AlgorithmConfig]]
    model_type: ClassVar[Any]  # a module class with `build(spec, config)`
    action_kinds: ClassVar[tuple[str, ...]]  # of ACTION_SPACES
    takes_pixels: ClassVar[bool] = False
    takes_dict: ClassVar[bool] = False  # a Dict of one image and vectors
    needs_expert: ClassVar[bool] = False  # an expert's dataset, beside its own environment steps
    targets: ClassVar[tuple[str, ...]] = ()  # parts of the model that have a target network
    needs: ClassVar[tuple[Column, ...]] = ()  # columns of a batch beyond those of every transition

    def __init__(self, model: nn.Module, config: AlgorithmConfig | None = None, **options: Any) -> None:
        super().__init__()
        self.config: Any = self.configured(config, options)
        self.model: Any = model
        copies = {part: copy.deepcopy(getattr(model, part)) for part in self.targets}
        self.target = nn.ModuleDict(copies).requires_grad_(False)

    @classmethod
    def build(cls, spec: EnvSpec, config: AlgorithmConfig | None = None, **options: Any) -> Self:
        """A learner with networks that fit these spaces; initial weights come from torch's default generator."""
        cls.check_spec(spec)
        config = cls.configured(config, options)
        return cls(cls.model_type.build(spec, config), config)

    @classmethod
    def configured(cls, config: AlgorithmConfig | None, options: dict[str, Any]) -> AlgorithmConfig:
        """The config itself, or one made of options; never both, since one would be ignored."""
        if config is None:
            return cls.config_type(**options)
        if options or not isinstance(config, cls.config_type):
            raise TypeError(f"{cls.name} takes a {cls.config_type.__name__} or options, got {config!r} and {options}")
        return config

    @classmethod
    def check_spec(cls, spec: EnvSpec) -> None:
        if spec.action_kind not in cls.action_kinds:
            wanted = " or ".join(ACTION_SPACES[kind] for kind in cls.action_kinds)
            raise TypeError(f"{cls.name} needs a {wanted} action space, got {ACTION_SPACES[spec.action_kind]}")
        if spec.obs_parts and not cls.takes_dict:
            names = ", ".join(part.name for part in spec.obs_parts)
            raise TypeError(
                f"{cls.name} takes one Box of observations, got a Dict of {names}; dreamer takes a picture and vectors "
                "together, for others wrap the environment"
            )
        if not cls.takes_pixels and (len(spec.obs_shape) != 1 or spec.obs_dtype == "uint8"):
            raise TypeError(f"{cls.name} takes vectors of floats, got {spec.obs_dtype} of shape {spec.obs_shape}")

    def loss(self, batch: Batch) -> Loss:
        raise NotImplementedError(f"{type(self).__name__} must say what it minimises")

    def act(
        self, obs: Tensor, memory: Any = None, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Action:
        raise NotImplementedError(f"{type(self).__name__} must say how it acts")

    def initial_memory(self, rows: int) -> Batch:
        """What `act` remembers of so many environments at their beginning; nothing, if it goes by what it sees."""
        return {}

    def prepare(self, batch: Batch) -> Batch:
        """Once for a dataset or rollout, before updates draw from it."""
        return batch

    def phases(self, update: int) -> tuple[str, ...]:
        """What to descend at this update, in order, and whether targets move; chosen on the host, a graph each."""
        return ("loss", "targets") if self.targets else ("loss",)

    def parameter_groups(self) -> list[ParameterGroup]:
        return [ParameterGroup(self.config.learning_rate, max_grad_norm=self.config.max_grad_norm)]

    def schedules(self) -> dict[str, Schedule]:
        """Numbers that move by themselves as training goes on: buffers of this learner, by name."""
        return {}

    def warnings(self, metrics: Mapping[str, float | None]) -> list[str]:
        """What is amiss by these numbers, in sentences; asked where they are logged, so that no update waits for it."""
        return []

    def forward(self, batch: Any, phase: str = "loss", **options: Any) -> Any:
        """A phase, or `act`, by name: the door for those who call a module and not a method."""
        return getattr(self, phase)(batch, **options)

    @cached_property
    def updater(self) -> Updater:
        return Updater([self])

    def update(self, batch: Batch, *, global_step: int = 0) -> UpdateResult:
        """One update on this batch, for those who bring their own loop."""
        return self.updater.update(batch)


def actor_apart(config: Any, *names: str) -> list[ParameterGroup]:
    """Where the actor has a learning rate of its own, a group for it and for `names`; the rest in another."""
    rest = ParameterGroup(config.learning_rate, max_grad_norm=config.max_grad_norm)
    if config.actor_learning_rate is None:
        return [rest]
    own = {"learning_rate": config.actor_learning_rate, "rate": "actor_learning_rate"}
    return [rest._replace(names=("model.actor.", *names), **own), rest]


class OfflineLearner(Learner):
    """A learner that meets all its data at once, so observation statistics are fitted once and stay."""

    lane = "offline"

    def __init__(self, model: nn.Module, config: AlgorithmConfig | None = None, **options: Any) -> None:
        super().__init__(model, config, **options)
        self.normalizer: nn.Module = Normalizer(self.model.obs_shape) if self.config.normalize_obs else nn.Identity()

    def prepare(self, batch: Batch) -> Batch:
        if isinstance(self.normalizer, Normalizer):
            self.normalizer.fit(batch["obs"])
        return batch

    def standardized(self, batch: Batch) -> Batch:
        """The batch with observations as the networks see them."""
        return {**batch, **{name: self.normalizer(batch[name]) for name in ("obs", "next_obs")}}

    def act(
        self, obs: Tensor, memory: Any = None, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Action:
        policy = self.model.actor(self.normalizer(obs))
        actions = policy.mode() if deterministic else policy.sample(generator)
        return Action(actions if actions.dtype == torch.int64 else actions.clamp(-1, 1))
