"""The option `network`, for every algorithm: widths, activation, layer norm, and classes of the user's own."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from rl_training.algorithms import CATALOGUE
from rl_training.algorithms.dqn import DQNAlgorithm
from rl_training.algorithms.sac import SACAlgorithm
from rl_training.models.custom import Copies, Features, OwnModule
from rl_training.models.mlp import EnsembleLayerNorm
from rl_training.testing import AlgorithmCase, checks

DEFAULTS = (nn.ReLU, nn.Tanh)


def with_network(case: AlgorithmCase, network: Any) -> AlgorithmCase:
    return replace(case, own_options={"network": network})


def kinds(module: nn.Module) -> Counter[type[nn.Module]]:
    return Counter(type(each) for each in module.modules())


@pytest.fixture
def other(row) -> AlgorithmCase:
    """Every algorithm with another network."""
    norm = {} if row.learner.lane == "sequence" else {"layer_norm": True}
    return with_network(row, {"hidden_sizes": [8, 6], "activation": "elu", **norm})


def test_widths_are_those_of_hidden_sizes(case):
    asked = with_network(case, {"hidden_sizes": [8, 6, 4]}).build()
    expected = case.build(hidden_sizes=[8, 6, 4])
    assert {name: value.shape for name, value in asked.named_parameters()} == {
        name: value.shape for name, value in expected.named_parameters()
    }
    assert all(torch.equal(*pair) for pair in zip(asked.parameters(), expected.parameters(), strict=True))
    assert asked.config.hidden_sizes == (8, 6, 4)


def test_two_different_widths_are_refused(row):
    with pytest.raises(ValueError, match=r"hidden_sizes is \[8, 8\], but network.hidden_sizes is \[4\]; set one"):
        row.learner.config_type(hidden_sizes=[8, 8], network={"hidden_sizes": [4]})


def test_the_activation_stands_in_every_hidden_layer(case):
    plain, changed = kinds(case.build().model), kinds(with_network(case, {"activation": "elu"}).build().model)
    assert changed[nn.ELU] > 0
    assert changed.total() == plain.total()
    if case.learner.lane != "sequence":
        assert not any(changed[kind] for kind in DEFAULTS)


def test_layer_norm_stands_before_every_activation(case):
    asked = with_network(case, {"layer_norm": True, "activation": "elu"})
    if case.learner.lane == "sequence":
        with pytest.raises(ValueError, match=r"a norm in every layer; leave out network\.layer_norm"):
            asked.build()
        return
    found = kinds(asked.build().model)
    assert found[nn.LayerNorm] + found[EnsembleLayerNorm] == found[nn.ELU] > 0
    without = kinds(with_network(case, {"layer_norm": False}).build().model)
    assert without[nn.LayerNorm] + without[EnsembleLayerNorm] == 0


def test_it_learns_and_saves_its_state(other):
    checks.check_updates(other)
    checks.check_state(other)


def test_its_population_equals_its_members_updated_alone(other):
    checks.check_population(other)


@pytest.mark.slow
def test_it_resumes_byte_for_byte(other, tmp_path):
    checks.check_resume(other, tmp_path)


@pytest.mark.parametrize("name", ["dqn", "redq", "ppo", "iql"])
def test_one_of_each_family_resumes_byte_for_byte(name, all_rows, tmp_path):
    network = {"hidden_sizes": [8, 6], "activation": "elu", "layer_norm": True}
    checks.check_resume(with_network(all_rows[name], network), tmp_path)


# Classes of the user's own


def fill(module: nn.Module, value: float | None) -> None:
    if value is not None:
        for parameter in module.parameters():
            nn.init.constant_(parameter, value)


class Squares(nn.Module):
    """Features: the observation and its squares, then a linear layer."""

    role = "features"

    def __init__(self, spec: Any, width: int = 5, initial: float | None = None) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * spec.obs_shape[0], width)
        fill(self, initial)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.linear(torch.cat([obs, obs.square()], -1)).tanh()


class Residual(nn.Module):
    """Hidden layers with a residual connection."""

    role = "trunk"

    def __init__(self, inputs: int, width: int = 6, initial: float | None = None) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(inputs, width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        fill(self, initial)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        return hidden + self.second(self.norm(hidden).relu())


OWN = {"features": {"kind": Squares, "width": 7}, "trunk": Residual}
WITHOUT_OWN_PARTS = ("sequence",)


@pytest.mark.parametrize("role", OWN)
def test_a_class_of_the_user_takes_the_place_of_encoder_or_hidden_layers(row, role):
    case = with_network(row, OWN[role])
    if row.learner.lane in WITHOUT_OWN_PARTS:
        with pytest.raises(ValueError, match="cannot be replaced by network"):
            case.build()
        return
    found = kinds(case.build().model)
    assert found[Squares if role == "features" else Residual] > 0
    assert found[Features] + found[OwnModule] + found[Copies] > 0
    checks.check_updates(case)
    checks.check_state(case)


@pytest.mark.parametrize("role", OWN)
@pytest.mark.parametrize("name", ["dqn", "redq", "ppo", "iqn", "cql"])
def test_a_population_with_a_class_of_the_user_equals_its_members(name, role, all_rows):
    checks.check_population(with_network(all_rows[name], OWN[role]))


def test_the_compiled_loss_with_hidden_layers_of_the_user_equals_the_eager_one(all_rows):
    checks.check_compiled(with_network(all_rows["redq"], OWN["trunk"]))


@pytest.mark.slow
@pytest.mark.parametrize("role", OWN)
@pytest.mark.parametrize("members", [1, 2])
def test_the_compiled_loss_with_a_class_of_the_user_equals_the_eager_one(members, role, all_rows):
    checks.check_compiled(with_network(all_rows["redq"], OWN[role]), "aot_eager", members)


@pytest.mark.parametrize("role", OWN)
@pytest.mark.parametrize("name", ["redq", "ppo"])
def test_its_own_initial_weights_stay_and_actor_and_critic_have_their_own(name, role, all_rows):
    kind: Any = Squares if role == "features" else Residual
    learner = with_network(all_rows[name], {"kind": kind, "initial": 3.0}).build()
    own = [module for module in learner.model.modules() if isinstance(module, kind)]
    shared = name == "ppo" and role == "features"
    assert len(own) == (1 if shared else 2)
    assert all((value == 3).all() for module in own for value in module.parameters())


def test_critics_with_hidden_layers_of_the_user_start_with_different_weights(all_rows):
    critic = with_network(all_rows["redq"], Residual).build().model.critic
    stacked = critic.net[0].net.first.weight
    assert len(stacked) == 4
    assert not any(stacked[0].equal(other) for other in stacked[1:])
    x = torch.randn(4, 3, stacked.shape[-1])
    third = {name: value[2] for name, value in critic.net[0].net.named_parameters()}
    alone = torch.func.functional_call(Residual(stacked.shape[-1]), third, (x[2],))
    torch.testing.assert_close(critic.net[0](x)[2], alone)


class OwnQ(nn.Module):
    noise_size = 0

    def __init__(self, inputs: int, actions: int) -> None:
        super().__init__()
        self.net = nn.Linear(inputs, actions)

    def forward(self, obs: torch.Tensor, noise: Any = None) -> torch.Tensor:
        return self.net(obs)


class OwnModel(nn.Module):
    role = "model"

    def __init__(self, spec: Any) -> None:
        super().__init__()
        self.q = OwnQ(spec.obs_shape[0], spec.action_dim)

    @classmethod
    def build(cls, spec: Any, config: Any) -> OwnModel:
        return cls(spec)


def test_a_whole_model_of_the_user_replaces_ours(all_rows):
    case = with_network(all_rows["dqn"], OwnModel)
    learner = case.build()
    assert isinstance(learner.model, OwnModel)
    assert learner.model.obs_shape == case.spec.obs_shape
    checks.check_updates(case)
    checks.check_state(case)
    checks.check_population(case)


def test_a_subclass_of_our_model_may_replace_it(row):
    model_type = row.learner.for_actions(row.kind).model_type
    kind: Any = type("Subclass", (model_type,), {"role": "model", "__module__": __name__})
    case = with_network(row, kind)
    assert type(case.build().model) is kind
    checks.check_state(case)


def test_a_whole_model_without_a_part_is_refused_by_the_name_of_the_part(all_rows):
    with pytest.raises(ValueError, match=r"OwnModel has no actor and no critic; .* actor, critic, as MLPSACModel"):
        with_network(all_rows["sac"], OwnModel).build()


def test_building_draws_no_more_random_numbers_than_the_weights_need(all_rows):
    """The check of a class with two rows of zeros leaves the random streams alone."""

    class Dropping(Residual):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.dropout(super().forward(x))

    states = []
    for kind in (Residual, Dropping):
        with_network(all_rows["ppo"], kind).build()
        states.append(torch.get_rng_state())
    assert states[0].equal(states[1])


def test_a_network_that_is_not_given_changes_nothing():
    for learner in (SACAlgorithm, DQNAlgorithm):
        assert learner.config_type().network is None
        assert "network" in CATALOGUE[learner.name].config_type.model_fields
