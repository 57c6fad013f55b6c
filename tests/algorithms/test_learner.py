"""Learners: frozen networks, and spaces and options that are refused. What holds for all is in `tests/contract`."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from rl_training.algorithms import (
    CATALOGUE,
    BCConfig,
    DQNAlgorithm,
    DQNConfig,
    IQLAlgorithm,
    IQLConfig,
    PPOConfig,
    REDQAlgorithm,
    SACAlgorithm,
    SACConfig,
    TD3Algorithm,
    TD3BCAlgorithm,
    frozen,
)
from rl_training.algorithms.core.updater import compiled
from rl_training.models import MLPSACModel
from rl_training.types import EnvSpec, Loss


def test_frozen_passes_gradients_through_inputs_and_not_into_parameters():
    layer, x = nn.Linear(2, 1), torch.randn(4, 2, requires_grad=True)
    frozen(layer)(x).sum().backward()
    torch.testing.assert_close(x.grad, layer.weight.detach().expand(4, 2))
    assert (layer.weight.grad, layer.bias.grad) == (None, None)


def test_frozen_sees_the_parameters_as_they_are_now():
    layer, x = nn.Linear(1, 1, bias=False), torch.ones(1, 1)
    still = frozen(layer)
    with torch.no_grad():
        layer.weight.fill_(3.0)
    assert still(x).item() == 3.0


@pytest.mark.parametrize(
    ("learner", "kind", "message"),
    [
        (TD3BCAlgorithm, "discrete", "td3_bc needs a Box action space, got Discrete"),
        (REDQAlgorithm, "discrete", "redq needs a Box action space, got Discrete"),
        (DQNAlgorithm, "box", "dqn needs a Discrete action space, got Box"),
    ],
)
def test_the_wrong_action_space_is_refused(learner, kind, message):
    with pytest.raises(TypeError, match=message):
        learner.build(EnvSpec((3,), kind, 2))


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_the_gradients_of_every_learner_are_clipped_on_request(name, box, discrete):
    kind = CATALOGUE[name]
    options: Any = {"size": "nano"} if name == "dreamer" else {}
    learner = kind.build(
        box if "box" in kind.action_kinds else discrete, hidden_sizes=(8,), max_grad_norm=0.25, **options
    )
    assert learner.parameter_groups()[-1].max_grad_norm == 0.25  # the last group has all parameters without one


def test_actor_learning_rate_is_for_the_actor_and_what_its_paper_trains_with_it(box):
    found = {}
    for name, kind in CATALOGUE.items():
        if "actor_learning_rate" in kind.config_type.model_fields:
            options: Any = {"size": "nano"} if name == "dreamer" else {}
            updater = kind.build(box, hidden_sizes=(8,), actor_learning_rate=1e-5, **options).updater
            slow = [each for group, names in updater.groups for each in names if group.learning_rate == 1e-5]
            found[name] = {each.removeprefix("model.").split(".")[0] for each in slow}
    alone = {name: {"actor"} for name in ("awac", "iql", "rebrac", "xql")}
    with_temperature = {name: {"actor", "log_alpha"} for name in ("cal_ql", "cql", "edac")}
    assert found == {**alone, **with_temperature, "dreamer": {"actor", "critic"}}


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_multi_discrete_actions_are_accepted_where_declared_and_refused_elsewhere(name):
    spec = EnvSpec((3,), "multi_discrete", 2, action_shape=(2,), action_sizes=(3, 2), action_starts=(0, 0))
    if "multi_discrete" in CATALOGUE[name].action_kinds:
        assert CATALOGUE[name].build(spec).act(torch.zeros(5, 3)).actions.shape == (5, 2)
        return
    with pytest.raises(TypeError, match=f"{name} needs a .* action space, got MultiDiscrete"):
        CATALOGUE[name].build(spec)


@pytest.mark.parametrize(("shape", "dtype"), [((4, 84, 84), "uint8"), ((2, 3), "float32"), ((128,), "uint8")])
def test_an_algorithm_for_vectors_refuses_pixels_and_tables(shape, dtype):
    with pytest.raises(TypeError, match="iql needs float vectors as observations, got"):
        IQLAlgorithm.build(EnvSpec(shape, "box", 2, obs_dtype=dtype))


@pytest.mark.parametrize(
    ("config", "option", "value"),
    [
        (IQLConfig, "expectile", 0),
        (IQLConfig, "expectile", 1),
        (IQLConfig, "expectile", 1.5),
        (IQLConfig, "beta", 0),
        (IQLConfig, "beta", float("nan")),
        (IQLConfig, "gamma", 2),
        (IQLConfig, "batch_size", 0),
        (IQLConfig, "tau", 0),
        (IQLConfig, "hidden_sizes", (8, 0)),
        (BCConfig, "objective", "likely"),
        (SACConfig, "temperature", 0),
        (SACConfig, "target_entropy", "automatic"),
        (SACConfig, "learning_starts", -1),
        (DQNConfig, "target_interval", 0),
        (DQNConfig, "epsilon_end", 1.5),
        (PPOConfig, "batch_size", 1),
        (PPOConfig, "hidden_sizes", (8, 0)),
        (PPOConfig, "clip_range", 0),
        (PPOConfig, "learning_rate", float("inf")),
    ],
)
def test_bad_values_are_refused_by_the_name_of_their_option(config, option, value):
    with pytest.raises(ValueError, match=option):
        config(**{option: value})


def test_an_unknown_option_is_refused_by_its_name(box):
    with pytest.raises(ValueError, match="expectil"):
        IQLAlgorithm.build(box, expectil=0.9)


def test_options_cannot_be_changed_after_they_were_checked():
    with pytest.raises(ValueError, match="frozen"):
        setattr(IQLConfig(), "beta", -1.0)  # noqa: B010  # as a user without a type checker would


def test_losses_of_other_batches_compile_in_one_process(box, draw, monkeypatch):
    torch.compiler.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    for rows in (4, 8):
        learner = SACAlgorithm.build(box, hidden_sizes=(8,), batch_size=rows)
        loss = compiled(learner, torch.device("cpu"))(draw(box, rows), "critics")
        assert all(value.isfinite() for value in loss.terms.values())


SMALL = EnvSpec((3,), "box", 2, action_shape=(2,), action_low=(-1.0, -1.0), action_high=(1.0, 1.0))


def test_a_loss_of_your_own_adds_to_the_sum_of_parts(box, draw):
    class Own(SACAlgorithm):
        def loss(self, batch):
            return super().loss(batch).plus({"own_loss": self.model.actor(batch["obs"]).mean.square().mean()})

    learner = Own.build(box, hidden_sizes=(8,))
    assert "own_loss" in learner.update(draw(box, 4)).metrics
    assert len(SACAlgorithm.build(box, hidden_sizes=(8,)).separate_parts()) == 2
    assert not learner.separate_parts()


def test_a_loss_that_no_update_calls_is_refused(box):
    class Own(TD3Algorithm):
        def loss(self, batch):
            raise NotImplementedError

    with pytest.raises(TypeError, match=r"Own\.loss is never called: .* td3 minimise critic_loss and actor_loss"):
        Own.build(box)


def test_the_sum_of_parts_has_the_buffers_and_rows_of_each():
    class Counting(SACAlgorithm):
        def critics(self, batch):
            return Loss({"a": torch.tensor(1.0)}, {"seen": torch.tensor(3.0)}, {"low": torch.tensor(0.0)})

        def policy(self, batch):
            return Loss({"b": torch.tensor(2.0)}, {}, {"high": torch.tensor(1.0)}, {"priorities": torch.ones(2)})

    loss = Counting(MLPSACModel(3, 2, (4,))).loss({})
    assert loss.total == 3
    assert [set(part) for part in loss] == [{"a", "b"}, {"seen"}, {"low", "high"}, {"priorities"}]


def test_parts_of_a_loss_are_not_separate_where_networks_share_parameters():
    learner = SACAlgorithm.build(SMALL, hidden_sizes=(4,))
    assert learner.separate_parts() == ("critics", "policy")
    learner.model.critic.shared = learner.model.actor.net[0]
    assert learner.separate_parts() == ()


def test_parts_of_a_loss_are_not_separate_in_a_model_of_your_own():
    class Model(MLPSACModel):
        pass

    assert SACAlgorithm(Model(3, 2, (4,))).separate_parts() == ()
