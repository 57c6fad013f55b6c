"""TQC: pooled and truncated targets, the quantile loss by hand, an actor on the mean of all quantiles, and networks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rl_training.algorithms import TQCAlgorithm, TQCConfig
from rl_training.algorithms.tqc import smallest_quantiles
from rl_training.types import EnvSpec


def build(box: EnvSpec, **options: Any) -> TQCAlgorithm:
    small = {"hidden_sizes": (8,), "critic_hidden_sizes": (8,), "num_critics": 2, "num_quantiles": 3}
    learner = TQCAlgorithm.build(box, **{**small, "top_quantiles_to_drop_per_net": 1, "gamma": 0.9, **options})
    with torch.no_grad():
        for parameter in learner.target.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return learner


def constant(critic: Any, quantiles: list[list[float]]) -> None:
    """Gives every critic the same quantiles in all states."""
    with torch.no_grad():
        critic.net[-1].weight.zero_()
        critic.net[-1].bias.copy_(torch.tensor(quantiles).unsqueeze(1))


def huber(error: float) -> float:
    return 0.5 * error**2 if abs(error) <= 1 else abs(error) - 0.5


def test_quantiles_are_pooled_before_the_largest_are_dropped():
    # Two critics, two rows. Both largest of the first row are of the second critic.
    quantiles = torch.tensor([[[1.0, 0.0, 2.0], [9.0, 8.0, 7.0]], [[5.0, 1.5, 6.0], [1.0, 2.0, 3.0]]])
    assert smallest_quantiles(quantiles, 2).tolist() == [[0, 1, 1.5, 2], [1, 2, 3, 7]]
    assert smallest_quantiles(quantiles, 0).shape == (2, 6)


def test_targets_are_the_kept_quantiles_of_the_target_critics_with_the_entropy_term(box, draw):
    learner, rows, alpha = build(box), draw(box, 3), torch.tensor(0.5)
    torch.manual_seed(1)
    found = learner.target_q(rows, alpha)
    torch.manual_seed(1)
    actions, log_prob = learner.model.actor(rows["next_obs"]).sample_with_log_prob()
    quantiles = learner.target["critic"](rows["next_obs"], actions)
    assert found.shape == (4, 3)  # of 2 * 3 quantiles, 2 * 1 are dropped
    for row, goes_on in enumerate((1, 0, 1)):  # the second row terminates, the third is truncated
        kept = sorted(quantiles[:, row].flatten().tolist())[:4]
        entropy_term = 0.5 * log_prob[row].item()
        expected = [rows["rewards"][row].item() + 0.9 * goes_on * (each - entropy_term) for each in kept]
        assert found[:, row].tolist() == pytest.approx(expected, abs=1e-5)
    assert not found.requires_grad


def test_the_critic_loss_is_the_mean_over_critics_rows_quantiles_and_targets(box, draw, monkeypatch):
    learner, rows = build(box, num_quantiles=2), draw(box, 2)
    predictions, targets = [[0.0, 1.0], [2.0, 3.0]], [[0.5, 4.0, -1.0], [2.0, 2.0, 0.0]]  # [critics, 2], [rows, 3]
    constant(learner.model.critic, predictions)
    monkeypatch.setattr(learner, "target_q", lambda *_: torch.tensor(targets).mT)
    loss = learner.critics(rows).terms["critic_loss"]
    expected = [
        abs(fraction - (target < quantile)) * huber(target - quantile)
        for critic in predictions
        for fraction, quantile in zip((0.25, 0.75), critic, strict=True)
        for row in targets
        for target in row
    ]
    assert len(expected) == 2 * 2 * 2 * 3
    assert loss.item() == pytest.approx(sum(expected) / len(expected), abs=1e-6)


def test_the_critic_loss_has_the_entropy_term_of_the_temperature(box, draw, monkeypatch):
    learner, rows = build(box, temperature=0.5), draw(box, 3)
    torch.manual_seed(1)
    loss = learner.critics(rows).terms["critic_loss"]
    torch.manual_seed(1)
    target_q = learner.target_q(rows, torch.tensor(0.5))
    monkeypatch.setattr(learner, "target_q", lambda *_: target_q)
    torch.testing.assert_close(learner.critics(rows).terms["critic_loss"], loss)


def test_an_underestimate_lifts_the_upper_quantile_most(box, draw, monkeypatch):
    learner = build(box, num_quantiles=2)
    constant(learner.model.critic, [[0.0, 0.0], [0.0, 0.0]])
    monkeypatch.setattr(learner, "target_q", lambda *_: torch.full((3, 2), 5.0))
    learner.critics(draw(box, 2)).total.backward()
    # The slope of each of 2 * 2 outputs is -fraction / 4.
    assert learner.model.critic.net[-1].bias.grad.flatten().tolist() == pytest.approx([-1 / 16, -3 / 16] * 2)


def test_the_actor_maximises_the_mean_of_all_quantiles_and_critics(box, draw):
    learner, rows = build(box, temperature=0.5), draw(box, 6)
    torch.manual_seed(1)
    loss = learner.policy(rows).terms["actor_loss"]
    torch.manual_seed(1)
    actions, log_prob = learner.model.actor(rows["obs"]).sample_with_log_prob()
    quantiles = learner.model.critic(rows["obs"], actions)
    q = sum(quantiles[critic, :, index] for critic in range(2) for index in range(3)) / 6  # none is dropped
    torch.testing.assert_close(loss, (0.5 * log_prob - q).mean())


def test_each_term_trains_its_own_part_alone(box, draw, reached):
    learner, rows = build(box), draw(box, 4)
    found = {name: reached(term, learner) for name, term in learner.loss(rows).terms.items()}
    assert found == {"critic_loss": {"critic"}, "actor_loss": {"actor"}, "temperature_loss": {"log_alpha"}}


def test_critics_are_wider_than_the_actor(box):
    model = TQCAlgorithm.build(box).model
    sizes = [tuple(layer.weight.shape) for layer in model.critic.net if hasattr(layer, "weight")]
    assert sizes == [(5, 5, 512), (5, 512, 512), (5, 512, 512), (5, 512, 25)]
    assert [layer.out_features for layer in model.actor.net if hasattr(layer, "weight")] == [256, 256, 4]


def test_the_quantiles_of_a_critic_are_those_of_its_own_network(box, draw):
    critic, rows = build(box).model.critic, draw(box, 4)
    found = critic(rows["obs"], rows["actions"])
    first, _, last = critic.net
    hidden = (torch.cat([rows["obs"], rows["actions"]], 1) @ first.weight[1] + first.bias[1]).relu()
    torch.testing.assert_close(found[1], hidden @ last.weight[1] + last.bias[1])


def test_dropping_every_quantile_is_refused():
    with pytest.raises(ValueError, match="top_quantiles_to_drop_per_net must be below num_quantiles = 3, got 3"):
        TQCConfig(num_quantiles=3, top_quantiles_to_drop_per_net=3)
