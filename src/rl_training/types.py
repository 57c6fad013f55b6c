"""The words that every other module shares."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import reduce
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor

Array: TypeAlias = "np.ndarray[Any, Any]"
Arrays: TypeAlias = "dict[str, Array]"  # a batch's columns before they are tensors, as files hold them
Batch: TypeAlias = "dict[str, Tensor]"  # obs, actions, rewards, next_obs, dones (terminated only), truncated, and more
Metrics: TypeAlias = "dict[str, Tensor]"  # scalars that stay on the device until they are logged
ACTION_SPACES = {"box": "Box", "discrete": "Discrete", "multi_discrete": "MultiDiscrete"}  # as Gymnasium names them


class Loss(NamedTuple):
    """Terms are minimised, summed; metrics are only seen; buffers are new values of named buffers.

    `rows` has something for each row of the batch: "priorities" are what prioritised replay draws by, and all else
    is kept with the rows by a replay of sequences, for whoever goes on from them.
    """

    terms: Metrics
    metrics: Metrics = {}
    buffers: Metrics = {}
    rows: Metrics = {}

    @property
    def total(self) -> Tensor:
        return reduce(lambda a, b: a + b, self.terms.values())

    def plus(self, terms: Metrics, metrics: Metrics | None = None) -> Loss:
        """This loss with terms (and metrics) added, or put in the place of those of the same name."""
        return Loss({**self.terms, **terms}, {**self.metrics, **(metrics or {})}, self.buffers, self.rows)


class UpdateResult(NamedTuple):
    """What one update, or a run of them, has to tell."""

    metrics: Metrics
    num_gradient_steps: int
    priorities: Tensor | None = None  # of the last batch's rows
    latents: Metrics = {}  # what else was found at them


class Action(NamedTuple):
    """Actions in the policy's units (Box: [-1, 1]; others: int64 from 0), and what the policy wants remembered."""

    actions: Tensor
    memory: Any = None
    extras: Metrics = {}

    def with_actions(self, actions: Tensor) -> Action:
        """With other actions in the place of these; who remembers, remembers what was done."""
        memory = None if self.memory is None else {**self.memory, "action": actions}
        return self._replace(actions=actions, memory=memory)


class ObsPart(NamedTuple):
    """One entry of a Dict of observations: "uint8" a picture, "float32" a vector."""

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
    """What a learner must know of an environment, or of a dataset that stands for one."""

    obs_shape: tuple[int, ...]
    action_kind: str  # one of ACTION_SPACES
    action_dim: int  # Box: length of the flat action; Discrete: number of actions; MultiDiscrete: of choices
    obs_dtype: str = "float32"  # "float32", or "uint8" for pixels
    action_shape: tuple[int, ...] = ()
    action_low: tuple[float, ...] = ()  # Box only, flat, in the environment's own units
    action_high: tuple[float, ...] = ()
    action_start: int = 0  # Discrete only: what the environment calls action 0
    action_sizes: tuple[int, ...] = ()  # MultiDiscrete only, flat: of how many actions each choice is
    action_starts: tuple[int, ...] = ()  # MultiDiscrete only, flat: what the environment calls action 0 of each
    obs_parts: tuple[ObsPart, ...] = ()  # of a Dict only: what the bytes of an observation are, one after the other

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> EnvSpec:
        fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
        parts = tuple(ObsPart(name, tuple(shape), dtype) for name, shape, dtype in fields.get("obs_parts", ()))
        return cls(**{**fields, "obs_parts": parts})


class ParameterGroup(NamedTuple):
    """Parameters that share an optimizer kind and its settings; `names` are prefixes, () means all the rest."""

    learning_rate: float
    names: tuple[str, ...] = ()
    kind: str = "adam"
    eps: float = 1e-8
    weight_decay: float = 0.0
    max_grad_norm: float | None = None
    rate: str = "learning_rate"  # the option its learning rate comes from, by which a schedule moves it alone
    max_grad_ratio: float | None = None  # of a gradient's norm to that of its tensor
    warm_up: int = 0  # steps over which the learning rate rises to what it is


class Source(Protocol):
    """Hands out batches: a dataset, a ring, a rollout, or a mix of them."""

    samples_on_device: bool  # with `generator` and nothing of the host, so that a CUDA graph can hold the draw

    @property
    def generator(self) -> torch.Generator: ...

    def sample(self, batch_size: int, members: tuple[int, ...] = ()) -> Batch: ...


class PrioritizedSource(Source, Protocol):
    """Its batches say in `slots` where their rows rest, so that it can be told how much each is worth another look."""

    def set_priorities(self, slots: Tensor, priorities: Tensor) -> None: ...


class SequenceSource(Source, Protocol):
    """Its batches say in `rows` where their steps rest, so that it can keep what a learner remembers at them."""

    def write_back(self, rows: Tensor, latents: Batch) -> None: ...


class Trainable(Protocol):
    """What the Updater needs of a learner, so that neither has to import the other."""

    config: Any

    def phases(self, update: int) -> tuple[str, ...]: ...
    def parameter_groups(self) -> list[ParameterGroup]: ...
    def __call__(self, batch: Batch, phase: str = "loss") -> Loss: ...
    def named_parameters(self) -> Any: ...
    def named_buffers(self) -> Any: ...
    def to(self, device: Any) -> Any: ...


class Policy(Protocol):
    """Anything that can choose actions for observations in raw environment units."""

    def act(
        self, obs: Tensor, memory: Any = None, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Action: ...


SKIP_UPDATES = "halted"  # a learner that has a buffer of this name is left as it is by every update while that is 1
