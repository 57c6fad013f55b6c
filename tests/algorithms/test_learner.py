"""What every learner keeps: gradients where they belong, refusals, and one loss for one, many and compiled."""

from __future__ import annotations

import copy
from collections.abc import Callable
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
    PPOAlgorithm,
    PPOConfig,
    SACAlgorithm,
    SACConfig,
    Updater,
    frozen,
)
from rl_training.algorithms.core.learner import Learner
from rl_training.models import midpoints
from rl_training.types import Batch, EnvSpec, Trainable

Draw = Callable[..., Batch]
DIFFERENTIATED = {"dqn", "iql", "ppo", "sac"}  # by the compiler too, which takes as long again; one of each kind


def small(name: str, spec: EnvSpec, **options: Any) -> Learner:
    if name == "redq":
        options = {"policy_delay": 2, **options}  # so that few updates show the actor's too
    return CATALOGUE[name].build(spec, hidden_sizes=(8, 8), learning_rate=1e-2, **options)


def training_rows(name: str, rows: Batch) -> Batch:
    """Transitions as this learner's updates meet them."""
    if name != "ppo":
        return {**rows, **dict.fromkeys((c.name for c in CATALOGUE[name].needs), rows["next_obs"][..., 0])}
    shown = {"obs": rows["obs"], "raw_actions": rows["actions"], "log_probs": rows["rewards"] - 2}
    return {**shown, "advantages": rows["rewards"], "returns": rows["next_obs"][..., 0]}


def loss_phases(learner: Trainable) -> list[str]:
    """What an update descends, at its fullest."""
    last = getattr(learner.config, "policy_delay", 1) - 1
    return [phase for phase in learner.phases(last) if phase != "targets"]


@pytest.fixture(
    params=["bc", "bc-discrete", "c51", "cal_ql", "cql", "cql-discrete", "dqn", "fqf", "iql", "iqn", "ppo",
            "ppo-discrete", "qr_dqn", "rainbow", "redq", "sac", "td3", "td3_bc", "xql"]
)  # fmt: skip
def case(request, box, discrete) -> tuple[str, EnvSpec]:
    name, _, kind = request.param.partition("-")
    return name, discrete if kind or issubclass(CATALOGUE[name], DQNAlgorithm) else box


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
        (IQLAlgorithm, "discrete", "iql needs a Box action space, got Discrete"),
        (SACAlgorithm, "discrete", "sac needs a Box action space, got Discrete"),
        (DQNAlgorithm, "box", "dqn needs a Discrete action space, got Box"),
    ],
)
def test_the_wrong_action_space_is_refused(learner, kind, message):
    with pytest.raises(TypeError, match=message):
        learner.build(EnvSpec((3,), kind, 2))


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_several_choices_at_once_are_taken_by_ppo_and_refused_by_all_others(name):
    spec = EnvSpec((3,), "multi_discrete", 2, action_shape=(2,), action_sizes=(3, 2), action_starts=(0, 0))
    if name == "ppo":
        assert CATALOGUE[name].build(spec).act(torch.zeros(5, 3)).actions.shape == (5, 2)
        return
    with pytest.raises(TypeError, match=f"{name} needs a .* action space, got MultiDiscrete"):
        CATALOGUE[name].build(spec)


@pytest.mark.parametrize(("shape", "dtype"), [((4, 84, 84), "uint8"), ((2, 3), "float32"), ((128,), "uint8")])
def test_learners_of_vectors_refuse_pixels_and_tables(shape, dtype):
    with pytest.raises(TypeError, match="iql takes vectors of floats, got"):
        IQLAlgorithm.build(EnvSpec(shape, "box", 2, obs_dtype=dtype))


@pytest.mark.parametrize("learner", [DQNAlgorithm, PPOAlgorithm])
def test_learners_of_pixels_take_them(learner):
    built = learner.build(EnvSpec((1, 36, 36), "discrete", 3, obs_dtype="uint8"), hidden_sizes=(8,))
    assert built.act(torch.zeros(2, 1, 36, 36, dtype=torch.uint8)).actions.shape == (2,)


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


def test_a_dataset_fits_the_observation_statistics_that_acting_uses(box, draw):
    learner, rows = IQLAlgorithm.build(box, normalize_obs=True, hidden_sizes=(8,)), draw(box, 50)
    learner.prepare(rows)
    mean, std = rows["obs"].mean(0), rows["obs"].std(0, unbiased=False) + 1e-3
    plain = learner.model.actor((rows["obs"] - mean) / std).mode()
    torch.testing.assert_close(learner.act(rows["obs"], deterministic=True).actions, plain)


def test_update_is_the_door_to_an_updater_of_one(case, draw):
    name, spec = case
    learner, oracle = (small(name, spec) for _ in range(2))
    oracle.load_state_dict(learner.state_dict())
    batch = training_rows(name, draw(spec, 6))
    torch.manual_seed(1)
    result = learner.update(batch, global_step=7)
    torch.manual_seed(1)
    Updater([oracle]).update(batch)
    assert result.num_gradient_steps == 1
    for mine, theirs in zip(learner.parameters(), oracle.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_population_equals_singles_when_noise_is_silent(case, draw, monkeypatch):
    monkeypatch.setattr("rl_training.models.heads.standard_normal", lambda like, generator: torch.zeros_like(like))
    monkeypatch.setattr(torch, "randn_like", torch.zeros_like)
    monkeypatch.setattr("rl_training.algorithms.cql.uniform_actions", lambda n, like: like.expand(n, *like.shape) / 2)
    quiet = {0: None}  # of a network without noise
    monkeypatch.setattr(
        DQNAlgorithm, "noise", lambda _, net, *__: quiet.get(net.noise_size, torch.zeros(net.noise_size))
    )
    monkeypatch.setattr("rl_training.algorithms.redq.drawn", lambda size, *_: torch.arange(size))
    monkeypatch.setattr("rl_training.algorithms.iqn.random_fractions", lambda obs, count, *_: midpoints(count))
    name, spec = case
    learners = [small(name, spec, max_grad_norm=1.0) for _ in range(3)]
    population, singles = Updater(learners), [Updater([copy.deepcopy(learner)]) for learner in learners]
    for seed in range(3):
        batch = training_rows(name, draw(spec, 3, 6, seed=seed))
        together = population.update(batch).metrics
        for i, single in enumerate(singles):
            alone = single.update({column: rows[i] for column, rows in batch.items()}).metrics
            assert alone.keys() == together.keys()
            for metric in alone:
                torch.testing.assert_close(together[metric][i], alone[metric], atol=1e-4, rtol=1e-4)
    for i, single in enumerate(singles):
        for parameter in single.params:
            torch.testing.assert_close(population.params[parameter][i], single.params[parameter], atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    "case",
    [
        "bc",
        "c51",
        "cal_ql",
        "cql-discrete",
        "dqn",
        "fqf",
        "iql",
        "iqn",
        "ppo-discrete",
        "qr_dqn",
        "rainbow",
        "redq",
        "sac",
        "td3",
        "td3_bc",
        "xql",
    ],
    indirect=True,
)
def test_the_compiled_loss_equals_the_eager_one(case, draw):
    torch.compiler.reset()  # it counts how often one function was compiled, for all tests together
    name, spec = case
    learner = small(name, spec)
    batch = training_rows(name, draw(spec, 6))
    parameters = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    backend = "aot_eager" if name in DIFFERENTIATED else "eager"
    for phase in loss_phases(learner):
        torch.manual_seed(1)
        eager = learner(batch, phase)
        torch.manual_seed(1)
        compiled = torch.compile(learner.__call__, fullgraph=True, backend=backend)(batch, phase)
        for term in eager.terms:
            torch.testing.assert_close(compiled.terms[term], eager.terms[term])
        expected = torch.autograd.grad(eager.total, parameters, allow_unused=True)
        found = torch.autograd.grad(compiled.total, parameters, allow_unused=True)
        for mine, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(mine, theirs)


@pytest.mark.slow
def test_the_compiled_loss_of_a_population_equals_the_eager_one(case, draw):
    torch.compiler.reset()
    name, spec = case
    population = Updater([small(name, spec) for _ in range(2)])
    batch = training_rows(name, draw(spec, 2, 6))
    for phase in loss_phases(population.learner):
        torch.manual_seed(1)
        eager = population.loss(batch, phase).total
        torch.manual_seed(1)
        compiled = torch.compile(population.loss, fullgraph=True, backend="aot_eager")(batch, phase).total
        torch.testing.assert_close(compiled, eager)


def test_learners_with_other_batches_compile_in_one_process(box, draw, monkeypatch):
    torch.compiler.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    for rows in (4, 8):
        learner = SACAlgorithm.build(box, hidden_sizes=(8,), batch_size=rows)
        result = Updater([learner], compile=True).update(draw(box, rows))
        assert all(value.isfinite() for value in result.metrics.values())
