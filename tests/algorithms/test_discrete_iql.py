"""IQL and XQL with Discrete actions: networks, losses by hand, an independent rendering of whole updates, and use."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, cast

import pytest
import torch
from torch.nn.functional import cross_entropy

from rl_training.algorithms import IQLAlgorithm, Updater, XQLAlgorithm
from rl_training.models import MLPIQLModel
from rl_training.types import Batch, EnvSpec

BOTH = [IQLAlgorithm, XQLAlgorithm]
SPEC = EnvSpec((3,), "discrete", 3)
ROWS = {"obs": torch.zeros(2, 3), "next_obs": torch.zeros(2, 3), "actions": torch.tensor([2, 0]),
        "rewards": torch.tensor([1.0, 2.0]), "dones": torch.tensor([0.0, 1.0])}  # fmt: skip


def table(kind: Any, **options: Any) -> Any:
    """A learner without hidden layers whose outputs do not depend on the observation."""
    learner = kind.build(SPEC, hidden_sizes=(), gamma=0.5, **options)
    with torch.no_grad():
        for name, parameter in learner.named_parameters():
            if name.endswith("weight"):
                parameter.zero_()
        learner.model.critic.net[0].bias.copy_(torch.tensor([[[1.0, 2.0, 4.0]], [[0.0, 5.0, 3.0]]]))
        learner.target["critic"].net[0].bias.copy_(torch.tensor([[[2.0, 9.0, 3.5]], [[1.0, 9.0, 6.0]]]))
        learner.model.value.net[0].bias.fill_(3.0)
        learner.model.actor.net.get_parameter("0.bias").copy_(torch.tensor([0.0, 1.0, 2.0]).log1p())
    return learner


def test_losses_are_those_worked_out_by_hand():
    terms = table(IQLAlgorithm, beta=2.0, expectile=0.8).loss(ROWS).terms
    # Targets: 1 + 0.5 * 3 = 2.5, and 2 at a termination. Q of actions 2 and 0: 4 and 1, then 3 and 0.
    assert terms["critic_loss"].item() == pytest.approx((1.5**2 + 1) / 2 + (0.5**2 + 2**2) / 2)
    # The smaller target Q is 3.5 and 1, so that the advantages are 0.5 and -2.
    assert terms["value_loss"].item() == pytest.approx((0.8 * 0.25 + 0.2 * 4) / 2)
    # Probabilities 1/6, 2/6 and 3/6.
    expected = (math.exp(1.0) * math.log(2) + math.exp(-4.0) * math.log(6)) / 2
    assert terms["actor_loss"].item() == pytest.approx(expected)


def test_the_losses_of_xql_are_those_worked_out_by_hand():
    learner = table(XQLAlgorithm, beta=2.0, loss_temperature=2.0)
    terms = learner.loss(ROWS).terms
    z = [0.25, -1.0]
    expected = sum(math.exp(each) - each - 1 for each in z) / 2 / math.exp(0.25)
    assert terms["value_loss"].item() == pytest.approx(expected, rel=1e-5)
    assert terms["critic_loss"].item() == pytest.approx(((1.5**2 + 1) / 2 + (0.5**2 + 2**2) / 2) / 2)  # Huber
    assert terms["actor_loss"].item() == pytest.approx((math.exp(1.0) * math.log(2) + math.exp(-4.0) * math.log(6)) / 2)


@pytest.mark.parametrize("kind", BOTH)
def test_each_term_trains_its_own_network_alone(kind, discrete, draw, reached):
    learner = kind.build(discrete, hidden_sizes=(8,))
    terms = learner.loss(draw(discrete, 6)).terms
    assert reached(terms["critic_loss"], learner) == {"critic"}
    assert reached(terms["value_loss"], learner) == {"value"}
    assert reached(terms["actor_loss"], learner) == {"actor"}


def test_only_the_output_of_the_datasets_action_is_trained(discrete, draw):
    learner, rows = IQLAlgorithm.build(discrete, hidden_sizes=()), draw(discrete, 6)
    learner.loss({**rows, "actions": torch.full((6,), 2)}).terms["critic_loss"].backward()
    changed = learner.model.critic.net[0].bias.grad.abs().sum((0, 1)) > 0
    assert changed.tolist() == [False, False, True, False]


def test_actions_are_sampled_by_their_probabilities_and_the_mode_is_the_likeliest():
    learner, generator = table(IQLAlgorithm), torch.Generator().manual_seed(0)
    sampled = learner.act(torch.zeros(6000, 3), generator=generator).actions
    shares = torch.bincount(sampled, minlength=3) / 6000
    torch.testing.assert_close(shares, torch.tensor([1.0, 2.0, 3.0]) / 6, atol=0.02, rtol=0)
    assert learner.act(torch.zeros(4, 3), deterministic=True).actions.tolist() == [2, 2, 2, 2]


def test_the_model_samples_action_numbers_and_gives_twin_q_and_v():
    model: Any = MLPIQLModel(3, 4, (8,), discrete=True)
    obs = torch.randn(100, 3)
    actions = model.sample(obs)
    assert actions.dtype == torch.int64
    assert set(actions.tolist()) == {0, 1, 2, 3}  # a clamp to [-1, 1] would leave two of them
    values = model.critic.values(obs)
    assert values.shape == (2, 100, 4)
    torch.testing.assert_close(model.critic(obs, actions)[1], values[1][torch.arange(100), actions])
    assert model.value(obs).shape == (100,)


@pytest.mark.parametrize("members", [1, 2])
def test_half_precision_changes_the_loss_by_rounding_alone(members, discrete, draw):
    rows = draw(discrete, 8)
    batch = rows if members == 1 else {name: torch.stack([column] * members) for name, column in rows.items()}
    metrics = []
    for precision in ("float32", "bfloat16"):
        torch.manual_seed(0)
        learners = [IQLAlgorithm.build(discrete, hidden_sizes=(16, 16), precision=precision) for _ in range(members)]
        metrics.append(Updater(learners).update(batch).metrics)
    full, half = metrics
    assert not torch.equal(full["critic_loss"], half["critic_loss"])
    for name, value in full.items():
        assert half[name].dtype == torch.float32
        torch.testing.assert_close(half[name], value, rtol=0.05, atol=0.02)


def test_q_values_keep_their_full_precision_in_half_precision(discrete):
    learner = IQLAlgorithm.build(discrete, hidden_sizes=(8,), precision="bfloat16")
    with torch.no_grad():
        learner.model.critic.net[-1].bias.fill_(100.1)  # bfloat16 has 100 and 100.5
        learner.model.critic.net[-1].weight.zero_()
    rows = {"obs": torch.zeros(1, 3), "rewards": torch.zeros(1), "actions": torch.zeros(1, dtype=torch.int64)}
    with learner.precision(rows):
        q = learner.model.critic(rows["obs"], rows["actions"])
    torch.testing.assert_close(q, torch.full((2, 1), 100.1))


def three_steps(steps: Any, batch: Batch) -> None:
    obs, actions, rows = batch["obs"], batch["actions"], torch.arange(len(batch["obs"]))
    with torch.no_grad():
        next_v = steps.value(batch["next_obs"])[:, 0]
        lower = torch.minimum(*(slow(obs)[rows, actions] for slow in steps.slow))
    advantage = lower - steps.value(obs)[:, 0]
    steps.minimise("value", (torch.where(advantage > 0, 0.8, 0.2) * advantage**2).mean())
    y = batch["rewards"] + 0.9 * (1 - batch["dones"]) * next_v
    errors = [((critic(obs)[rows, actions] - y) ** 2).mean() for critic in steps.critics]
    steps.minimise("critics", errors[0] + errors[1])
    steps.move_targets()
    weight = torch.exp(2.0 * advantage.detach()).clamp(max=100.0)
    steps.minimise("actor", (weight * cross_entropy(steps.actor(obs), actions, reduction="none")).mean())


def test_one_summed_update_equals_three_separate_steps(discrete, draw, separate_steps):
    learner = IQLAlgorithm.build(
        discrete, hidden_sizes=(8,), learning_rate=1e-2, expectile=0.8, beta=2.0, gamma=0.9, tau=0.1
    )
    oracle = separate_steps(learner.model)
    for seed in range(5):
        learner.update(draw(discrete, 16, seed=seed))
        three_steps(oracle, draw(discrete, 16, seed=seed))
    obs, slow = draw(discrete, 16)["obs"], cast("Any", learner.target["critic"])
    close = partial(torch.testing.assert_close, atol=1e-5, rtol=1e-5)
    close(learner.model.value(obs), oracle.value(obs)[:, 0])
    close(learner.model.actor(obs).logits, oracle.actor(obs))
    for index in range(2):
        close(learner.model.critic.values(obs)[index], oracle.critics[index](obs))
        close(slow.values(obs)[index], oracle.slow[index](obs))
