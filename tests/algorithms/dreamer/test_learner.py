"""Which part learns from what, acting, updates and options."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch.nn.functional import one_hot

from rl_training.algorithms import Updater
from rl_training.algorithms.dreamer import (
    RECIPES,
    DreamerAlgorithm,
    DreamerConfig,
    learning_rate_for,
)
from rl_training.models.dreamer import SIZES
from rl_training.models.rssm import Latent
from rl_training.testing.checks import check_loaded_state
from rl_training.types import Batch, EnvSpec, ObsPart

VECTORS = EnvSpec((3,), "box", 2)
VECTOR_CHOICES = EnvSpec((3,), "discrete", 3)
PARTS = (ObsPart("eye", (1, 16, 16), "uint8"), ObsPart("word", (3,), "float32"))
BOTH = EnvSpec((268,), "discrete", 3, "uint8", obs_parts=PARTS)
PIXELS = EnvSpec((1, 16, 16), "discrete", 3, obs_dtype="uint8")
WORLD = {"encoder", "rssm"}


# Who learns from what


@pytest.mark.parametrize("gradient", ["reinforce", "dynamics"])
def test_each_term_trains_its_own_parts_and_dreams_never_train_the_world(used, windows, reached, gradient):
    spec = PIXELS if gradient == "reinforce" else VECTORS
    learner = used(spec, actor_gradient=gradient)
    terms = learner.loss(windows(spec)).terms
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
@pytest.mark.parametrize("architecture", ["2023", "2024"])
@pytest.mark.parametrize(
    ("spec", "gradient"),
    [(PIXELS, "reinforce"), (VECTORS, "reinforce"), (VECTORS, "dynamics"), (BOTH, "reinforce")],
    ids=["pixels", "vectors", "dynamics", "both"],
)
def test_no_part_is_left_without_a_gradient(used, windows, spec, gradient, precision, architecture):
    learner = used(spec, precision=precision, free_nats=0.0, actor_gradient=gradient, architecture=architecture)
    learner.loss(windows(spec)).total.backward()
    still = [
        name
        for name, value in learner.named_parameters()
        if value.requires_grad and not (value.grad is not None and value.grad.any())
    ]
    assert still == []


def test_lower_precision_changes_little(used, windows):
    exact, rough = used(), used(precision="bfloat16")
    rough.load_state_dict(exact.state_dict())
    losses = []
    for learner in (exact, rough):
        torch.manual_seed(3)
        losses.append(learner.world_loss(learner.observe(windows()), windows()).total)
    assert losses[1].dtype == torch.float32
    assert losses[1].item() == pytest.approx(losses[0].item(), rel=0.02)


def test_the_slow_critic_moves_a_fiftieth_of_the_way_at_every_update(used, windows):
    learner = used()
    slow, fast = (part.get_parameter("net.3.bias") for part in (learner.target["critic"], learner.model.critic))
    for _ in range(2):
        before = slow.detach().clone()
        learner.update(windows())
        assert torch.allclose(slow, before + 0.02 * (fast - before), atol=1e-6)


# Acting


def test_acting_sees_and_remembers_what_training_does(used, windows):
    learner, batch = used(), windows(rows=1, steps=4)
    batch["is_first"][:] = torch.tensor([1.0, 0, 0, 0])
    start = learner.restore_latent(batch["start_deter"], batch["start_stoch"])
    states = learner.model.observe(
        learner.embed(batch["obs"]), batch["previous_actions"], batch["is_first"], start, None
    )
    memory = learner.initial_memory(1)
    for t in range(4):
        memory = {**memory, "action": batch["previous_actions"][:, t]}
        chosen = learner.act(batch["obs"][:, t], memory, deterministic=True)
        memory = chosen.memory
        assert torch.allclose(memory["deter"], states.latent.deter[:, t], atol=1e-5)
        assert memory["stoch"].equal(states.latent.stoch[:, t].argmax(-1).to(torch.uint8))
        assert chosen.actions.equal(learner.model.actor(Latent(*(x[:, t] for x in states.latent)).features).mode())


def test_a_memory_is_forgotten_where_an_episode_begins(used):
    learner = used()
    obs = torch.randint(256, (2, 1, 16, 16), dtype=torch.uint8)
    memory = learner.act(obs, generator=torch.Generator().manual_seed(0)).memory
    assert memory["is_first"].tolist() == [0, 0]
    memory["is_first"][1] = 1
    kept, fresh = (learner.act(obs, each, deterministic=True).memory for each in (memory, None))
    assert fresh["deter"][1].equal(kept["deter"][1])
    assert not fresh["deter"][0].equal(kept["deter"][0])


def test_acting_draws_by_the_chances_that_the_loss_counts(used):
    learner = used(actor_unimix=0.3)
    obs = torch.randint(256, (1, 1, 16, 16), dtype=torch.uint8).expand(4000, -1, -1, -1)
    memory = {**learner.initial_memory(4000)}
    chosen = learner.act(obs, memory, generator=torch.Generator().manual_seed(0))
    stoch = one_hot(chosen.memory["stoch"].long(), 4).float()
    probabilities = learner.model.actor(Latent(chosen.memory["deter"], stoch).features).logits.exp()
    shares = one_hot(chosen.actions, 3).float().mean(0)
    assert torch.allclose(shares, probabilities.mean(0), atol=0.03)


def test_dreams_draw_by_the_chances_that_the_loss_counts(used):
    learner = used(actor_unimix=0.3)
    start = Latent(torch.randn(1, learner.model.size.deter), one_hot(torch.randint(4, (1, 4)), 4).float())
    torch.manual_seed(0)
    _, actions = learner.model.imagine(Latent(*(each.expand(4000, *each.shape[1:]) for each in start)), 1)
    probabilities = learner.model.actor(start.features).logits.exp()[0]
    assert torch.allclose(one_hot(actions[0], 3).float().mean(0), probabilities, atol=0.03)


# Updates


def test_without_stored_latents_a_window_is_seen_from_nothing_and_nothing_of_it_is_kept(used, windows):
    learner, batch = used(stored_latents=False), windows()
    batch["is_first"][:, 0] = 1
    torch.manual_seed(9)
    remembered = learner.observe(batch).latent.deter
    blank = {name: column for name, column in batch.items() if not name.startswith("start_")}
    torch.manual_seed(9)
    assert learner.observe(blank).latent.deter.equal(remembered)
    assert learner.loss(blank).rows == {}


def test_what_is_remembered_of_every_step_is_told_in_the_form_it_is_kept(used, windows):
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


def test_a_learner_given_the_state_of_another_goes_on_alike(small, used, windows):
    check_loaded_state(used(), small(), windows())


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("spec", "gradient", "graphs", "architecture"),
    [(PIXELS, "reinforce", 7, "2024"), (VECTORS, "dynamics", 8, "2024"), (PIXELS, "reinforce", 7, "2023")],
)
def test_compiled_updates_are_the_eager_ones(used, windows, monkeypatch, spec, gradient, graphs, architecture):
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    eager, compiled = (used(spec, horizon=2, actor_gradient=gradient, architecture=architecture) for _ in range(2))
    compiled.load_state_dict(eager.state_dict())
    updaters = [Updater([eager]), Updater([compiled], compile=True)]
    traced = torch._dynamo.utils.counters["stats"]
    results = []
    for updater in updaters:
        torch.manual_seed(0)
        results.append([updater.update(windows(spec, steps=4)) for _ in range(2)])
    for mine, theirs in zip(*results, strict=True):
        assert all(
            torch.allclose(value, theirs.metrics[name], rtol=1e-4, atol=1e-5) for name, value in mine.metrics.items()
        )
    assert all(torch.allclose(value, updaters[1].params[name], atol=1e-4) for name, value in updaters[0].params.items())
    # An observed and an imagined step, and five parts of the loss. By dynamics, later imagined steps have gradients
    # for the state before them, and the first has none.
    assert traced["unique_graphs"] == graphs
    compiled.act(windows(spec)["obs"][:, 0])
    assert traced["unique_graphs"] == graphs  # acting stays as it is


@pytest.mark.parametrize("architecture", ["2023", "2024"])
def test_the_model_learns_which_action_leads_where(small, windows, architecture):
    """Each observation shows the action before it; with actions one step off, nothing can be foreseen."""
    spec = EnvSpec((3,), "discrete", 3)
    learner = small(spec, learning_rate=1e-2, horizon=1, free_nats=0.0, architecture=architecture)
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
    assert max(scores[1:]) < 0.5  # of three, a third for random actions


# Options


def test_every_size_can_be_named():
    assert {size: DreamerConfig(size=size).size for size in SIZES} == {size: size for size in SIZES}


def test_the_learning_rate_goes_by_width_and_train_ratio_unless_it_is_given():
    assert learning_rate_for(1024, 32) == pytest.approx(4.0e-5, rel=0.02)
    assert DreamerConfig(size="tiny", train_ratio=512).learning_rate == pytest.approx(2.6e-4, rel=0.02)
    assert DreamerConfig(size="size12m").learning_rate == pytest.approx(7.0e-5, rel=0.02)
    assert DreamerConfig(size="tiny", learning_rate=1e-3).learning_rate == 1e-3


def test_what_is_believed_is_drawn_in_an_evaluation_and_not_where_nothing_may_be(used, windows):
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


def test_the_architecture_is_an_option_that_yaml_may_read_as_a_number():
    learner: Any = DreamerAlgorithm.build(PIXELS, size="tiny", architecture=2023)
    assert learner.model.size == SIZES["tiny"]._replace(release="2023")
    assert DreamerConfig(recipe="2023").architecture == "2024"  # as in runs that were saved without the option


@pytest.mark.parametrize("option", [{"recipe": "2022"}, {"size": "huge"}, {"train_ratio": 0}, {"horizon": 0},
                                    {"actor_unimix": 1.5}, {"window": 1}, {"architecture": "2022"}])  # fmt: skip
def test_a_bad_option_is_refused_by_name(option):
    with pytest.raises(ValueError, match=next(iter(option))):
        DreamerConfig(**option)


def test_gradients_are_clipped_to_three_tenths_of_their_weights(used):
    groups = used(warm_up=1_000, learning_rate=1e-4).parameter_groups()
    assert [(group.kind, group.eps, group.max_grad_ratio, group.warm_up) for group in groups] == [
        ("laprop", 1e-20, 0.3, 1_000)
    ]


def test_the_share_of_random_actions_is_an_option():
    options: dict[str, Any] = {"size": "tiny"}
    for share in (0.01, 0.3):
        actor: Any = DreamerAlgorithm.build(VECTOR_CHOICES, **options).model.actor
        last = actor.net[-1]
        with torch.no_grad():
            last.weight.zero_()
            last.bias.copy_(torch.tensor([1e4, 0.0, 0.0]))
        probabilities = actor(torch.zeros(1, 256 + 8 * 8)).logits.exp()[0]
        assert probabilities.tolist() == pytest.approx([1 - share * 2 / 3, share / 3, share / 3])
        options["actor_unimix"] = 0.3


def test_an_update_by_the_recipe_of_2023_has_an_optimizer_for_behaviour_and_no_replayed_value(used, windows):
    learner = used(recipe="2023")
    groups = [(group.learning_rate, group.kind, group.eps, group.max_grad_norm) for group in learner.parameter_groups()]
    assert groups == [(3e-5, "adam", 1e-5, 100.0), (1e-4, "adam", 1e-8, 1000.0)]
    metrics = learner.update(windows()).metrics
    assert metrics["dreamer_replay_value_loss"] == 0
    assert all(value.isfinite() for value in metrics.values())
