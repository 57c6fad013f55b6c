"""SimBa networks against NumPy, their initial weights, and the options that describe them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rl_training.algorithms import CATALOGUE, Learner
from rl_training.models.batch_renorm import BatchRenorm, RenormBlock
from rl_training.models.heads import SquashedPolicy
from rl_training.models.layers import Layers
from rl_training.models.mlp import EnsembleLayerNorm
from rl_training.models.simba import SimbaBlock, SimbaTrunk, simba_output
from rl_training.models.values import Critic
from rl_training.types import EnvSpec

SPEC = EnvSpec((3,), "box", 2)
SMALL = {"kind": "simba", "hidden_sizes": [8], "critic_hidden_sizes": [6, 6]}
ALGORITHMS = ("sac", "td3", "redq", "crossq", "tqc", "mbpo")


def layers(blocks: int, width: int = 4) -> Layers:
    return Layers((width,) * blocks, kind="simba")


def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale + shift


def forward(x: Any, w: dict[str, Any], blocks: int) -> Any:
    """The network by its equations; weights are [fan_in, fan_out]."""
    x = x @ w["0.embed.weight"] + w["0.embed.bias"]
    for block in (f"0.blocks.{number}." for number in range(blocks)):
        inner = layer_norm(x, w[f"{block}norm.weight"], w[f"{block}norm.bias"])
        inner = np.maximum(inner @ w[f"{block}body.0.weight"] + w[f"{block}body.0.bias"], 0)
        x = x + inner @ w[f"{block}body.2.weight"] + w[f"{block}body.2.bias"]
    return layer_norm(x, w["0.norm.weight"], w["0.norm.bias"]) @ w["1.weight"] + w["1.bias"]


@pytest.mark.parametrize("blocks", [1, 2])
def test_a_policy_equals_its_equations_in_numpy(blocks, scatter):
    policy = SquashedPolicy(3, 2, layers(blocks))
    weights = {name: w.T if w.ndim == 2 else w for name, w in scatter(policy.net).items()}
    obs = torch.randn(5, 3)
    found = policy(obs)
    mean, raw = np.split(forward(obs.double().numpy(), weights, blocks), 2, -1)
    np.testing.assert_allclose(found.mean.detach(), mean, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.log_std.detach(), -10 + 12 * (1 + np.tanh(raw)) / 2, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("blocks", [1, 2])
def test_each_critic_equals_its_equations_in_numpy(blocks, scatter):
    critic = Critic(3, 2, layers(blocks), copies=3)
    weights = scatter(critic.net)
    obs, actions = torch.randn(5, 3), torch.rand(5, 2)
    x = torch.cat([obs, actions], -1).double().numpy()
    expected = [forward(x, {name: w[copy] for name, w in weights.items()}, blocks)[:, 0] for copy in range(3)]
    np.testing.assert_allclose(critic(obs, actions).detach(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("copies", [None, 3])
def test_initial_weights_are_orthogonal_outside_the_blocks_and_he_normal_inside(copies):
    trunk = SimbaTrunk(5, (64, 64), nn.ReLU, copies)
    embed = trunk.embed.weight if copies is None else trunk.embed.weight.mT  # [..., width, inputs]
    torch.testing.assert_close(embed.mT @ embed, torch.eye(5).expand_as(embed.mT @ embed), atol=1e-5, rtol=0)
    output = simba_output(64, 5, copies).weight
    output = output if copies is None else output.mT  # [..., outputs, width]
    torch.testing.assert_close(output @ output.mT, torch.eye(5).expand_as(output @ output.mT), atol=1e-5, rtol=0)
    blocks: Any = trunk.blocks
    for block in blocks:
        for layer, fan_in in ((block.body[0], 64), (block.body[2], 256)):
            assert layer.weight.std().item() == pytest.approx(math.sqrt(2 / fan_in), rel=0.03)
    biases = [value for name, value in trunk.named_parameters() if name.endswith("bias")]
    assert not any(value.any() for value in biases)


def build(name: str, network: Any = SMALL, **options: Any) -> Learner:
    learner: Learner = CATALOGUE[name].build(SPEC, network=network, **options)
    return learner


@pytest.mark.parametrize("name", ALGORITHMS)
def test_actor_and_critics_have_blocks_of_their_own_width(name):
    model: Any = build(name).model
    actor, critic = (dict(part.net.named_parameters()) for part in (model.actor, model.critic))
    shapes = [{value.shape[-1] for value in part.values() if value.dim() > 1} for part in (actor, critic)]
    assert 32 in shapes[0]
    assert 24 in shapes[1]
    assert len([value for value in critic if "body.0.weight" in value]) == 2


def test_redq_keeps_the_initial_weights_of_the_blocks():
    model: Any = build("redq").model
    assert model.critic.net[0].blocks[0].body[0].weight.abs().max() > math.sqrt(6 / 30)  # the bound of Xavier uniform


def test_crossq_has_batch_renormalisation_instead_of_layer_norm():
    modules = [*build("crossq").model.modules()]
    assert not any(isinstance(each, nn.LayerNorm | EnsembleLayerNorm) for each in modules)
    assert sum(isinstance(each, RenormBlock) for each in modules) == 1 + 2
    # Of the inputs, in each block and before the output layer, of the actor and of the critics.
    assert sum(isinstance(each, BatchRenorm) for each in modules) == (1 + 1 + 1) + (1 + 2 + 1)


def test_a_block_with_batch_renormalisation_is_residual():
    block = SimbaBlock(4, nn.ReLU)
    x, renormalised = torch.randn(6, 4), RenormBlock(block)
    of_batch = (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-3).sqrt()
    torch.testing.assert_close(renormalised.with_statistics(x)[0], x + block.body(of_batch))
    torch.testing.assert_close(renormalised(x), x + block.body(x / 1.001**0.5))  # by a running mean of 0 and std of 1


def test_crossq_does_not_train_biases_that_its_normalisation_cancels():
    model: Any = build("crossq").model
    untrained = [name for name, value in model.named_parameters() if not value.requires_grad]
    assert untrained == [f"actor.net.{name}.bias" for name in ("0", "1", "2.body.2")] + [
        f"critic.net.{name}.bias" for name in ("0", "1", "2.body.2", "3.body.2")
    ]
    assert not any(model.get_parameter(name).any() for name in untrained)


def test_an_update_of_crossq_moves_the_statistics_inside_the_blocks():
    learner = build("crossq", policy_delay=1)
    columns = {name: torch.randn(16, 3) for name in ("obs", "next_obs")}
    rows = {"actions": torch.rand(16, 2), "rewards": torch.rand(16), "dones": torch.zeros(16)}
    learner.update({**columns, **rows})
    moved = {name: value for name, value in learner.model.named_buffers() if name.endswith("count")}
    assert len(moved) == 7
    assert all(value == 1 for value in moved.values())


def test_weight_decay_shrinks_the_networks_and_leaves_the_temperature_alone():
    groups = {name: build(name, weight_decay=0.01).parameter_groups() for name in ("sac", "td3", "crossq")}
    found = {name: [(group.names, group.kind, group.weight_decay) for group in each] for name, each in groups.items()}
    temperature, networks = (("log_alpha",), "adam", 0.0), ((), "adamw", 0.01)
    assert found == {"sac": [temperature, networks], "td3": [networks], "crossq": [temperature, networks]}
    assert [group.kind for group in build("sac").parameter_groups()] == ["adam"]
