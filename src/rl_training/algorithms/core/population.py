"""Several seeds of one learner: parameters are stacked along a leading member axis and the loss is `vmap`ped."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from rl_training.models.encoders import Statistics
from rl_training.models.products import Linear
from rl_training.models.replay_reward_scale import ReturnStatistics
from rl_training.types import Action, Batch, Loss

Tensors = dict[str, Tensor]
RULE = (
    "several seeds train as one program (torch.vmap), so a loss must not call .item(), branch on values or set "
    "requires_grad; torch.where chooses values, and frozen(module) stops gradients"
)


@torch.no_grad()
def stack_members(learners: Sequence[nn.Module]) -> tuple[Tensors, Tensors]:
    """Stacks all parameters and buffers; each member then holds views of its slice, so it acts and saves like one."""
    params = {name: _stack([member.get_parameter(name) for member in learners])
              for name, _ in learners[0].named_parameters()}  # fmt: skip
    for path, module in learners[0].named_modules():
        if isinstance(module, Linear):  # with `vmap`, gradients of weights are transposed in memory
            weight = params[f"{path}.weight"]
            weight.data = weight.data.mT.contiguous().mT
    buffers = {name: _stack([member.get_buffer(name) for member in learners])
               for name, _ in learners[0].named_buffers()}  # fmt: skip
    for index, member in enumerate(learners):
        for name, stacked in params.items():
            member.get_parameter(name).data = stacked.detach()[index]
        for name, stacked in buffers.items():
            *path, leaf = name.split(".")
            member.get_submodule(".".join(path))._buffers[leaf] = stacked[index]
    return params, buffers


def _stack(tensors: Sequence[Tensor]) -> Tensor:
    return torch.stack([tensor.detach() for tensor in tensors]).requires_grad_(tensors[0].requires_grad)


class Population:
    """Runs the loss and the policy of one learner for all members."""

    def __init__(self, learners: Sequence[Any]) -> None:
        self.learner = copy.deepcopy(learners[0]).to("meta")
        self.size = len(learners)
        self.params, self.buffers = stack_members(learners)

    def loss(self, batch: Batch, phase: str = "loss") -> Loss:
        """Loss of every member on its part of the batch; all tensors have a leading member axis."""
        return self._vmap(lambda state, rows: self._member(state, rows, phase), batch)

    def act(
        self, obs: Tensor, memory: Any = None, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Action:
        """Actions of every member for observations [members, rows, ...]."""
        options = {"deterministic": deterministic, "generator": generator}

        def member(state: Tensors, rows: Tensor) -> tuple[Tensor, Tensors]:
            chosen: Action = self._member(state, rows, "act", **options)
            return chosen.actions, chosen.extras

        actions, extras = self._vmap(member, obs)
        return Action(actions, extras=extras)

    def running_statistics(self) -> Statistics | None:
        """Returns `Learner.running_statistics`, stacked over the members."""
        own = self.learner.running_statistics()
        if own is None:
            return None
        return self._statistics("normalizer", own.unscaled)

    def return_statistics(self) -> ReturnStatistics | None:
        """Returns `Learner.return_statistics`, stacked over the members."""
        own = self.learner.return_statistics()
        if own is None:
            return None
        return ReturnStatistics(self._statistics("reward_scale"), self.buffers["reward_scale.largest"], own.gamma)

    def _statistics(self, module: str, unscaled: slice | None = None) -> Statistics:
        mean, std, count = (self.buffers[f"{module}.{name}"] for name in ("mean", "std", "count"))
        return Statistics(mean, std, count, unscaled)

    def _member(self, state: Tensors, inputs: Any, phase: str, **options: Any) -> Any:
        # Learners have no tied weights, and the search for them takes longer than a small network.
        return functional_call(self.learner, state, (inputs, phase), options, tie_weights=False)

    def _vmap(self, function: Any, inputs: Any) -> Any:
        try:
            return torch.vmap(function, randomness="different")({**self.params, **self.buffers}, inputs)
        except RuntimeError as error:  # keeps its traceback, which names the line of the user's code
            if any(word in str(error) for word in ("vmap", "functorch")):
                error.args = (f"{RULE}. PyTorch reports: {str(error).partition('. ')[0]}",)
            raise
