"""Conservative Q-learning: its estimate of the soft maximum against integrals, its losses by hand, and its options."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rl_training.algorithms import CQLAlgorithm, CQLConfig, CQLPredictions, Learner, Updater, cql_loss
from rl_training.algorithms.cql import DiscreteCQL, conservative_terms, soft_maximum
from rl_training.models import DQNModel, MLPSACModel
from rl_training.types import Batch, EnvSpec

ONE = torch.tensor(1.0)  # the temperature


def flat(dims: int, samples: int = 10) -> CQLPredictions:
    """Values that are all zero, and a policy that is as even as the uniform draws."""
    return CQLPredictions(
        q=torch.zeros(2, 4), target_q=torch.zeros(4), uniform_q=torch.zeros(2, samples, 4),
        policy_q=torch.zeros(2, 2 * samples, 4), uniform_log_prob=-dims * math.log(2),
        policy_log_prob=torch.full((2 * samples, 4), -dims * math.log(2)), log_multiplier=torch.tensor(1.0),
    )  # fmt: skip


@pytest.mark.parametrize(("dims", "expected"), [(3, 5.4806), (6, 7.5601), (8, 8.9464)])
def test_the_gap_of_flat_values_is_that_of_the_references(dims, expected):
    """d log 2, the volume of [-1, 1]^d, and log 30, the number of draws."""
    assert cql_loss(flat(dims), CQLConfig()).metrics["cql_gap"].item() == pytest.approx(expected, abs=1e-4)


class KnownValues(nn.Module):
    """Q(s, a) = the sum of w cos(a - s) over dimensions, twice that for the second critic."""

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        q = 3 * (actions - obs[..., : actions.shape[-1]]).cos().sum(-1)
        return torch.stack([q, 2 * q])


@pytest.mark.parametrize("dims", [1, 2])
def test_the_soft_maximum_is_the_log_of_the_integral_of_exp_q(dims):
    samples, obs = 20_000, torch.tensor([[0.0, 0.0, 0.0], [1.0, -0.5, 0.0]])
    model: Any = MLPSACModel(3, dims, (8,))
    model.critic = KnownValues()
    learner = CQLAlgorithm(model, num_cql_samples=samples, max_target_backup=False)
    rows = {"obs": obs, "next_obs": obs + 1, "actions": torch.zeros(2, dims), "rewards": torch.zeros(2),
            "dones": torch.zeros(2)}  # fmt: skip
    found = soft_maximum(learner.predict_batch(rows, ONE)) - math.log(3 * samples)
    grid = torch.linspace(-1, 1, 4001).unsqueeze(1)
    integrals = [  # the integrand is a product over dimensions
        [sum(math.log(torch.trapezoid((k * (grid - s).cos()).exp(), grid, dim=0)) for s in row[:dims]) for row in obs]
        for k in (3, 6)
    ]
    torch.testing.assert_close(found, torch.tensor(integrals), atol=0.03, rtol=0)


def test_every_action_is_valued_in_one_pass_and_at_the_rows_own_observation(box, draw):
    learner, rows, calls = CQLAlgorithm.build(box, hidden_sizes=(8,), num_cql_samples=3), draw(box, 4), []
    learner.model.critic.register_forward_hook(lambda module, inputs, output: calls.append(inputs))
    learner.predict_batch(rows, ONE)
    ((obs, actions),) = calls
    assert torch.equal(obs, rows["obs"].expand(1 + 3 * 3, 4, 3))
    assert torch.equal(actions[0], rows["actions"])
    assert all(not earlier.equal(later) for earlier, later in pairwise(actions))


def squashed(learner: CQLAlgorithm, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Actions and log-probs from torch's own normal and the textbook change of variables."""
    mean, log_std = learner.model.actor.net(obs).chunk(2, -1)
    raw = mean + log_std.exp() * noise
    normal = torch.distributions.Normal(mean, log_std.exp())
    return raw.tanh(), (normal.log_prob(raw) - (1 - raw.tanh() ** 2).log()).sum(-1)


def expected_terms(learner: CQLAlgorithm, rows: Batch, gamma: float, weight: float) -> dict[str, Tensor]:
    """The published step for six rows, two dimensions and three samples, one set of actions after the other."""
    obs, next_obs, critic = rows["obs"], rows["next_obs"], learner.model.critic
    uniform = 2 * torch.rand(3, 6, 2) - 1  # draws in the order of the loss
    here, log_here = squashed(learner, obs, torch.randn(3, 6, 2))
    there, log_there = squashed(learner, next_obs, torch.randn(3, 6, 2))
    later = squashed(learner, next_obs, torch.randn(3, 6, 2))[0]
    best = torch.stack([torch.minimum(*learner.target["critic"](next_obs, a)) for a in later]).amax(0)
    y = rows["rewards"] + gamma * (1 - rows["dones"]) * best
    actions, log_prob = squashed(learner, obs, torch.randn(6, 2))
    bellman, penalty = torch.tensor(0.0), torch.tensor(0.0)
    for i in range(2):
        q = critic(obs, rows["actions"])[i]
        draws = [critic(obs, a)[i] + 2 * math.log(2) for a in uniform]
        draws += [critic(obs, a)[i] - log_p.detach() for a, log_p in zip(here.detach(), log_here, strict=True)]
        draws += [critic(obs, a)[i] - log_p.detach() for a, log_p in zip(there.detach(), log_there, strict=True)]
        bellman = bellman + (q - y.detach()).square().mean()
        penalty = penalty + weight * (torch.stack(draws).exp().sum(0).log() - q).mean()
    actor = (log_prob - torch.minimum(*critic(obs, actions))).mean()
    return {"critic_loss": bellman, "cql_penalty": penalty, "actor_loss": actor}


def test_the_losses_are_those_of_the_published_step(box, draw):
    learner = CQLAlgorithm.build(
        box, hidden_sizes=(8,), gamma=0.9, cql_alpha=2.0, num_cql_samples=3, max_target_backup=True
    )
    rows = draw(box, 6)
    with torch.no_grad():
        for parameter in learner.target.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))  # a target that is not the critic
    torch.manual_seed(1)
    terms = learner.loss(rows).terms
    torch.manual_seed(1)
    expected = expected_terms(learner, rows, 0.9, 2.0)
    parts = {"critic_loss": "critic", "cql_penalty": "critic", "actor_loss": "actor"}
    for name, part in parts.items():
        torch.testing.assert_close(terms[name], expected[name], rtol=1e-4, atol=1e-5)
        parameters = list(getattr(learner.model, part).parameters())
        slopes = [torch.autograd.grad(x[name], parameters, retain_graph=True) for x in (terms, expected)]
        torch.testing.assert_close(*slopes, rtol=1e-3, atol=1e-5)


def test_each_term_trains_its_own_part_alone(box, draw, reached):
    learner = CQLAlgorithm.build(box, hidden_sizes=(8,), lagrange_threshold=1.0)
    terms = learner.loss(draw(box, 6)).terms
    assert reached(terms["critic_loss"], learner) == reached(terms["cql_penalty"], learner) == {"critic"}
    assert reached(terms["actor_loss"], learner) == {"actor"}
    assert reached(terms["temperature_loss"], learner) == {"log_alpha"}
    assert reached(terms["multiplier_loss"], learner) == {"log_multiplier"}


def test_the_actor_clones_the_data_in_the_first_updates_that_are_asked_for(box, draw, reached):
    learner, rows = CQLAlgorithm.build(box, hidden_sizes=(8,), cloning_updates=2), draw(box, 6)
    assert [learner.phases(update) for update in (1, 2)] == [("cloning", "targets"), ("loss", "targets")]
    torch.manual_seed(1)
    cloning = learner.cloning(rows)
    torch.manual_seed(1)
    usual = learner.loss(rows)
    mean, log_std = learner.model.actor.net(rows["obs"]).chunk(2, -1)
    actions = rows["actions"].clamp(-0.999999, 0.999999)
    normal = torch.distributions.Normal(mean, log_std.exp())
    likelihood = (normal.log_prob(actions.atanh()) - (1 - actions**2).log()).sum(-1).mean()
    torch.testing.assert_close(
        cloning.terms["actor_loss"], -usual.metrics["entropy"] - likelihood, rtol=1e-4, atol=1e-4
    )
    assert reached(cloning.terms["actor_loss"], learner) == {"actor"}
    for name in ("critic_loss", "cql_penalty", "temperature_loss"):
        torch.testing.assert_close(cloning.terms[name], usual.terms[name])


def test_cloning_reads_normalised_observations(box, draw):
    rows = draw(box, 6)
    learner = CQLAlgorithm.build(box, hidden_sizes=(8,), normalize_obs=True)
    learner.normalizer.get_buffer("mean").fill_(3.0)
    learner.normalizer.get_buffer("std").fill_(2.0)
    plain = CQLAlgorithm.build(box, hidden_sizes=(8,))
    plain.load_state_dict(learner.state_dict(), strict=False)
    torch.manual_seed(1)
    found = learner.cloning(rows).terms
    torch.manual_seed(1)
    expected = plain.cloning({**rows, "obs": (rows["obs"] - 3) / 2, "next_obs": (rows["next_obs"] - 3) / 2}).terms
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("rows", [(6,), pytest.param((2, 6), marks=pytest.mark.slow)])
def test_cloning_compiles_in_one_piece_for_one_and_for_two(rows, box, draw):
    torch.compiler.reset()
    updater = Updater([CQLAlgorithm.build(box, hidden_sizes=(8,), cloning_updates=1) for _ in rows])
    batch, compiled = draw(box, *rows), torch.compile(updater.loss, fullgraph=True, backend="aot_eager")
    totals = []
    for loss in (updater.loss, compiled):
        torch.manual_seed(1)
        totals.append(loss(batch, "cloning").total)
    torch.testing.assert_close(*totals)


def test_the_target_has_no_entropy_unless_asked(box, draw):
    rows = draw(box, 3)
    learners = [
        CQLAlgorithm.build(box, hidden_sizes=(8,), backup_entropy=entropy, gamma=1.0) for entropy in (False, True)
    ]
    learners[1].load_state_dict(learners[0].state_dict())
    targets = []
    for learner in learners:
        torch.manual_seed(1)
        targets.append(learner.target_q(rows, learner.model.actor(rows["next_obs"]), torch.tensor(0.5)))
    torch.manual_seed(1)
    log_prob = squashed(learners[0], rows["next_obs"], torch.randn(1, 3, 2))[1][0]
    expected = -0.5 * log_prob * (1 - rows["dones"])  # nothing is paid after a termination
    torch.testing.assert_close(targets[1] - targets[0], expected.detach(), atol=1e-5, rtol=1e-4)


def test_with_a_threshold_the_weight_is_learned():
    config = CQLConfig(cql_alpha=2.0, lagrange_threshold=1.0)
    loss = cql_loss(flat(dims=3), config)
    excess = 2 * (5.4806 - 1)
    assert loss.terms["cql_penalty"].item() == pytest.approx(math.e * 2 * excess, rel=1e-4)
    assert loss.terms["multiplier_loss"].item() == pytest.approx(-math.e * excess, rel=1e-4)


def test_the_learned_weight_is_at_most_a_million():
    log_multiplier = torch.tensor(20.0)  # e^20 is 4.85e8
    terms = conservative_terms(torch.tensor([3.0, 2.0]), 2.0, log_multiplier, 1.0)
    assert terms["cql_penalty"].item() == pytest.approx(1e6 * (2 * 2 + 2 * 1))


@pytest.mark.parametrize(("threshold", "direction"), [(-100.0, 1), (100.0, -1)])
def test_the_weight_rises_above_the_threshold_and_falls_below_it(box, draw, threshold, direction):
    learner = CQLAlgorithm.build(box, hidden_sizes=(8,), lagrange_threshold=threshold, learning_rate=1e-2)
    learner.update(draw(box, 6))
    assert learner.log_multiplier is not None
    assert learner.log_multiplier.item() == pytest.approx(1 + direction * 1e-2)  # Adam's first step


def test_the_actor_has_a_learning_rate_of_its_own(box, draw):
    learner = CQLAlgorithm.build(box, hidden_sizes=(8,), learning_rate=1e-2, actor_learning_rate=1e-3)
    before = {name: value.detach().clone() for name, value in learner.named_parameters()}
    learner.update(draw(box, 6))
    moved = {name: (value - before[name]).abs().max().item() for name, value in learner.named_parameters()}
    assert moved["model.actor.net.0.weight"] == pytest.approx(1e-3, rel=1e-2)
    assert moved["log_alpha"] == pytest.approx(1e-3, rel=1e-2)
    assert moved["model.critic.net.0.weight"] == pytest.approx(1e-2, rel=1e-2)


def test_users_find_the_penalty_and_the_entropy_under_their_names(box, draw):
    metrics = CQLAlgorithm.build(box, hidden_sizes=(8,), cql_alpha=2.0).update(draw(box, 6)).metrics
    assert metrics["cql_penalty"].item() == pytest.approx(2 * 2 * metrics["cql_gap"].item())  # alpha, and two critics
    assert metrics["entropy_term"].item() == pytest.approx(-metrics["entropy"].item())  # at a temperature of one


@pytest.mark.parametrize(("option", "value"), [("cql_alpha", 0), ("num_cql_samples", 0), ("actor_learning_rate", 0)])
def test_bad_values_are_refused_by_the_name_of_their_option(option, value):
    with pytest.raises(ValueError, match=option):
        CQLConfig(**{option: value})


def table(*values: float) -> DiscreteCQL:
    """A learner whose network has the same values for every observation; its target has their negatives."""
    learner = DiscreteCQL(DQNModel(EnvSpec((3,), "discrete", 3), ()), gamma=0.5, cql_alpha=2.0)
    with torch.no_grad():
        for part, sign in ((learner.model, 1), (learner.target, -1)):
            part.get_parameter("q.head.advantage.layers.0.weight").zero_()
            part.get_parameter("q.head.advantage.layers.0.bias").copy_(sign * torch.tensor(values))
    return learner


def test_discrete_gap_is_exact_and_its_target_double():
    rows = {"obs": torch.zeros(2, 3), "next_obs": torch.zeros(2, 3), "actions": torch.tensor([0, 0]),
            "rewards": torch.tensor([1.0, 1.0]), "dones": torch.tensor([0.0, 1.0])}  # fmt: skip
    loss = table(1.0, 2.0, 3.0).loss(rows)
    gap = math.log(math.exp(1) + math.exp(2) + math.exp(3)) - 1
    assert loss.terms["cql_penalty"].item() == pytest.approx(2 * gap)
    # the network chooses action 2, which its target values at -3: targets 1 - 1.5 and 1, and Q is 1 in both rows
    assert loss.metrics["target_q_mean"].item() == pytest.approx((-0.5 + 1) / 2)
    assert loss.terms["critic_loss"].item() == pytest.approx((1.5 - 0.5) / 2)  # Huber of -1.5 and of 0


def test_discrete_actions_are_the_best_ones():
    assert table(1.0, 3.0, 2.0).act(torch.randn(4, 3)).actions.tolist() == [1, 1, 1, 1]


def test_one_name_serves_both_action_spaces(box, discrete):
    learners: list[Learner] = [CQLAlgorithm.build(spec, hidden_sizes=(8,)) for spec in (box, discrete)]
    assert [type(each) for each in learners] == [CQLAlgorithm, DiscreteCQL]


def test_options_of_sampled_actions_are_refused_with_discrete_ones(discrete):
    with pytest.raises(ValueError, match=r"num_cql_samples is for Box actions only, got 4\. Leave it at 10"):
        CQLAlgorithm.build(discrete, num_cql_samples=4)
