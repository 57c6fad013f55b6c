"""SAC with Discrete actions: losses by hand, masks, images, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from rl_training.algorithms import CATALOGUE, DiscreteSAC, SACAlgorithm
from rl_training.algorithms.discrete_sac import soft_value
from rl_training.types import EnvSpec

SPEC = EnvSpec((3,), "discrete", 3)
ROWS = {"obs": torch.zeros(2, 3), "next_obs": torch.zeros(2, 3), "actions": torch.tensor([2, 0]),
        "rewards": torch.tensor([1.0, 2.0]), "dones": torch.tensor([0.0, 1.0])}  # fmt: skip
PROBABILITIES = [1 / 6, 2 / 6, 3 / 6]
ENTROPY = math.log(6) / 6 + math.log(3) / 3 + math.log(2) / 2


def table(spec: EnvSpec = SPEC, **options: Any) -> Any:
    """A learner without hidden layers whose outputs do not depend on the observation."""
    learner: Any = SACAlgorithm.build(spec, hidden_sizes=(), gamma=0.5, temperature=0.5, **options)
    with torch.no_grad():
        for name, parameter in learner.named_parameters():
            if name.endswith("weight"):
                parameter.zero_()
        learner.model.critic.net[0].bias.copy_(torch.tensor([[[1.0, 2.0, 4.0]], [[0.0, 5.0, 3.0]]]))
        learner.target["critic"].net[0].bias.copy_(torch.tensor([[[2.0, 9.0, 3.5]], [[1.0, 9.0, 6.0]]]))
        learner.model.actor.head.net[0].bias.copy_(torch.tensor([0.0, 1.0, 2.0]).log1p())
    return learner


def test_losses_are_those_worked_out_by_hand():
    terms = table().loss(ROWS).terms
    # The smaller target Q-values are 1, 9 and 3.5, the smaller Q-values 0, 2 and 3.
    next_value = 1 / 6 + 9 / 3 + 3.5 / 2 + 0.5 * ENTROPY
    target = 1 + 0.5 * next_value  # of the first row; the second terminates, with a reward of 2
    # Q of actions 2 and 0: 4 and 1 of the first critic, 3 and 0 of the second.
    squares = ((4 - target) ** 2 + (1 - 2) ** 2) / 2 + ((3 - target) ** 2 + (0 - 2) ** 2) / 2
    assert terms["critic_loss"].item() == pytest.approx(squares / 2)
    assert terms["actor_loss"].item() == pytest.approx(-(2 / 3 + 3 / 2 + 0.5 * ENTROPY))
    assert terms["temperature_loss"].item() == pytest.approx(math.log(0.5) * (ENTROPY - 0.3 * math.log(3)))


def test_targets_are_the_soft_values_of_the_next_observations(discrete, draw):
    learner: Any = SACAlgorithm.build(discrete, hidden_sizes=(8,), gamma=0.9, temperature=0.5)
    rows = draw(discrete, 3)  # the second one terminates, the third is truncated
    log_probs = learner.model.actor(rows["next_obs"]).logits.log_softmax(-1)
    value = soft_value(learner.target["critic"].values(rows["next_obs"]), log_probs, 0.5)
    expected = rows["rewards"] + 0.9 * torch.tensor([1.0, 0.0, 1.0]) * value
    torch.testing.assert_close(learner.target_q(rows), expected.detach())


def test_the_policy_gradient_is_that_of_the_soft_value():
    learner = table()
    learner.loss(ROWS).terms["actor_loss"].backward()
    soft = [q - 0.5 * math.log(p) for q, p in zip((0, 2, 3), PROBABILITIES, strict=True)]
    value = sum(p * each for p, each in zip(PROBABILITIES, soft, strict=True))
    expected = [-p * (each - value) for p, each in zip(PROBABILITIES, soft, strict=True)]
    assert learner.model.actor.head.net[0].bias.grad.tolist() == pytest.approx(expected)


def test_the_policy_that_maximises_the_soft_value_is_the_softmax_of_q_over_alpha():
    q, alpha = torch.tensor([[[1.0, 3.0, 2.0]], [[2.0, 2.5, 9.0]]]), 0.7
    best = soft_value(q, (q.amin(0) / alpha).log_softmax(-1), alpha)
    assert best.item() == pytest.approx(alpha * math.log(sum(math.exp(each / alpha) for each in (1, 2.5, 2))))
    others = torch.randn(50, 1, 3).log_softmax(-1)
    assert all(soft_value(q, each, alpha) < best for each in others)


def test_n_step_targets_are_discounted_by_row():
    learner = table()
    plain = learner.target_q(ROWS) - ROWS["rewards"]
    longer = learner.target_q({**ROWS, "discounts": torch.tensor([0.125, 0.125])}) - ROWS["rewards"]
    torch.testing.assert_close(longer, plain / 4)


def test_each_term_trains_its_own_part_alone(discrete, draw, reached):
    learner = SACAlgorithm.build(discrete, hidden_sizes=(8,))
    terms = learner.loss(draw(discrete, 6)).terms
    assert reached(terms["critic_loss"], learner) == {"critic"}
    assert reached(terms["actor_loss"], learner) == {"actor"}
    assert reached(terms["temperature_loss"], learner) == {"log_alpha"}


def test_only_the_output_of_the_action_taken_is_trained(discrete, draw):
    learner: Any = SACAlgorithm.build(discrete, hidden_sizes=())
    rows = {**draw(discrete, 6), "actions": torch.full((6,), 2)}
    learner.loss(rows).terms["critic_loss"].backward()
    assert (learner.model.critic.net[0].bias.grad.abs().sum((0, 1)) > 0).tolist() == [False, False, True, False]


@pytest.mark.parametrize(("target_entropy", "direction"), [(1.0, 1), (-10.0, -1), ("auto", -1)])
def test_temperature_rises_below_the_entropy_target_and_falls_above_it(target_entropy, direction):
    learner = table(target_entropy=target_entropy, learning_rate=1e-2, tune_temperature=True)
    learner.model.actor.head.net[0].bias.data.copy_(torch.tensor([0.0, 0.0, 1.0]))  # an entropy of 0.975
    learner.update(ROWS)
    assert learner.log_alpha.item() == pytest.approx(math.log(0.5) + direction * 1e-2)  # by Adam's first step


def test_a_temperature_that_is_not_tuned_stays():
    learner = table(tune_temperature=False)
    result = learner.update(ROWS)
    assert result.metrics["temperature"].item() == pytest.approx(0.5)
    assert result.metrics["entropy"].item() == pytest.approx(ENTROPY)
    assert "temperature_loss" not in result.metrics
    assert learner.log_alpha.item() == pytest.approx(math.log(0.5))


def test_weight_decay_leaves_the_temperature_alone(discrete):
    groups = SACAlgorithm.build(discrete, hidden_sizes=(8,), weight_decay=0.01).parameter_groups()
    found = [(group.names, group.kind, group.weight_decay) for group in groups]
    assert found == [(("log_alpha",), "adam", 0.0), ((), "adamw", 0.01)]


def test_actions_are_sampled_by_their_probabilities_and_the_mode_is_the_likeliest():
    learner, generator = table(), torch.Generator().manual_seed(0)
    sampled = learner.act(torch.zeros(6000, 3), generator=generator).actions
    torch.testing.assert_close(
        torch.bincount(sampled, minlength=3) / 6000, torch.tensor(PROBABILITIES), atol=0.02, rtol=0
    )
    assert learner.act(torch.zeros(4, 3), deterministic=True).actions.tolist() == [2, 2, 2, 2]


def test_masked_losses_are_over_the_valid_actions():
    learner = table(EnvSpec((4,), "discrete", 3, action_mask=1))
    valid = torch.tensor([[0.0, 1, 0, 1], [0.0, 1, 0, 0]])  # actions 0 and 2, then action 0 alone
    batch = {**ROWS, "obs": valid, "next_obs": valid}
    entropy = math.log(4) / 4 + 3 / 4 * math.log(4 / 3)  # of the probabilities 1/4 and 3/4
    target = learner.target_q(batch).tolist()
    assert target == pytest.approx([1 + 0.5 * (1 / 4 + 3.5 * 3 / 4 + 0.5 * entropy), 2])
    loss = learner.loss(batch)
    assert loss.terms["actor_loss"].item() == pytest.approx(-(3 * 3 / 4 + 0.5 * entropy) / 2)
    excess = (entropy - 0.3 * math.log(2) + 0) / 2  # the entropy of a single valid action is 0, as is its target
    assert loss.terms["temperature_loss"].item() == pytest.approx(math.log(0.5) * excess)
    loss.total.backward()
    assert learner.model.actor.head.net[0].bias.grad[1] == 0
    assert all(parameter.grad.isfinite().all() for parameter in learner.parameters() if parameter.grad is not None)
    sampled = learner.act(valid[:1].expand(500, 4)).actions
    assert set(sampled.tolist()) == {0, 2}


@pytest.mark.parametrize("shape", [(1, 8, 8), (2, 84, 84)])
def test_policy_and_critics_encode_images(shape):
    spec = EnvSpec(shape, "discrete", 3, obs_dtype="uint8")
    learner = SACAlgorithm.build(spec, hidden_sizes=(16,), batch_size=4)
    obs = torch.randint(256, (4, *shape), dtype=torch.uint8)
    batch = {**{name: torch.zeros(4) for name in ("rewards", "dones")}, "obs": obs, "next_obs": obs,
             "actions": torch.tensor([0, 1, 2, 0])}  # fmt: skip
    learner.update(batch)
    assert learner.act(obs, deterministic=True).actions.shape == (4,)
    names = {name for name, _ in learner.model.named_parameters() if ".conv." in name}
    assert {name.split(".")[0] for name in names} == {"actor", "critic"}


def test_images_are_not_standardised():
    with pytest.raises(ValueError, match="normalize_obs is for vectors only"):
        SACAlgorithm.build(EnvSpec((1, 8, 8), "discrete", 3, obs_dtype="uint8"), normalize_obs=True)


def test_sac_is_discrete_where_the_actions_are(box):
    kinds: list[Any] = [type(SACAlgorithm.build(spec)) for spec in (box, SPEC)]
    assert kinds == [SACAlgorithm, DiscreteSAC]
    with pytest.raises(TypeError, match="sac needs a Box or Discrete action space, got MultiDiscrete"):
        SACAlgorithm.build(EnvSpec((3,), "multi_discrete", 2, action_sizes=(2, 2)))
    with pytest.raises(TypeError, match="sac needs float vectors as observations"):
        SACAlgorithm.build(EnvSpec((1, 8, 8), "box", 1, obs_dtype="uint8", action_shape=(1,)))


@pytest.mark.parametrize("name", ["awac", "cal_ql", "crossq", "edac", "mbpo", "mopo", "redq", "tqc"])
def test_relatives_still_refuse_discrete_actions(name):
    with pytest.raises(TypeError, match=f"{name} needs a Box action space, got Discrete"):
        CATALOGUE[name].build(SPEC)


def test_subclasses_of_your_own_are_for_box_actions_unless_they_declare_more():
    class Own(SACAlgorithm):
        pass

    class Both(SACAlgorithm):
        action_kinds = ("box", "discrete")

    assert (Own.action_kinds, Own.discrete_type) == (("box",), None)
    assert (Both.action_kinds, Both.discrete_type) == (("box", "discrete"), None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"action_noise": "gaussian"}, "action_noise is for Box actions only, got gaussian. Leave it at none for Disc"),
        ({"target_entropy": 1.2}, r"target_entropy must be below log\(3\) = 1.099, the entropy of uniform .*, got 1.2"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SACAlgorithm.build(SPEC, **options)
