"""SimbaV2 networks against NumPy, their initial weights, and unit norms after updates."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rl_training.algorithms import CATALOGUE, Learner, Updater
from rl_training.models.heads import DeterministicPolicy, SquashedPolicy
from rl_training.models.layers import Layers
from rl_training.models.simba_v2 import SphereTrunk
from rl_training.models.unit_norm import UnitLinear, unit_norm_axes
from rl_training.models.values import Critic
from rl_training.types import EnvSpec

SPEC = EnvSpec((3,), "box", 2)
SMALL = {"kind": "simba_v2", "hidden_sizes": [8], "critic_hidden_sizes": [6, 6]}
ALGORITHMS = ("sac", "td3", "redq", "tqc", "mbpo")


def layers(blocks: int, width: int = 4) -> Layers:
    return Layers((width,) * blocks, kind="simba_v2")


def unit(x: Any) -> Any:
    return x / np.sqrt((x**2).sum(-1, keepdims=True))


def hidden(x: Any, w: dict[str, Any], blocks: int, width: int) -> Any:
    """The features by their equations; weights are [fan_in, fan_out], and s, alpha are the learned vectors."""
    x = np.concatenate([x, np.full((len(x), 1), 3.0)], -1)
    x = unit(w["0.0.scaler.weight"] * (unit(x) @ w["0.0.linear.weight"]))
    for block in (f"0.{number}." for number in range(1, blocks + 1)):
        inner = np.maximum(w[f"{block}scaler.weight"] * (x @ w[f"{block}expand.weight"]), 0) + 1e-8
        y = unit(inner @ w[f"{block}contract.weight"])
        alpha = w[f"{block}alpha.weight"] * math.sqrt(width) / (blocks + 1)
        x = unit((1 - alpha) * x + alpha * y)
    return x


def output(x: Any, w: dict[str, Any], path: str) -> Any:
    x = w[f"{path}scaler.weight"] * (x @ w[f"{path}hidden.weight"])
    return x @ w[f"{path}last.weight"] + w[f"{path}bias"]


@pytest.mark.parametrize("blocks", [1, 2])
def test_a_policy_equals_its_equations_in_numpy(blocks, scatter):
    policy = SquashedPolicy(3, 2, layers(blocks))
    weights, obs = scatter(policy.net), torch.randn(5, 3)
    found, features = policy(obs), hidden(obs.double().numpy(), weights, blocks, 4)
    mean, raw = (output(features, weights, f"1.parts.{number}.") for number in range(2))
    np.testing.assert_allclose(found.mean.detach(), mean, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.log_std.detach(), -10 + 12 * (1 + np.tanh(raw)) / 2, rtol=1e-4, atol=1e-4)


def test_the_mean_action_of_a_deterministic_policy_equals_its_equations_in_numpy(scatter):
    policy = DeterministicPolicy(3, 2, layers(1))
    weights, obs = scatter(policy.net), torch.randn(5, 3)
    expected = np.tanh(output(hidden(obs.double().numpy(), weights, 1, 4), weights, "1."))
    np.testing.assert_allclose(policy(obs).mode().detach(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("blocks", [1, 2])
def test_each_critic_equals_its_equations_in_numpy(blocks, scatter):
    critic = Critic(3, 2, layers(blocks), copies=3)
    weights, obs, actions = scatter(critic.net), torch.randn(5, 3), torch.rand(5, 2)
    x = torch.cat([obs, actions], -1).double().numpy()
    for number, found in enumerate(critic(obs, actions).detach()):
        own = {name: value[number] for name, value in weights.items()}
        np.testing.assert_allclose(found, output(hidden(x, own, blocks, 4), own, "1.")[:, 0], rtol=1e-4, atol=1e-4)


def test_a_tiny_network_gives_the_numbers_worked_out_by_hand():
    """Input 4 becomes (4, 3) / 5. All weights are the identity, repeated where a layer widens."""
    net = Layers((2,), kind="simba_v2").network(1, 1)
    with torch.no_grad():
        net[0][0].linear.weight.copy_(torch.eye(2))
        net[0][1].expand.weight.copy_(torch.eye(2).repeat(1, 4))
        net[0][1].contract.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 0.0]]).repeat(4, 1))
        net[1].hidden.weight.copy_(torch.eye(2))
        net[1].last.weight.copy_(torch.tensor([[0.6], [0.8]]))
        net[1].bias.fill_(0.5)
    # The embedding is (0.8, 0.6), the block's y is (1, 0), and alpha is 1/2: x = (0.9, 0.3) / sqrt(0.9).
    expected = (0.6 * 0.9 + 0.8 * 0.3) / math.sqrt(0.9) + 0.5
    assert net(torch.tensor([[4.0]])).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("copies", [None, 3])
def test_initial_weights_are_orthogonal_with_unit_norm_for_every_output(copies):
    trunk = SphereTrunk(5, (16, 16), nn.ReLU, copies)
    assert_unit_norms(trunk)
    contract: Any = trunk[1].contract.weight  # type: ignore[union-attr]
    products = contract.mT @ contract  # 64 inputs, 16 outputs: all columns can be orthogonal
    torch.testing.assert_close(products, torch.eye(16).expand_as(products), atol=1e-5, rtol=0)


def test_initial_scales_are_those_of_the_paper():
    net = Layers((8, 8), kind="simba_v2").network(3, 1)
    embedding, first, second = net[0]
    factors = [(each.weight * each.multiplier).unique() for each in (embedding.scaler, first.scaler, second.alpha)]
    torch.testing.assert_close(torch.cat(factors), torch.tensor([math.sqrt(2 / 8), math.sqrt(2 / 8) / 2, 1 / 3]))
    assert second.alpha.weight.unique().item() == pytest.approx(1 / math.sqrt(8))
    assert net[1].scaler.weight.unique().item() == 1
    assert not net[1].bias.any()


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_features_have_unit_norm_and_still_depend_on_the_norm_of_the_input(scale):
    trunk = SphereTrunk(3, (8, 8), nn.ReLU)
    inputs = scale * torch.randn(6, 3)
    features = trunk(inputs)
    torch.testing.assert_close(features.norm(dim=-1), torch.ones(6))
    assert not torch.allclose(features, trunk(2 * inputs), atol=1e-7)


def assert_unit_norms(module: nn.Module) -> None:
    axes = unit_norm_axes(module)
    assert axes
    for name, axis in axes.items():
        norms = module.get_parameter(name).detach().norm(dim=axis)
        torch.testing.assert_close(norms, torch.ones_like(norms), atol=1e-5, rtol=0)


def build(name: str, network: Any = SMALL, **options: Any) -> Learner:
    learner: Learner = CATALOGUE[name].build(SPEC, network=network, learning_rate=0.05, **options)
    return learner


def batch(*lead: int) -> dict[str, Any]:
    columns = {name: torch.randn(*lead, 16, 3) for name in ("obs", "next_obs")}
    rows = {"actions": torch.rand(*lead, 16, 2), "rewards": torch.rand(*lead, 16), "dones": torch.zeros(*lead, 16)}
    return {**columns, **rows}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_updates_move_all_weights_and_keep_their_norms(name):
    learner = build(name)
    before = {path: value.clone() for path, value in learner.named_parameters()}
    for _ in range(20):  # REDQ's actor is updated every 20
        learner.update(batch())
    assert_unit_norms(learner.model)
    unmoved = [path for path, value in learner.named_parameters() if value.requires_grad and value.equal(before[path])]
    assert not unmoved


def test_one_step_is_adam_followed_by_the_projection():
    learner, rows = build("td3"), batch()
    name, columns = "model.critic.net.1.hidden.weight", learner.get_parameter("model.critic.net.1.hidden.weight")
    before = columns.detach().clone()
    learner.updater.step(rows, ("critic_loss",))
    gradient = learner.get_parameter(name).grad
    assert gradient is not None
    stepped = before - 0.05 * gradient / (gradient.abs() + 1e-8)  # the first step of Adam
    expected = stepped / stepped.square().sum(1, keepdim=True).sqrt()
    torch.testing.assert_close(columns.detach(), expected, atol=1e-6, rtol=1e-5)


def test_every_member_of_a_population_keeps_unit_norms():
    members = [build("sac") for _ in range(3)]
    population = Updater(members)
    for _ in range(3):
        population.update(batch(3))
    for member in members:
        assert_unit_norms(member.model)


def test_an_update_without_the_actor_leaves_its_weights_as_they_are():
    learner = build("td3")
    before = copy.deepcopy(learner.model.actor)
    learner.update(batch())
    assert all(a.equal(b) for a, b in zip(learner.model.actor.parameters(), before.parameters(), strict=True))


def test_target_networks_are_averages_and_are_not_projected():
    learner = build("sac", tau=0.5)
    before = {path: value.clone() for path, value in learner.target.named_parameters()}
    learner.update(batch())
    for path, value in learner.target.named_parameters():
        online = learner.model.get_parameter(path)
        torch.testing.assert_close(value, (before[path] + online.detach()) / 2)


def test_redq_keeps_the_initial_weights():
    assert_unit_norms(build("redq").model)


def test_sac_with_discrete_actions_takes_it():
    spec = EnvSpec((3,), "discrete", 4)
    learner = CATALOGUE["sac"].build(spec, network=SMALL)
    learner.update({**batch(), "actions": torch.randint(4, (16,))})
    assert_unit_norms(learner.model)


def test_layers_of_unit_norm_have_no_bias():
    assert [name for name, _ in UnitLinear(2, 3).named_parameters()] == ["weight"]
