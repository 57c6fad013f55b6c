"""Dreamer's losses by hand: what is fitted to what was lived, what is dreamed, and which part learns from what."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch.distributions import Bernoulli, Independent, OneHotCategorical, kl_divergence
from torch.nn.functional import one_hot

from rl_training.algorithms import Updater
from rl_training.algorithms.dreamer import (
    RECIPES,
    Dream,
    Dreamer,
    DreamerConfig,
    lambda_returns,
    learning_rate_for,
    percentile,
)
from rl_training.models.dreamer import SIZES, DreamerModel, Size
from rl_training.models.rssm import Beliefs, Latent
from rl_training.types import Batch, EnvSpec

SMALL = Size(deter=16, hidden=8, latents=4, classes=4, depth=2, units=8)
PIXELS = EnvSpec((1, 16, 16), "discrete", 3, obs_dtype="uint8")
VECTORS = EnvSpec((3,), "box", 2)
WORLD = {"encoder", "rssm"}


def small(spec: EnvSpec = PIXELS, **options: Any) -> Dreamer:
    options = {"horizon": 3, "warm_up": 0, **options}
    config = DreamerConfig(**options)
    model = DreamerModel(
        spec, SMALL, unimix=config.actor_unimix, actor_scale=config.actor_scale, symlog_bins=config.bins == "symlog"
    )
    return Dreamer(model, config)


def used(spec: EnvSpec = PIXELS, **options: Any) -> Dreamer:
    """A learner none of whose layers is zero any more."""
    learner = small(spec, **options)
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return learner


def windows(spec: EnvSpec = PIXELS, rows: int = 3, steps: int = 6, size: Size = SMALL) -> Batch:
    """In the first row an episode terminates at step 2, in the second one is cut short there."""
    draws = torch.Generator().manual_seed(5)
    if spec.obs_dtype == "uint8":
        obs = torch.randint(256, (rows, steps, *spec.obs_shape), generator=draws, dtype=torch.uint8)
    else:
        obs = torch.randn(rows, steps, *spec.obs_shape, generator=draws)
    if spec.action_kind == "discrete":
        actions = torch.randint(spec.action_dim, (rows, steps), generator=draws)
    else:
        actions = torch.rand(rows, steps, spec.action_dim, generator=draws) * 2 - 1
    dones, is_last, is_first = torch.zeros(3, rows, steps)
    dones[0, 2] = is_last[:2, 2] = is_first[:2, 3] = 1
    return {
        "obs": obs, "actions": actions, "previous_actions": actions.roll(1, 1), "dones": dones, "is_last": is_last,
        "is_first": is_first, "rewards": torch.randn(rows, steps, generator=draws),
        "start_deter": torch.randn(rows, size.deter, generator=draws).half(),
        "start_stoch": torch.randint(size.classes, (rows, size.latents), generator=draws, dtype=torch.uint8),
    }  # fmt: skip


def dream(learner: Dreamer, horizon: int = 3, rows: int = 5) -> Dream:
    start = Latent(torch.randn(rows, SMALL.deter), one_hot(torch.randint(4, (rows, 4)), 4).float())
    return learner.imagine(start, torch.tensor([1.0, 0.0, 1.0, 1.0, 1.0])[:rows])


# Returns


def test_returns_of_three_steps_by_hand_with_an_end_within():
    rewards = torch.tensor([9.0, 1.0, 2.0, 4.0])  # that of the first state was paid before
    discounts = torch.tensor([9.0, 0.5, 0.0, 0.5])  # the third state is the last of its episode
    values = torch.tensor([9.0, 10.0, 20.0, 30.0])
    # From the end: 4 + 0.5 * 30 = 19; 2 + 0 = 2; 1 + 0.5 * (0.2 * 10 + 0.8 * 2) = 2.8
    returns = lambda_returns(rewards, discounts, values, torch.full((4,), 0.8))
    assert returns.tolist() == pytest.approx([2.8, 2.0, 19.0])


def test_returns_are_those_of_a_plain_loop():
    rewards, values = torch.randn(2, 9, 4)
    discounts, traces = torch.rand(2, 9, 4)
    expected = torch.zeros(8, 4)
    for row in range(4):
        ahead = values[8, row]
        for t in range(7, -1, -1):
            mixed = (1 - traces[t + 1, row]) * values[t + 1, row] + traces[t + 1, row] * ahead
            ahead = rewards[t + 1, row] + discounts[t + 1, row] * mixed
            expected[t, row] = ahead
    assert torch.allclose(lambda_returns(rewards, discounts, values, traces), expected, atol=1e-5)


@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_percentiles_are_those_of_torch(count):
    numbers = torch.randn(count)
    for share in (0.05, 0.95):
        assert percentile(numbers.sort().values, share).item() == pytest.approx(numbers.quantile(share).item())


def test_constant_returns_have_a_scale_of_one():
    scale, ends = small().return_scale(torch.full((3, 4), 50.0))
    assert scale == 1
    assert [end.item() for end in ends.values()] == pytest.approx([0.5, 0.5])  # a hundredth of the way from 0


def test_the_scale_is_the_range_of_returns_slowly_followed_and_no_shift_moves_it():
    learner, returns = small(), torch.linspace(0, 1000, 101)
    scale, _ = learner.return_scale(returns)
    assert scale.item() == pytest.approx(9.0)  # a hundredth of 950 - 50
    assert learner.return_scale(returns + 777)[0].item() == pytest.approx(9.0, rel=1e-4)


def test_an_update_moves_the_ends_of_the_scale():
    learner = used()
    with torch.no_grad():
        learner.model.reward.net[-1].bias[200] = 20.0
    learner.update(windows())
    assert learner.return_high.item() > 0


# The world model


def test_every_term_of_the_world_model_by_an_independent_calculation():
    learner, batch = used(dynamics_weight=0.7, representation_weight=0.2, gamma=0.9, free_nats=0.3), windows()
    beliefs = learner.observe(batch)
    model, features = learner.model, beliefs.latent.features
    terms = learner.world_loss(beliefs, batch).terms
    pixels = batch["obs"].double() / 255
    reconstruction = (model.decode(beliefs.latent).double() - pixels).square().sum((2, 3, 4)).mean()
    logits, bins = model.reward.net(features), model.reward.bins
    distance = (batch["rewards"].unsqueeze(-1) - bins).abs()
    nearest = distance.topk(2, largest=False)  # with bins as close as these, those on either side of small rewards
    weights = 1 - nearest.values / nearest.values.sum(-1, keepdim=True)
    reward = -(weights * logits.log_softmax(-1).gather(-1, nearest.indices)).sum(-1).mean()
    chance = Bernoulli(logits=model.continuation(features).squeeze(-1), validate_args=False)
    going = -chance.log_prob((1 - batch["dones"]) * 0.9).mean()
    post, prior = (Independent(OneHotCategorical(logits=each), 1) for each in (beliefs.posterior, beliefs.prior))
    floored = kl_divergence(post, prior).clamp(min=0.3).mean()
    expected = [reconstruction, reward, going, 0.7 * floored, 0.2 * floored]
    assert [term.item() for term in terms.values()] == pytest.approx([each.item() for each in expected], rel=1e-5)


def test_vectors_are_compared_after_symlog():
    learner, batch = used(VECTORS), windows(VECTORS)
    beliefs = learner.observe(batch)
    pressed = batch["obs"].sign() * (1 + batch["obs"].abs()).log()
    expected = (learner.model.decode(beliefs.latent) - pressed).square().sum(-1).mean()
    found = learner.world_loss(beliefs, batch).terms["dreamer_reconstruction_loss"]
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_continuation_is_fitted_to_terminations_alone_with_or_without_the_discount():
    for discounted, target in ((True, 0.9), (False, 1.0)):
        learner, batch = used(discounted_continue=discounted, gamma=0.9), windows()
        with torch.no_grad():
            learner.model.continuation[-1].weight.zero_()
            learner.model.continuation[-1].bias.fill_(1.0)
        loss = learner.world_loss(learner.observe(batch), batch).terms["dreamer_continue_loss"]
        yes, no = math.log1p(math.exp(-1)), 1 + math.log1p(math.exp(-1))  # of 18 steps one is terminal
        assert loss.item() == pytest.approx((17 * (target * yes + (1 - target) * no) + no) / 18, rel=1e-5)


def beliefs_apart(by: float, learner: Dreamer, batch: Batch) -> tuple[Beliefs, torch.Tensor, torch.Tensor]:
    """Beliefs whose first latent has this much more weight on a class after seeing than before."""
    prior, posterior = (torch.zeros(3, 6, 4, 4, requires_grad=True) for _ in range(2))
    more = torch.zeros(4, 4)
    more[:, 0] = by
    latent = Latent(*(each.detach() for each in learner.observe(batch).latent))
    return Beliefs(latent, (posterior + more).log_softmax(-1), prior.log_softmax(-1)), posterior, prior


def test_the_floor_is_under_the_sum_over_latents_and_below_it_nothing_pulls():
    learner, batch = small(), windows()
    # A divergence of 0.28 nats in each of four latents: below the floor one by one, above it together.
    for by, over in ((0.5, False), (1.5, True)):
        beliefs, posterior, prior = beliefs_apart(by, learner, batch)
        loss = learner.world_loss(beliefs, batch)
        total = loss.metrics["dreamer_divergence"].item()
        assert (total > 1) == over
        assert total < 4
        terms = [loss.terms[f"dreamer_{name}_loss"] for name in ("dynamics", "representation")]
        assert [term.item() for term in terms] == pytest.approx([max(total, 1), 0.1 * max(total, 1)])
        for term, mine, other in ((terms[0], prior, posterior), (terms[1], posterior, prior)):
            pull, none = torch.autograd.grad(term, (mine, other), allow_unused=True, retain_graph=True)
            assert none is None
            assert (pull.abs().sum() > 0) == over


def test_the_dynamics_train_the_prior_and_the_representation_what_sees():
    learner, batch = used(free_nats=0.0), windows(steps=4)
    batch["is_first"] = torch.ones(3, 4)  # so that no memory carries a gradient from one step to the next
    terms = learner.world_loss(learner.observe(batch), batch).terms

    def touched(name: str) -> set[str]:
        trained = dict(learner.model.named_parameters())
        gradients = torch.autograd.grad(
            terms[f"dreamer_{name}_loss"], list(trained.values()), allow_unused=True, retain_graph=True
        )
        return {
            ".".join(part.split(".")[:2]) if part.startswith("rssm") else part.split(".")[0]
            for part, gradient in zip(trained, gradients, strict=True)
            if gradient is not None and gradient.any()
        }

    dynamics, representation = touched("dynamics"), touched("representation")
    assert dynamics == {"rssm.cell", "rssm.prior"}
    assert representation == {"encoder", "rssm.seen", "rssm.recalled", "rssm.posterior", "rssm.cell"}


# Dreams


def test_a_dream_is_weighed_by_the_chance_to_get_there_without_the_end_of_its_own_action():
    learner = used(gamma=0.9, discounted_continue=False)
    seen = dream(learner)
    chances = learner.model.continuation(seen.features).squeeze(-1).sigmoid()
    assert seen.discounts[0].tolist() == [1, 0, 1, 1, 1]  # known, not guessed; nothing is learned after an end
    assert torch.allclose(seen.discounts[1:], 0.9 * chances[1:])
    assert seen.weights[0].tolist() == [1, 0, 1, 1, 1]
    assert torch.allclose(seen.weights[2, 2:], 0.81 * chances[1, 2:] * chances[2, 2:])
    assert torch.allclose(seen.rewards, learner.model.reward(seen.features).mean())


def test_a_continuation_that_has_the_discount_in_it_is_not_discounted_again():
    learner = used(gamma=0.5)
    seen = dream(learner)
    assert torch.allclose(seen.discounts[1:], learner.model.continuation(seen.features[1:]).squeeze(-1).sigmoid())


def test_actor_and_critic_by_a_plain_loop():
    learner = used(entropy_weight=0.01, return_lambda=0.8)
    learner.return_high += 700.0
    seen = dream(learner)
    loss, returns = learner.behaviour_loss(seen)
    model, count = learner.model, 3 * 5
    actor = critic = 0.0
    for row in range(5):
        values = [model.critic(seen.features[t, row]).mean().item() for t in range(4)]
        ahead, weight = values[3], {}
        for t in range(3):
            weight[t] = math.prod(seen.discounts[s, row].item() for s in range(t + 1))
        for t in (2, 1, 0):
            mixed = 0.2 * values[t + 1] + 0.8 * ahead
            ahead = seen.rewards[t + 1, row].item() + seen.discounts[t + 1, row].item() * mixed
            assert returns[t, row].item() == pytest.approx(ahead, rel=1e-4)
            features = seen.features[t, row]
            policy = model.actor(features)
            advantage = (ahead - values[t]) / loss.metrics["dreamer_return_scale"].item()
            log_prob = policy.logits[seen.actions[t, row]].item()
            entropy = -(policy.logits.exp() * policy.logits).sum().item()
            actor -= weight[t] * (log_prob * advantage + 0.01 * entropy) / count
            slow = learner.target["critic"](features).mean()
            guess = model.critic(features)
            critic += weight[t] * (guess.loss(torch.tensor(ahead)) + guess.loss(slow)).item() / count
    assert loss.metrics["dreamer_return_scale"] > 600
    assert loss.terms["dreamer_actor_loss"].item() == pytest.approx(actor, rel=1e-3)
    assert loss.terms["dreamer_critic_loss"].item() == pytest.approx(critic, rel=1e-4)


def test_an_action_that_pays_becomes_likelier():
    learner = small(entropy_weight=0.0, learning_rate=1e-2)
    features = torch.randn(2, 50, SMALL.deter + 16)
    actions = torch.arange(50).remainder(3)[None]
    rewards = torch.stack([torch.zeros(50), (actions[0] == 1).float()])  # on arrival
    seen = Dream(features, actions, torch.ones(2, 50), rewards, torch.stack([torch.ones(50), torch.zeros(50)]))
    updater = Updater([learner])
    before = learner.model.actor(features[0]).logits.exp()[:, 1].mean()
    for _ in range(20):
        updater._descend(learner.behaviour_loss(seen)[0])
    assert learner.model.actor(features[0]).logits.exp()[:, 1].mean() > before + 0.01


def test_lived_states_are_valued_by_what_was_paid_up_to_the_ends_of_episodes():
    learner, batch = used(gamma=0.9, return_lambda=0.7), windows()
    features, ahead = torch.randn(3, 6, SMALL.deter + 16), torch.randn(3, 6)
    found = learner.replay_value_loss(features, ahead, batch)
    expected = 0.0
    for row in range(3):
        value = ahead[row, 5].item()
        for t in range(4, -1, -1):
            trace = 0.7 * (1 - batch["is_last"][row, t + 1].item())
            discount = 0.9 * (1 - batch["dones"][row, t + 1].item())
            value = batch["rewards"][row, t + 1].item() + discount * (
                (1 - trace) * ahead[row, t + 1].item() + trace * value
            )
            if batch["is_last"][row, t]:
                continue  # what follows is another episode
            guess, slow = learner.model.critic(features[row, t]), learner.target["critic"](features[row, t]).mean()
            expected += (guess.loss(torch.tensor(value)) + guess.loss(slow)).item() / (3 * 5)
    assert found.item() == pytest.approx(expected, rel=1e-4)


# Who learns from what


def test_each_term_trains_its_own_parts_and_dreams_never_train_the_world(reached):
    learner = used()
    terms = learner.loss(windows()).terms
    assert {name: reached(term, learner) for name, term in terms.items()} == {
        "dreamer_reconstruction_loss": {*WORLD, "decoder"},
        "dreamer_reward_loss": {*WORLD, "reward"},
        "dreamer_continue_loss": {*WORLD, "continuation"},
        "dreamer_dynamics_loss": WORLD,
        "dreamer_representation_loss": WORLD,
        "dreamer_actor_loss": {"actor"},
        "dreamer_critic_loss": {"critic"},
        "dreamer_replay_value_loss": {*WORLD, "critic"},
    }


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("spec", [PIXELS, VECTORS], ids=["pixels", "vectors"])
def test_no_part_is_left_without_a_gradient(spec, precision):
    learner = used(spec, precision=precision, free_nats=0.0)
    learner.loss(windows(spec)).total.backward()
    still = [
        name
        for name, value in learner.named_parameters()
        if value.requires_grad and not (value.grad is not None and value.grad.any())
    ]
    assert still == []


def test_lower_precision_changes_little():
    exact, rough = used(), used(precision="bfloat16")
    rough.load_state_dict(exact.state_dict())
    losses = []
    for learner in (exact, rough):
        torch.manual_seed(3)
        losses.append(learner.world_loss(learner.observe(windows()), windows()).total)
    assert losses[1].dtype == torch.float32
    assert losses[1].item() == pytest.approx(losses[0].item(), rel=0.02)


def test_the_slow_critic_moves_a_fiftieth_of_the_way_at_every_update():
    learner = used()
    slow, fast = (part.get_parameter("net.3.bias") for part in (learner.target["critic"], learner.model.critic))
    for _ in range(2):
        before = slow.detach().clone()
        learner.update(windows())
        assert torch.allclose(slow, before + 0.02 * (fast - before), atol=1e-6)


# Acting


def test_acting_sees_and_remembers_what_training_does():
    learner, batch = used(), windows(rows=1, steps=4)
    batch["is_first"][:] = torch.tensor([1.0, 0, 0, 0])
    start = learner.restored(batch["start_deter"], batch["start_stoch"])
    beliefs = learner.model.observe(batch["obs"], batch["previous_actions"], batch["is_first"], start, None)
    memory = learner.initial_memory(1)
    for t in range(4):
        memory = {**memory, "action": batch["previous_actions"][:, t]}
        chosen = learner.act(batch["obs"][:, t], memory, deterministic=True)
        memory = chosen.memory
        assert torch.allclose(memory["deter"], beliefs.latent.deter[:, t], atol=1e-5)
        assert memory["stoch"].equal(beliefs.latent.stoch[:, t].argmax(-1).to(torch.uint8))
        assert chosen.actions.equal(learner.model.actor(Latent(*(x[:, t] for x in beliefs.latent)).features).mode())


def test_a_memory_is_forgotten_where_an_episode_begins():
    learner = used()
    obs = torch.randint(256, (2, 1, 16, 16), dtype=torch.uint8)
    memory = learner.act(obs, generator=torch.Generator().manual_seed(0)).memory
    assert memory["is_first"].tolist() == [0, 0]
    memory["is_first"][1] = 1
    kept, fresh = (learner.act(obs, each, deterministic=True).memory for each in (memory, None))
    assert fresh["deter"][1].equal(kept["deter"][1])
    assert not fresh["deter"][0].equal(kept["deter"][0])


def test_acting_draws_by_the_chances_that_the_loss_counts():
    learner = used(actor_unimix=0.3)
    obs = torch.randint(256, (1, 1, 16, 16), dtype=torch.uint8).expand(4000, -1, -1, -1)
    memory = {**learner.initial_memory(4000)}
    chosen = learner.act(obs, memory, generator=torch.Generator().manual_seed(0))
    stoch = one_hot(chosen.memory["stoch"].long(), 4).float()
    chances = learner.model.actor(Latent(chosen.memory["deter"], stoch).features).logits.exp()
    shares = one_hot(chosen.actions, 3).float().mean(0)
    assert torch.allclose(shares, chances.mean(0), atol=0.03)


def test_dreams_draw_by_the_chances_that_the_loss_counts():
    learner = used(actor_unimix=0.3)
    start = Latent(torch.randn(1, SMALL.deter), one_hot(torch.randint(4, (1, 4)), 4).float())
    torch.manual_seed(0)
    _, actions = learner.model.imagine(Latent(*(each.expand(4000, *each.shape[1:]) for each in start)), 1)
    chances = learner.model.actor(start.features).logits.exp()[0]
    assert torch.allclose(one_hot(actions[0], 3).float().mean(0), chances, atol=0.03)


# Updates


def test_what_is_remembered_of_every_step_is_told_in_the_form_it_is_kept():
    learner, batch = used(), windows()
    torch.manual_seed(9)
    rows = learner.loss(batch).rows
    torch.manual_seed(9)
    latent = learner.observe(batch).latent
    assert rows["deter"].equal(latent.deter.half())
    assert rows["stoch"].equal(latent.stoch.argmax(-1).to(torch.uint8))
    kept = learner.initial_memory(1)
    assert {name: (value.shape[2:], value.dtype) for name, value in rows.items()} == {
        "deter": (kept["deter"].shape[1:], torch.float16), "stoch": (kept["stoch"].shape[1:], kept["stoch"].dtype)
    }  # fmt: skip


def test_a_learner_given_the_state_of_another_goes_on_alike(goes_on_alike):
    goes_on_alike(used(), small(), windows())


@pytest.mark.slow
def test_compiled_updates_are_the_eager_ones(monkeypatch):
    torch.compiler.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    eager, compiled = used(horizon=2), used(horizon=2)
    compiled.load_state_dict(eager.state_dict())
    updaters = [Updater([eager]), Updater([compiled], compile=True)]
    traced = torch._dynamo.utils.counters["stats"]
    results = []
    for updater in updaters:
        torch.manual_seed(0)
        results.append([updater.update(windows(steps=4)) for _ in range(2)])
    for mine, theirs in zip(*results, strict=True):
        assert all(
            torch.allclose(value, theirs.metrics[name], rtol=1e-4, atol=1e-5) for name, value in mine.metrics.items()
        )
    assert all(torch.allclose(value, updaters[1].params[name], atol=1e-4) for name, value in updaters[0].params.items())
    # A step that is dreamt, and one that is seen: the first of a window goes on from what has no gradient.
    assert traced["unique_graphs"] == 3
    compiled.act(windows()["obs"][:, 0])
    assert traced["unique_graphs"] == 3  # acting stays as it is


def test_the_model_learns_which_action_leads_where():
    """Each observation shows the action before it; with actions one step off, nothing can be foreseen."""
    spec = EnvSpec((3,), "discrete", 3)
    learner = small(spec, learning_rate=1e-2, horizon=1, free_nats=0.0)
    draws = torch.Generator().manual_seed(0)

    def lived(rows: int) -> Batch:
        actions, none = torch.randint(3, (rows, 5), generator=draws), torch.zeros(rows, 5)
        batch = windows(spec, rows, 5) | {"actions": actions, "previous_actions": actions.roll(1, 1)}
        batch |= {"is_first": torch.eye(5)[:1].expand(rows, 5), "is_last": none, "dones": none, "rewards": none}
        return batch | {"obs": 5 * one_hot(batch["previous_actions"], 3).float()}

    for _ in range(80):
        learner.update(lived(32))
    batch = lived(300)
    latent = learner.observe(batch).latent
    start, truth = Latent(latent.deter[:, 1], latent.stoch[:, 1]), batch["obs"][:, 2:4].argmax(-1)
    scores = []
    for shift in (0, 1, -1):
        ahead = learner.model.predict(start, batch["actions"].roll(shift, 1)[:, 1:3])
        scores.append((learner.model.decode(ahead).argmax(-1) == truth).float().mean().item())
    assert scores[0] > 0.8
    assert max(scores[1:]) < 0.5  # of three, a third by chance


# Options


def test_every_size_can_be_named():
    assert {size: DreamerConfig(size=size).size for size in SIZES} == {size: size for size in SIZES}


def test_the_learning_rate_goes_by_width_and_train_ratio_unless_it_is_given():
    assert learning_rate_for(1024, 32) == pytest.approx(4.0e-5, rel=0.02)
    assert DreamerConfig(size="tiny", train_ratio=512).learning_rate == pytest.approx(2.6e-4, rel=0.02)
    assert DreamerConfig(size="size12m").learning_rate == pytest.approx(7.0e-5, rel=0.02)
    assert DreamerConfig(size="tiny", learning_rate=1e-3).learning_rate == 1e-3


def test_what_is_believed_is_drawn_in_an_evaluation_and_not_where_nothing_may_be():
    learner, obs = used(), windows()["obs"][:, 0]
    seeds = (torch.Generator().manual_seed(seed) for seed in (1, 1, 2))
    one, again, other = (learner.act(obs, deterministic=True, generator=each).memory["stoch"] for each in seeds)
    assert one.equal(again)
    assert not one.equal(other)
    still = [learner.act(obs, deterministic=True).memory["stoch"] for _ in range(2)]
    assert still[0].equal(still[1])


@pytest.mark.parametrize("recipe", ["2023", "2024", 2023])
def test_a_recipe_says_what_options_are_that_are_not_given(recipe):
    config = DreamerConfig(recipe=recipe, dynamics_weight=0.25)
    expected = {**RECIPES[str(recipe)], "dynamics_weight": 0.25}
    assert {name: getattr(config, name) for name in expected} == expected


@pytest.mark.parametrize("option", [{"recipe": "2022"}, {"size": "huge"}, {"train_ratio": 0}, {"horizon": 0},
                                    {"actor_unimix": 1.5}, {"window": 1}])  # fmt: skip
def test_a_bad_option_is_refused_by_name(option):
    with pytest.raises(ValueError, match=next(iter(option))):
        DreamerConfig(**option)


def test_an_update_by_the_recipe_of_2023_has_an_optimizer_for_behaviour_and_no_replayed_value():
    learner = used(recipe="2023")
    groups = [(group.learning_rate, group.kind, group.eps, group.max_grad_norm) for group in learner.parameter_groups()]
    assert groups == [(3e-5, "adam", 1e-5, 100.0), (1e-4, "adam", 1e-8, 1000.0)]
    metrics = learner.update(windows()).metrics
    assert metrics["dreamer_replay_value_loss"] == 0
    assert all(value.isfinite() for value in metrics.values())
