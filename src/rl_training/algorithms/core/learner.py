"""Base class of all algorithms: networks, loss and policy of one agent. `Updater` trains one or several of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from rl_training.algorithms.core.config import AlgorithmConfig
from rl_training.algorithms.core.loss_checks import require_rows, require_used_loss
from rl_training.algorithms.core.memory import check_memory, has_memory
from rl_training.algorithms.core.ops import td_target
from rl_training.algorithms.core.updater import Updater
from rl_training.models import Normalizer
from rl_training.models.custom import CustomNetwork, check_own_network, with_spec
from rl_training.models.encoders import Statistics
from rl_training.models.masks import mask_columns
from rl_training.models.replay_reward_scale import ReplayRewardScale, ReturnStatistics
from rl_training.schedules import Schedule
from rl_training.types import ACTION_SPACES, Action, Batch, EnvSpec, Loss, ParameterGroup, UpdateResult

if TYPE_CHECKING:
    from typing_extensions import Self

VECTORS_ONLY = (
    "normalize_obs is for vectors only (simba and simba_v2 turn it on). Set normalize_obs=false for images, which the "
    "encoder scales"
)


def frozen(module: nn.Module) -> Callable[..., Any]:
    """Returns `module` as a function without gradients for its parameters; gradients flow through its inputs."""
    parameters = {name: parameter.detach() for name, parameter in module.named_parameters()}
    return lambda *inputs: functional_call(module, parameters, inputs)


def frozen_subset(critic: nn.Module, subset: Tensor | slice) -> Callable[..., Tensor]:
    """Returns the copies `subset` of a `Critic` as a function, [subset, rows], without gradients for its parameters."""
    # Custom feature networks are shared by all copies and have no leading axis.
    parameters = {
        name: parameter.detach()[subset] if name.startswith("net.") else parameter.detach()
        for name, parameter in critic.named_parameters()
    }
    return lambda *inputs: functional_call(critic, parameters, inputs)


class Column(NamedTuple):
    """A batch column beyond those of every transition, which a learner needs."""

    name: str
    shape: tuple[int, ...] = ()  # of one row
    dtype: torch.dtype = torch.float32
    like: str = ""  # a transition column of the same shape and dtype
    online: str = ""  # "episode end": a lane computes it from the whole episode; "": only a dataset or lane has it

    def layout(self, columns: Batch) -> tuple[tuple[int, ...], torch.dtype]:
        """Shape and dtype of one row beside these transition columns."""
        if not self.like:
            return self.shape, self.dtype
        return tuple(columns[self.like].shape[1:]), columns[self.like].dtype


class Learner(nn.Module):
    """Subclasses define the options (`config_type`), the loss (`loss`) and, where needed, the policy (`act`)."""

    name: ClassVar[str]
    lane: ClassVar[str]  # where batches come from: "offline", "replay", "sequence" or "rollout"
    lane_class: ClassVar[str] = ""  # name in `runtime.lanes.LANES`, if it is not `lane`
    config_type: ClassVar[type[AlgorithmConfig]]
    model_type: ClassVar[Any]  # a module class with `build(spec, config)`
    action_kinds: ClassVar[tuple[str, ...]]  # keys of ACTION_SPACES
    takes_pixels: ClassVar[bool] = False  # accepts images, alone or together with other images and vectors
    needs_expert: ClassVar[bool] = False  # needs an expert's dataset besides its environment steps
    reads_rewards: ClassVar[bool] = True  # False: rewards of the dataset or the environment have no effect
    targets: ClassVar[tuple[str, ...]] = ()  # parts of the model that have a target network
    needs: ClassVar[tuple[Column, ...]] = ()  # columns of a batch beyond those of every transition
    obs_clip: ClassVar[float | None] = None  # bound of normalised observations
    undecayed: ClassVar[tuple[str, ...]] = ()  # parameters that the option `weight_decay` leaves alone
    actor_parameters: ClassVar[tuple[str, ...]] = ()  # parameters of the option `actor_learning_rate`
    parts: ClassVar[tuple[str, ...]] = ()  # losses of separate parameters, side by side on a GPU; their sum is `loss`
    # Another class for Discrete actions, which `build` then creates (declare that it returns Any); not inherited.
    discrete_type: ClassVar[type[Learner] | None] = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.discrete_type is not None and "discrete_type" not in vars(cls):
            cls.discrete_type = None
            if "action_kinds" not in vars(cls):
                cls.action_kinds = tuple(kind for kind in cls.action_kinds if kind != "discrete")

    def __init__(self, model: nn.Module, config: AlgorithmConfig | None = None, **options: Any) -> None:
        super().__init__()
        self.config: Any = self.configured(config, options)
        self.model: Any = model
        if missing := [part for part in self.targets if not hasattr(model, part)]:
            raise TypeError(f"targets of {self.name} has {missing[0]!r}, but {type(model).__name__} has no such part")
        copies = {part: copy.deepcopy(getattr(model, part)) for part in self.targets}
        self.target = nn.ModuleDict(copies).requires_grad_(False)
        self.normalizer: nn.Module = self.new_normalizer()
        scales_rewards = self.lane == "replay" and getattr(self.config, "normalize_rewards", False)
        self.reward_scale: nn.Module = ReplayRewardScale() if scales_rewards else nn.Identity()
        self.setup()
        require_used_loss(self)

    @classmethod
    def build(cls, spec: EnvSpec, config: AlgorithmConfig | None = None, **options: Any) -> Self:
        """Creates a learner for these spaces; initial weights come from PyTorch's default generator."""
        cls.check_spec(spec)
        config = cls.configured(config, options)
        if (kind := cls.for_actions(spec.action_kind)) is not cls:
            return kind.build(spec, config)  # type: ignore[return-value]  # see `discrete_type`
        if spec.obs_parts and getattr(config, "normalize_obs", False):
            raise ValueError(VECTORS_ONLY)
        learner = cls(cls.build_model(spec, config), config)
        if spec.action_mask is not None and isinstance(learner.normalizer, Normalizer):
            learner.normalizer.unscaled = mask_columns(spec)
        if config.own_network is not None:
            check_own_network(learner, spec, config.own_network)
        check_memory(learner.model, config)
        return learner

    @classmethod
    def build_model(cls, spec: EnvSpec, config: Any) -> nn.Module:
        """Builds `model_type`, or the whole model that the option `network` names."""
        if config.own_network is not None:
            custom = CustomNetwork.load(config.own_network, config.network.given(), spec)
            if custom.role == "model":
                return custom.model(cls.model_type, config)
        return with_spec(cls.model_type.build(spec, config), spec)

    @classmethod
    def configured(cls, config: AlgorithmConfig | None, options: dict[str, Any]) -> AlgorithmConfig:
        """Returns the config, or a config made of the options; both at once raise an error."""
        if config is None:
            return cls.config_type(**options)
        if options or not isinstance(config, cls.config_type):
            raise TypeError(f"{cls.name} takes a {cls.config_type.__name__} or options, got {config!r} and {options}")
        return config

    @classmethod
    def for_actions(cls, kind: str) -> type[Learner]:
        """Returns the class for this kind of actions: `discrete_type` for Discrete ones, if it is set."""
        return cls.discrete_type if kind == "discrete" and cls.discrete_type is not None else cls

    @classmethod
    def check_spec(cls, spec: EnvSpec) -> None:
        takes_pixels = cls.for_actions(spec.action_kind).takes_pixels
        if spec.action_kind not in cls.action_kinds:
            wanted = " or ".join(ACTION_SPACES[kind] for kind in cls.action_kinds)
            raise TypeError(f"{cls.name} needs a {wanted} action space, got {ACTION_SPACES[spec.action_kind]}")
        if takes_pixels:
            return
        images = [part.name for part in spec.obs_parts if part.dtype == "uint8"]
        if images:
            raise TypeError(
                f"{cls.name} needs float vectors as observations, got the images {', '.join(images)}; leave images out "
                "with gymnasium.wrappers.FilterObservation"
            )
        if len(spec.obs_shape) != 1 or spec.obs_dtype == "uint8":
            stored = ", or store float vectors in the data" if cls.lane == "offline" else ""
            raise TypeError(
                f"{cls.name} needs float vectors as observations, got {spec.obs_dtype} {spec.obs_shape}; flatten them "
                f"with gymnasium.wrappers.FlattenObservation{stored}"
            )

    def setup(self) -> None:
        """Registers further parameters and buffers, and checks the config; called at the end of `__init__`."""

    def new_normalizer(self) -> nn.Module:
        """Normaliser of observations; the identity without the option `normalize_obs`."""
        if not getattr(self.config, "normalize_obs", False):
            return nn.Identity()
        if len(self.model.obs_shape) > 1 and self.lane != "offline":
            raise ValueError(VECTORS_ONLY)
        return Normalizer(self.model.obs_shape, clip=self.obs_clip)

    def running_statistics(self) -> Statistics | None:
        """Running statistics of the observations that the agent acts on; None without `normalize_obs` on replay."""
        if self.lane == "replay" and isinstance(self.normalizer, Normalizer):
            return self.normalizer.statistics()
        return None

    def return_statistics(self) -> ReturnStatistics | None:
        """Running statistics of the discounted returns; None without `normalize_rewards` on replay."""
        scale = self.reward_scale
        if not isinstance(scale, ReplayRewardScale):
            return None
        return ReturnStatistics(scale.statistics(), scale.largest, self.config.gamma)

    def loss(self, batch: Batch) -> Loss:
        """Sum of `parts`; algorithms without parts define their own."""
        if not self.parts:
            raise NotImplementedError(f"{type(self).__name__} must define loss(batch)")
        return reduce(Loss.joined, (getattr(self, part)(batch) for part in self.parts))

    def act(
        self, obs: Tensor, memory: Any = None, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Action:
        """Samples actions from `model.actor`, or takes the mode of its distribution."""
        policy = self.model.actor(self.normalizer(obs))
        actions = policy.mode() if deterministic else policy.sample(generator)
        return Action(actions.clamp(-1, 1) if actions.is_floating_point() else actions)

    def initial_memory(self, rows: int) -> Batch:
        """Initial recurrent state for this number of environments; empty if the policy has none."""
        return self.model.memory.initial(rows) if has_memory(self.model) else {}

    def start_online(self) -> None:
        """Called between the offline updates and the environment steps of a run with online fine-tuning."""

    def prepare(self, batch: Batch) -> Batch:
        """Processes a whole dataset or rollout once, before updates sample from it."""
        if isinstance(self.normalizer, Normalizer):
            if self.lane == "rollout":
                self.normalizer.merge(batch["obs"].flatten(0, 1))
            else:
                self.normalizer.fit(batch["obs"])
        return batch

    def normalized(self, batch: Batch) -> Batch:
        """Returns the batch with normalised obs and next_obs, and scaled rewards."""
        parts = {"obs": self.normalizer, "next_obs": self.normalizer, "rewards": self.reward_scale}
        return {**batch, **{name: scale(batch[name]) for name, scale in parts.items()}}

    def td_target(self, batch: Batch, next_values: Tensor) -> Tensor:
        """TD target [..., rows] of the next values [..., rows], with the discounts of the batch or else gamma."""
        require_rows(next_values, batch["rewards"], self)
        return td_target(batch["rewards"], batch["dones"], next_values, batch.get("discounts", self.config.gamma))

    def separate_parts(self) -> tuple[str, ...]:
        """Returns `parts`, or () if `loss` is not their sum or if they may share parameters, as in custom networks."""
        parameters = [parameter for _, parameter in self.named_parameters(remove_duplicate=False)]
        is_shared = len(set(parameters)) < len(parameters)
        is_own = type(self).loss is not Learner.loss or type(self.model) is not self.model_type
        return () if is_own or is_shared else self.parts

    def precision(self, batch: Batch) -> torch.autocast:
        """Autocast to `precision`, for one part of a loss: casts under `no_grad` are cached without gradients."""
        low = vars(self.config).get("precision") == "bfloat16"  # `getattr` with a default cannot be compiled
        return torch.autocast(batch["rewards"].device.type, torch.bfloat16, enabled=low)

    def phases(self, update: int) -> tuple[str, ...]:
        """Names of the losses minimised at this update, in order; "targets" moves the target networks."""
        return ("loss", "targets") if self.targets else ("loss",)

    def parameter_groups(self) -> list[ParameterGroup]:
        """Groups by `actor_learning_rate`, for the actor, and by `weight_decay`, which leaves `undecayed` alone."""
        rate, decay = (getattr(self.config, name, None) for name in ("actor_learning_rate", "weight_decay"))
        plain = ParameterGroup(self.config.learning_rate, max_grad_norm=self.config.max_grad_norm)
        decayed = plain._replace(kind="adamw", weight_decay=decay) if decay else plain
        actor = () if rate is None else self.actor_parameters
        undecayed = self.undecayed if decay else ()
        both = tuple(name for name in undecayed if name.startswith(actor))
        for_actor: dict[str, Any] = {"learning_rate": rate, "rate": "actor_learning_rate"}
        named = [
            plain._replace(names=both, **for_actor),
            plain._replace(names=tuple(name for name in undecayed if name not in both)),
            decayed._replace(names=tuple(name for name in actor if name not in both), **for_actor),
        ]
        return [*(group for group in named if group.names), decayed]

    def schedules(self) -> dict[str, Schedule]:
        """Schedules of this learner's buffers, by name."""
        return {}

    def warnings(self, metrics: Mapping[str, float | None]) -> list[str]:
        """Returns warnings about logged metrics, one sentence each."""
        return []

    def forward(self, batch: Any, phase: str = "loss", **options: Any) -> Any:
        """Calls the method `phase`, so that `functional_call` and `vmap` reach every loss and `act`."""
        return getattr(self, phase)(batch, **options)

    @property
    def is_traceable(self) -> bool:
        """Whether losses and actions can be traced: they depend on tensors alone.

        Your own algorithms and networks may not, and traces of recurrent ones would be too long.
        """
        return self.is_built_in and self.lane != "sequence" and self.config.own_network is None

    @property
    def is_built_in(self) -> bool:
        return type(self).__module__.partition(".")[0] == "rl_training"

    @cached_property
    def updater(self) -> Updater:
        try:
            return Updater([self])
        except AttributeError as error:  # of parameter_groups, for example; Module would report `updater` as missing
            raise TypeError(str(error)) from error

    def update(self, batch: Batch, *, global_step: int = 0) -> UpdateResult:
        """Updates the networks once on this batch, for use in your own training loop."""
        return self.updater.update(batch)
