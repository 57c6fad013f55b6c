"""Types that all packages share: batches, losses, actions, environment specs and protocols."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import reduce
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor

Array: TypeAlias = "np.ndarray[Any, Any]"
Arrays: TypeAlias = "dict[str, Array]"  # columns as NumPy arrays
Batch: TypeAlias = "dict[str, Tensor]"  # obs, actions, rewards, next_obs, dones (terminated only), truncated, ...
Metrics: TypeAlias = "dict[str, Tensor]"  # scalars; they stay on the device until they are logged
ACTION_SPACES = {"box": "Box", "discrete": "Discrete", "multi_discrete": "MultiDiscrete"}  # kind -> Gymnasium class
HALTED = "halted"  # name of a learner's buffer; while it is 1, updates change nothing


class Loss(NamedTuple):
    """A loss: the sum of `terms` is minimised."""

    terms: Metrics
    metrics: Metrics = {}  # logged only
    buffers: Metrics = {}  # new values of the learner's buffers, by name
    rows: Metrics = {}  # one value per row: "priorities" for prioritised replay, latents for sequence replay

    @property
    def total(self) -> Tensor:
        return reduce(lambda a, b: a + b, self.terms.values())

    def plus(self, terms: Metrics, metrics: Metrics | None = None) -> Loss:
        """Returns a copy with these terms and metrics added; equal names are replaced."""
        return self.joined(Loss(terms, metrics or {}))

    def joined(self, other: Loss) -> Loss:
        """Returns the terms, metrics, buffers and rows of both; `other` replaces equal names."""
        return Loss(*({**own, **new} for own, new in zip(self, other, strict=True)))


class UpdateResult(NamedTuple):
    """Result of one update or of several in a row."""

    metrics: Metrics
    num_gradient_steps: int
    priorities: Tensor | None = None  # of the last batch
    latents: Metrics = {}  # of the last batch, for sequence replay


class Action(NamedTuple):
    """Actions in policy units (Box: [-1, 1]; others: int64 from 0) and the recurrent state."""

    actions: Tensor
    memory: Any = None  # recurrent state of the policy
    extras: Metrics = {}  # more columns to store with the step, such as PPO's raw_actions

    def with_actions(self, actions: Tensor) -> Action:
        """Returns a copy with these actions, also in a recurrent state that holds the last action."""
        memory = {**self.memory, "action": actions} if "action" in (self.memory or {}) else self.memory
        return self._replace(actions=actions, memory=memory)


class ObsPart(NamedTuple):
    """One part of an observation with images: an image, uint8 [channels, height, width], or a vector ("float32")."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.size if self.dtype == "uint8" else 4 * self.size


@dataclass(frozen=True)
class EnvSpec:
    """Observation and action spaces of an environment or a dataset."""

    obs_shape: tuple[int, ...]
    action_kind: str  # one of ACTION_SPACES
    action_dim: int  # Box: length of the flat action; Discrete: number of actions; MultiDiscrete: number of choices
    obs_dtype: str = "float32"  # "float32", or "uint8" for pixels
    action_shape: tuple[int, ...] = ()
    action_low: tuple[float, ...] = ()  # Box only, flat, in environment units
    action_high: tuple[float, ...] = ()
    action_start: int = 0  # Discrete only: the environment's first action
    action_sizes: tuple[int, ...] = ()  # MultiDiscrete only, flat: number of actions of each choice
    action_starts: tuple[int, ...] = ()  # MultiDiscrete only, flat: the environment's first action of each choice
    obs_parts: tuple[ObsPart, ...] = ()  # several parts with images: the order in which they are packed into bytes
    action_mask: int | None = field(default=None, compare=False)  # first column (byte if packed) of the action mask
    # The environment's own spaces as JSON (see `data/spaces`), where they differ from the library's form.
    obs_space: dict[str, Any] | None = field(default=None, hash=False)
    action_space: dict[str, Any] | None = field(default=None, hash=False)
    # Tables only: a name for each entry of obs and for each choice of a MultiDiscrete action, and the values of
    # categories by column, "actions" for a Discrete action.
    obs_names: tuple[str, ...] | None = field(default=None, compare=False)
    action_columns: tuple[str, ...] | None = field(default=None, compare=False)
    categories: dict[str, list[str]] | None = field(default=None, hash=False)
    action_dtype: str | None = field(default=None, compare=False)  # Box only, if it is not float32

    @property
    def choice_sizes(self) -> tuple[int, ...]:
        """Number of actions of each choice; a Discrete action is one choice."""
        return self.action_sizes or (self.action_dim,)

    def to_json(self) -> dict[str, Any]:
        values = asdict(self)
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> EnvSpec:
        fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
        parts = tuple(ObsPart(name, tuple(shape), dtype) for name, shape, dtype in fields.get("obs_parts", ()))
        return cls(**{**fields, "obs_parts": parts})


class ParameterGroup(NamedTuple):
    """Optimizer settings of a group of parameters."""

    learning_rate: float
    names: tuple[str, ...] = ()  # prefixes of parameter names; (): all that no earlier group has
    kind: str = "adam"
    eps: float = 1e-8
    weight_decay: float = 0.0
    max_grad_norm: float | None = None
    rate: str = "learning_rate"  # option that sets the learning rate; a schedule of that option changes this group
    max_grad_ratio: float | None = None  # adaptive gradient clipping: largest |gradient| / |parameter|
    warm_up: int = 0  # steps of linear learning rate warm-up
    betas: tuple[float, float] = (0.9, 0.999)


class Source(Protocol):
    """A dataset, replay buffer or rollout that batches are sampled from."""

    position: int  # state of sampling that is kept on the host; a captured graph holds for one position
    samples_on_device: bool  # sampling uses only `generator` and device tensors, so a CUDA graph can capture it

    @property
    def generator(self) -> torch.Generator: ...

    def sample(self, batch_size: int, members: tuple[int, ...] = ()) -> Batch: ...
    def skip(self, batches: int, batch_size: int) -> None: ...


class Trainable(Protocol):
    """The part of `Learner` that `Updater` uses; a protocol avoids an import cycle."""

    config: Any

    def phases(self, update: int) -> tuple[str, ...]: ...
    def parameter_groups(self) -> list[ParameterGroup]: ...
    def __call__(self, batch: Batch, phase: str = "loss") -> Loss: ...
    def named_parameters(self) -> Any: ...
    def named_buffers(self) -> Any: ...
    def named_modules(self) -> Any: ...
    def to(self, device: Any) -> Any: ...


class Policy(Protocol):
    """Chooses actions for observations in environment units."""

    def act(
        self, obs: Tensor, memory: Any = None, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Action: ...
