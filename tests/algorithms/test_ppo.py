"""Proximal policy optimization: the clipped bound by hand, and a rollout from acting to the first minibatch."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from rl_training.algorithms import PPOAlgorithm, Updater
from rl_training.algorithms.ppo import clipped_surrogate
from rl_training.data import RolloutBuffer
from rl_training.types import Batch, EnvSpec

LEVERS = EnvSpec((3,), "multi_discrete", 2, action_shape=(2,), action_sizes=(3, 2), action_starts=(0, 0))


def rollout(learner: PPOAlgorithm, steps: int = 5, envs: int = 4) -> Batch:
    """Act on random observations that are neither centred nor of unit size."""
    obs = 2 * torch.randn(steps + 1, envs, 3) + 1
    acted = [learner.act(x).extras for x in obs[:-1]]
    return {
        "obs": obs[:-1],
        "next_obs": obs[1:],
        "rewards": torch.randn(steps, envs),
        "dones": torch.zeros(steps, envs),
        "truncated": torch.zeros(steps, envs),
        **{name: torch.stack([extras[name].detach() for extras in acted]) for name in acted[0]},
    }


def flat(batch: Batch) -> Batch:
    return {name: column.flatten(0, 1) for name, column in batch.items()}


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss"),
    [(1.5, 1.0, -1.2), (1.5, -1.0, 1.5), (0.5, 1.0, -0.5), (0.5, -1.0, 0.8), (1.1, 1.0, -1.1), (0.9, -1.0, 0.9)],
)
def test_the_surrogate_takes_the_worse_of_the_plain_and_the_clipped(ratio, advantage, loss):
    rows = clipped_surrogate(torch.tensor([ratio]), torch.tensor([advantage]), torch.tensor(0.2))
    assert rows.item() == pytest.approx(loss)


def test_a_clipped_row_pulls_no_more():
    ratio = torch.tensor([1.5, 1.5, 0.5, 0.5], requires_grad=True)
    loss = clipped_surrogate(ratio, torch.tensor([1.0, -1.0, 1.0, -1.0]), torch.tensor(0.2))
    (slopes,) = torch.autograd.grad(loss, ratio)
    assert slopes.tolist() == [0.0, 0.25, -0.25, 0.0]


@pytest.mark.parametrize("spec", [EnvSpec((3,), "box", 2), EnvSpec((3,), "discrete", 2), LEVERS])
@pytest.mark.parametrize("normalize_obs", [False, True])
def test_right_after_acting_every_ratio_is_one(spec, normalize_obs):
    learner = PPOAlgorithm.build(spec, normalize_obs=normalize_obs)
    for _ in range(2):  # the second time there are statistics to act with, and newer ones after `prepare`
        batch = flat(learner.prepare(rollout(learner)))
    policy = learner.model(batch["obs"])[0]
    ratio = (policy.log_prob(batch["raw_actions"]) - batch["log_probs"]).exp()
    torch.testing.assert_close(ratio, torch.ones(20), atol=1e-5, rtol=0)
    loss = learner.loss(batch)
    assert loss.metrics["clip_fraction"].item() == 0
    assert loss.metrics["approx_kl"].item() == pytest.approx(0, abs=1e-6)
    assert loss.terms["policy_loss"].item() == pytest.approx(0, abs=1e-5)  # normalised advantages average to nought


def test_prepare_shows_observations_as_acting_saw_them_and_then_merges_them(box):
    learner = PPOAlgorithm.build(box, normalize_obs=True)
    first, second = rollout(learner), rollout(learner)
    assert torch.equal(learner.prepare(first)["obs"], first["obs"])  # nothing was known yet
    rows = first["obs"].flatten(0, 1)
    seen = learner.prepare(second)["obs"]
    torch.testing.assert_close(seen, (second["obs"] - rows.mean(0)) / rows.std(0, unbiased=False), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(learner.normalizer.mean, torch.cat([first["obs"], second["obs"]]).mean((0, 1)))
    assert learner.normalizer.count == 40


def test_normalised_observations_are_clipped_to_ten_std(box):
    learner = PPOAlgorithm.build(box, normalize_obs=True)
    learner.normalizer.load_state_dict({"mean": torch.ones(3), "std": 2 * torch.ones(3), "count": torch.tensor(2.0)})
    seen = learner.normalizer(torch.tensor([[20.0, 22.0, -99.0]]))
    assert seen.tolist() == [[9.5, 10.0, -10.0]]  # (20 - 1) / 2, (22 - 1) / 2 and (-99 - 1) / 2


def identity_value(**options: Any) -> PPOAlgorithm:
    """A learner that values an observation, one number, at that number."""
    learner = PPOAlgorithm.build(EnvSpec((1,), "discrete", 2), hidden_sizes=(), **options)
    learner.model.value[0].weight.data.fill_(1.0)
    return learner


def test_advantages_bootstrap_at_time_limits_and_not_at_terminations():
    # three environments of two steps: one runs on, one is truncated and one terminated at the first step
    zeros, ones = torch.zeros(2, 3), torch.ones(2, 3)
    batch = {
        "obs": torch.stack([ones[0], 10 * ones[0]])[..., None],
        "next_obs": torch.stack([4 * ones[0], 6 * ones[0]])[..., None],
        "rewards": torch.stack([2 * ones[0], zeros[0]]),
        "dones": torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]),
        "truncated": torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]),
        "raw_actions": zeros.long(),
    }
    prepared = identity_value(gamma=0.5, gae_lambda=0.8).prepare(batch)
    last = 0.5 * 6 - 10  # -7, in all three
    bootstrapped = 2 + 0.5 * 4 - 1  # 3
    first = [bootstrapped + 0.5 * 0.8 * last, bootstrapped, 2 - 1]
    torch.testing.assert_close(prepared["advantages"], torch.tensor([first, [last] * 3]))
    torch.testing.assert_close(prepared["returns"], prepared["advantages"] + batch["obs"][..., 0])


def test_the_successor_is_standardised_like_the_observation():
    learner = identity_value(gamma=0.5, normalize_obs=True)
    learner.normalizer.load_state_dict({"mean": torch.ones(1), "std": torch.ones(1), "count": torch.tensor(2.0)})
    one = {name: torch.zeros(1, 1) for name in ("rewards", "dones", "truncated")}
    one |= {"raw_actions": torch.zeros(1, 1, dtype=torch.int64), "obs": torch.ones(1, 1, 1)}
    prepared = learner.prepare({**one, "next_obs": 3 * torch.ones(1, 1, 1)})
    assert prepared["advantages"].item() == 0.5 * (3 - 1)


def two_rows(learner: PPOAlgorithm, ratios: list[float]) -> Batch:
    """Rows whose new and old probabilities stand in these ratios."""
    obs, actions = torch.randn(2, 3), torch.tensor([0, 1])
    log_probs = learner.model(obs)[0].log_prob(actions).detach() - torch.tensor(ratios).log()
    columns = {"obs": obs, "raw_actions": actions, "log_probs": log_probs}
    return {**columns, "advantages": torch.tensor([1.0, 3.0]), "returns": torch.tensor([2.0, -2.0])}


def test_advantages_are_normalised_by_the_minibatch(discrete):
    learner = PPOAlgorithm.build(discrete)
    rows = two_rows(learner, [1.1, 0.9])  # 1 and 3: mean 2, deviation sqrt 2
    expected = -(1.1 * -1 + 0.9 * 1) / math.sqrt(2) / 2
    assert learner.loss(rows).terms["policy_loss"].item() == pytest.approx(expected, abs=1e-6)
    rows["advantages"] = 10 * rows["advantages"] + 5
    assert learner.loss(rows).terms["policy_loss"].item() == pytest.approx(expected, abs=1e-6)


def test_the_option_clip_range_is_that_of_the_loss(discrete):
    for clip_range, clipped in ((0.1, 1), (0.3, 0)):
        learner = PPOAlgorithm.build(discrete, clip_range=clip_range)
        assert learner.loss(two_rows(learner, [1.2, 0.8])).metrics["clip_fraction"].item() == clipped


def test_what_the_metrics_say_of_the_ratios(discrete):
    learner = PPOAlgorithm.build(discrete, clip_range=0.2)
    metrics = learner.loss(two_rows(learner, [1.5, 0.9])).metrics
    assert metrics["clip_fraction"].item() == 0.5
    assert learner.loss(two_rows(learner, [1.5, 0.5])).metrics["clip_fraction"].item() == 1
    kl = (0.5 - math.log(1.5) + -0.1 - math.log(0.9)) / 2
    assert metrics["approx_kl"].item() == pytest.approx(kl, abs=1e-6)


def test_a_scheduled_clip_range_is_what_the_loss_reads(discrete):
    learner = PPOAlgorithm.build(discrete, clip_range=0.2)
    rows = two_rows(learner, [1.5, 0.9])
    learner.updater.schedule("clip_range", 0.6)
    assert learner.loss(rows).metrics["clip_fraction"].item() == 0


def test_value_and_entropy_terms_carry_their_weights(discrete):
    learner = PPOAlgorithm.build(discrete, value_weight=0.25, entropy_weight=0.1)
    rows = two_rows(learner, [1.0, 1.0])
    policy, values = learner.model(rows["obs"])
    terms = learner.loss(rows).terms
    torch.testing.assert_close(terms["value_loss"], 0.25 * (values - rows["returns"]).square().mean())
    entropy = torch.distributions.Categorical(logits=policy.logits).entropy().mean()
    torch.testing.assert_close(terms["entropy_loss"], -0.1 * entropy)
    weights = [*learner.model.actor.parameters()]
    pairs = zip(
        torch.autograd.grad(terms["entropy_loss"], weights), torch.autograd.grad(-0.1 * entropy, weights), strict=True
    )
    for found, expected in pairs:
        assert expected.abs().max() > 0
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("kind", "entropy"), [("box", 4 * 0.5 * math.log(2 * math.pi * math.e)), ("discrete", math.log(4))]
)
def test_policies_start_with_the_entropy_of_unit_normals_and_nearly_that_of_a_fair_die(kind, entropy):
    learner = PPOAlgorithm.build(EnvSpec((3,), kind, 4))
    batch = flat(learner.prepare(rollout(learner)))
    assert learner.loss(batch).metrics["entropy"].item() == pytest.approx(entropy, abs=1e-3)


def test_box_actions_are_clipped_for_the_environment_and_scored_as_drawn(box):
    learner, obs = PPOAlgorithm.build(box), torch.randn(50, 3)
    learner.model.actor.net[-1].bias.data.fill_(5.0)
    acted = learner.act(obs)
    raw = acted.extras["raw_actions"]
    assert raw.max() > 5
    assert torch.equal(acted.actions, raw.clamp(-1, 1))
    zeros = torch.zeros(1, 50)
    rows = {"obs": obs[None], "next_obs": obs[None], "rewards": zeros, "dones": zeros, "truncated": zeros}
    prepared = learner.prepare({**rows, "raw_actions": raw[None]})
    normal = torch.distributions.Normal(learner.model.actor.net(obs), 1.0)
    torch.testing.assert_close(prepared["log_probs"][0], normal.log_prob(raw).sum(-1))


def test_adam_has_the_epsilon_and_the_gradient_norm_that_ppo_was_published_with(box):
    (group,) = PPOAlgorithm.build(box).parameter_groups()
    assert (group.kind, group.eps, group.max_grad_norm) == ("adam", 1e-5, 0.5)


def test_several_choices_are_scored_by_the_product_of_their_probabilities():
    learner = PPOAlgorithm.build(LEVERS)
    rows = rollout(learner)
    assert rows["raw_actions"].shape == (5, 4, 2)
    # the last layer starts so small that the choices are nearly even: one of 3, and one of 2
    likelihoods = learner.prepare(rows)["log_probs"].exp()
    torch.testing.assert_close(likelihoods, torch.full((5, 4), 1 / 6), atol=5e-3, rtol=0)


def test_a_policy_that_has_moved_too_far_is_left_alone_until_the_next_rollout(discrete):
    learner = PPOAlgorithm.build(discrete, target_kl=0.04)
    near, far = ((high - 1 - math.log(high) - 0.1 - math.log(0.9)) / 2 for high in (1.5, 1.7))
    assert 0.04 < near < 1.5 * 0.04 < far
    for ratios, halted in (([1.5, 0.9], 0), ([1.7, 0.9], 1), ([1.5, 0.9], 1)):
        before = [parameter.detach().clone() for parameter in learner.parameters()]
        metrics = learner.update(two_rows(learner, ratios)).metrics
        moved = any(not a.equal(b) for a, b in zip(learner.parameters(), before, strict=True))
        assert (metrics["halted"].item(), moved) == (halted, not halted)
    learner.prepare(rollout(learner))
    assert learner.update(two_rows(learner, [1.0, 1.0])).metrics["halted"].item() == 0


def test_without_a_target_the_policy_may_move_as_far_as_it_likes(discrete):
    learner = PPOAlgorithm.build(discrete)
    assert "halted" not in learner.update(two_rows(learner, [9.0, 0.1])).metrics


def test_epochs_end_at_the_minibatch_that_moves_too_far(discrete):
    learner, rows = PPOAlgorithm.build(discrete, target_kl=1e-4, learning_rate=0.1, batch_size=10), RolloutBuffer()
    rows.fill(flat(learner.prepare(rollout(learner))))
    updater = Updater([learner])
    result = updater.run(rows, 20)
    assert 2 <= result.num_gradient_steps < 20  # the first is taken by the policy that acted, which has not moved
    assert result.metrics["approx_kl"] > 1.5e-4
    (count, *_) = {state["step"].item() for state in updater.state_dict()["optimizer"].values()}
    assert count == result.num_gradient_steps - 1


@pytest.mark.parametrize("options", [{}, {"target_kl": 0.01}])
def test_the_loss_of_several_choices_compiles_whole(options):
    torch.compiler.reset()
    learner = PPOAlgorithm.build(LEVERS, **options)
    batch = flat(learner.prepare(rollout(learner)))
    compiled = torch.compile(learner.__call__, fullgraph=True, backend="eager")(batch)
    torch.testing.assert_close(compiled.total, learner.loss(batch).total)


@pytest.mark.parametrize("spec", [EnvSpec((3,), "discrete", 2), EnvSpec((3, 10, 10), "discrete", 4, obs_dtype="uint8")])
def test_weights_start_orthogonal_with_the_gains_of_the_authors(spec):
    model = PPOAlgorithm.build(spec).model
    layers = [layer for layer in model.modules() if isinstance(layer, (nn.Linear, nn.Conv2d))]
    gains = {id(model.actor.net[-1]): 0.01, id(model.value[-1]): 1.0}  # sqrt(2) in hidden layers
    for layer in layers:
        weight = layer.weight.detach().flatten(1)
        gram = weight @ weight.T if len(weight) <= weight.shape[1] else weight.T @ weight
        gain = gains.get(id(layer), math.sqrt(2))
        torch.testing.assert_close(gram, gain**2 * torch.eye(len(gram)), atol=1e-5 * gain**2, rtol=0)
        assert layer.bias is not None
        assert not layer.bias.any()


def test_weights_can_start_as_torch_starts_them_with_another_deviation_and_activation(box):
    learner = PPOAlgorithm.build(box, orthogonal_init=False, log_std_init=-2.0, activation="relu")
    assert learner.model.actor.log_std.tolist() == [-2.0, -2.0]
    assert {type(layer).__name__ for layer in learner.model.value} == {"Linear", "ReLU"}
    assert learner.model.actor.net[-1].bias.abs().min() > 0  # orthogonal ones start with biases of 0
