"""Networks of the user whose weights cannot be trained are refused or reported."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rl_training.algorithms import PPOAlgorithm, PPOConfig
from rl_training.algorithms.core.learner import Learner
from rl_training.models import own_weights
from rl_training.types import EnvSpec


class Trunk(nn.Module):
    role = "trunk"

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(inputs, 8)
        self.more: Any = self.others(8)

    def others(self, width: int) -> Any:
        return None

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class InList(Trunk):
    def others(self, width: int) -> Any:
        return [nn.Linear(width, width)]


class InNestedTuple(Trunk):
    def others(self, width: int) -> Any:
        return {"actor": (nn.ReLU(), nn.Linear(width, width))}


class ParametersInDict(Trunk):
    def others(self, width: int) -> Any:
        return {"scale": nn.Parameter(torch.ones(width))}


class PlainTensor(Trunk):
    def others(self, width: int) -> Any:
        return torch.ones(width, requires_grad=True)


class InPart(Trunk):
    def others(self, width: int) -> Any:
        return nn.Sequential(InList(width))


class InModuleList(Trunk):
    def others(self, width: int) -> Any:
        return nn.ModuleList([nn.Linear(width, width)])


class ListedTwice(Trunk):
    """A list that repeats a registered layer, and layers without weights."""

    def others(self, width: int) -> Any:
        return [self.layer, nn.ReLU(), torch.ones(3), "text"]


class HiddenAndFrozen(Trunk):
    """Pretrained weights that are kept out of the checkpoints on purpose."""

    def others(self, width: int) -> Any:
        return [nn.Linear(width, width).requires_grad_(False)]


class Detached(Trunk):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).detach()


class NoGrad(Trunk):
    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)


class Frozen(NoGrad):
    def __init__(self, inputs: int) -> None:
        super().__init__(inputs)
        self.requires_grad_(False)


def build(network: type[nn.Module]) -> Learner:
    spec = EnvSpec((4,), "discrete", 2)
    return PPOAlgorithm.build(spec, PPOConfig(network=network))


@pytest.mark.parametrize(
    ("network", "place"),
    [
        (InList, "InList.more"), (InNestedTuple, "InNestedTuple.more"), (ParametersInDict, "ParametersInDict.more"),
        (PlainTensor, "PlainTensor.more"), (InPart, "InList.more"),
    ],
)  # fmt: skip
def test_weights_that_are_not_parameters_are_refused_with_class_and_attribute(network, place):
    with pytest.raises(ValueError, match=f"keeps weights in {place}, where PyTorch does not find them.*ModuleList"):
        build(network)


@pytest.mark.parametrize("network", [Trunk, InModuleList, ListedTwice, HiddenAndFrozen, Frozen])
def test_networks_whose_weights_are_parameters_or_frozen_are_accepted(network):
    build(network)


@pytest.mark.parametrize("network", [Detached, NoGrad])
def test_an_output_without_a_gradient_is_reported_once(network, capsys):
    own_weights._warn_once.cache_clear()
    build(network)
    build(network)
    (line,) = capsys.readouterr().err.splitlines()
    assert f":{network.__name__} returns an output without a gradient" in line
    assert "requires_grad_(False)" in line


def test_a_recurrent_layer_with_parametrized_weights_is_accepted():
    gru = torch.nn.utils.parametrizations.weight_norm(nn.GRU(3, 16, batch_first=True), "weight_hh_l0")
    own_weights.require_known_weights(gru, "Gru")


@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
def test_an_agent_can_be_built_where_gradients_are_off(guard):
    with guard():
        build(Trunk)


def test_a_whole_model_with_layers_in_a_list_is_refused():
    class Model(PPOAlgorithm.model_type):  # type: ignore[misc,valid-type]
        role = "model"

        @classmethod
        def build(cls, spec: EnvSpec, config: Any) -> nn.Module:
            model = super().build(spec, config)
            model.heads = [nn.Linear(4, 4)]
            return model

    with pytest.raises(ValueError, match=r"Model\.heads"):
        build(Model)
