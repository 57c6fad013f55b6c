"""CrossQ: batch renormalisation by hand, values of one joint pass, its own values as targets, and what moves when."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rl_training.algorithms import CrossQAlgorithm, Updater
from rl_training.models.batch_renorm import BatchRenorm
from rl_training.types import EnvSpec


def build(box: EnvSpec, **options: Any) -> CrossQAlgorithm:
    small = {"hidden_sizes": (8,), "critic_hidden_sizes": (8,), "gamma": 0.9, "temperature": 0.5}
    learner = CrossQAlgorithm.build(box, **{**small, **options})
    with torch.no_grad():
        for name, buffer in learner.named_buffers():
            if name.endswith(("mean", "var")):
                buffer.add_(torch.rand_like(buffer))
    return learner


@pytest.fixture
def norm() -> BatchRenorm:
    """Running mean 1 and std 2 of one column, scaled by 3 and shifted by 4."""
    module = BatchRenorm(1)
    with torch.no_grad():
        for tensor, value in ((module.mean, 1.0), (module.var, 4.0), (module.weight, 3.0), (module.bias, 4.0)):
            tensor.fill_(value)
    return module


def test_acting_normalises_by_the_running_statistics(norm):
    assert norm(torch.tensor([[5.0]])).item() == pytest.approx(4 + 3 * (5 - 1) / 4.001**0.5)


def test_at_first_a_batch_is_normalised_by_its_own_statistics(norm):
    norm.count.fill_(99_999)
    out, new = norm.with_statistics(torch.tensor([[1.0], [7.0]]))  # mean 4, variance 9
    assert out.flatten().tolist() == pytest.approx([4 - 9 / 9.001**0.5, 4 + 9 / 9.001**0.5])
    assert new["mean"].item() == pytest.approx(0.99 * 1 + 0.01 * 4)
    assert new["var"].item() == pytest.approx(0.99 * 4 + 0.01 * 9)
    assert new["count"].item() == 100_000
    assert (norm.mean.item(), norm.count.item()) == (1, 99_999)  # the update sets them, not the pass


@pytest.mark.parametrize(("rows", "r", "d"), [
    ([3.0, 5.0], (1.001 / 4.001) ** 0.5, 3 / 4.001**0.5),  # std 1, mean 4
    ([-100.0, 100.0], 3.0, -1 / 4.001**0.5),  # r is at most 3
    ([3.99, 4.01], 1 / 3, 3 / 4.001**0.5),  # r is at least 1/3
    ([19.0, 21.0], (1.001 / 4.001) ** 0.5, 5.0),  # d is at most 5
    ([-21.0, -19.0], (1.001 / 4.001) ** 0.5, -5.0),  # d is at least -5
])  # fmt: skip
def test_later_it_is_corrected_towards_the_running_statistics(norm, rows, r, d):
    norm.count.fill_(100_000)
    x = torch.tensor(rows).unsqueeze(1)
    std = (x.var(unbiased=False).item() + 1e-3) ** 0.5
    expected = [4 + 3 * ((each - sum(rows) / 2) / std * r + d) for each in rows]
    assert norm.with_statistics(x)[0].flatten().tolist() == pytest.approx(expected, rel=1e-4)


def test_gradients_pass_through_the_statistics_of_the_batch_but_not_through_the_correction(norm):
    norm.count.fill_(100_000)
    x = torch.tensor([[3.0], [5.0], [7.5]], requires_grad=True)
    out, new = norm.with_statistics(x)
    (slope,) = torch.autograd.grad(out.square().sum(), x)
    assert slope.sum().item() == pytest.approx(0, abs=1e-4)  # a shift of all rows changes nothing
    assert not any(value.requires_grad for value in new.values())


def test_both_values_come_from_one_pass_and_the_target_has_no_gradient(box, draw):
    learner, rows = build(box), draw(box, 3)
    torch.manual_seed(1)
    loss = learner.critics(rows)
    torch.manual_seed(1)
    actions, log_prob = learner.model.actor(rows["next_obs"]).sample_with_log_prob()  # by running statistics
    joint = (torch.cat([rows["obs"], rows["next_obs"]]), torch.cat([rows["actions"], actions.detach()]))
    values, buffers = learner.model.critic.with_statistics(*joint, "model.critic.")
    next_q = values[:, 3:].min(0).values - 0.5 * log_prob
    y = (rows["rewards"] + 0.9 * torch.tensor([1.0, 0.0, 1.0]) * next_q).detach()  # the second row terminates
    expected = 0.5 * sum((q - y).square().mean() for q in values[:, :3])
    torch.testing.assert_close(loss.terms["critic_loss"], torch.as_tensor(expected))
    weight = learner.model.critic.net[1].weight
    mine, plain = (torch.autograd.grad(each, weight)[0] for each in (loss.total, expected))
    torch.testing.assert_close(mine, plain)
    assert loss.buffers.keys() == buffers.keys()
    assert len(buffers) == 2 * 3  # mean, variance and count of the inputs and of the hidden layer


def test_the_actor_uses_running_statistics_of_the_critics_and_its_own_of_the_batch(box, draw):
    learner, rows = build(box), draw(box, 6)
    torch.manual_seed(1)
    loss = learner.policy(rows)
    torch.manual_seed(1)
    policy, buffers = learner.model.actor.with_statistics(rows["obs"], "model.actor.")
    actions, log_prob = policy.sample_with_log_prob()
    q = learner.model.critic(rows["obs"], actions).min(0).values
    torch.testing.assert_close(loss.terms["actor_loss"], (0.5 * log_prob - q).mean())
    assert loss.buffers.keys() == buffers.keys()


def test_each_term_trains_its_own_part_alone(box, draw, reached):
    learner, rows = build(box), draw(box, 4)
    terms = {**learner.critics(rows).terms, **learner.policy(rows).terms}
    found = {name: reached(term, learner) for name, term in terms.items()}
    assert found == {"critic_loss": {"critic"}, "actor_loss": {"actor"}, "temperature_loss": {"log_alpha"}}


def test_every_update_moves_critics_and_their_statistics_and_the_third_the_actor_too(box, draw):
    learner, rows = build(box), draw(box, 4)
    updater, model = Updater([learner]), learner.model
    watched = {"critic": model.critic.net[1].weight, "critic mean": model.critic.net[0].mean,
               "actor": model.actor.net[1].weight, "actor mean": model.actor.net[0].mean}  # fmt: skip
    moves = dict.fromkeys(watched, 0)
    for _ in range(3):
        before = {name: tensor.clone() for name, tensor in watched.items()}
        updater.update(rows)
        moves = {name: moves[name] + (not tensor.equal(before[name])) for name, tensor in watched.items()}
    assert moves == {"critic": 3, "critic mean": 3, "actor": 1, "actor mean": 1}
    assert model.critic.net[0].count.item() == 3
    assert not list(learner.target.parameters())
    assert [learner.phases(number) for number in (1, 2)] == [("critics",), ("critics", "policy")]


def test_the_log_std_of_the_policy_is_bounded(box):
    actor = build(box).model.actor
    with torch.no_grad():
        actor.net[-1].weight.zero_()
        actor.net[-1].bias.copy_(torch.tensor([0.0, 0.0, -30.0, 9.0]))
    assert actor(torch.zeros(1, 3)).log_std.tolist() == [[-20.0, 2.0]]


def test_adam_has_a_first_beta_of_one_half_but_for_the_temperature(box):
    groups = Updater([build(box)]).groups
    assert [(names == ["log_alpha"], group.betas) for group, names in groups] == [
        (True, (0.9, 0.999)),
        (False, (0.5, 0.999)),
    ]


def test_the_second_step_of_adam_forgets_by_the_betas_of_its_group(box, draw):
    learner, rows = build(box, learning_rate=1e-2), draw(box, 4)
    weight = learner.model.critic.net[1].weight
    plain = weight.detach().clone().requires_grad_()
    adam = torch.optim.Adam([plain], lr=1e-2, betas=(0.5, 0.999))
    updater = Updater([learner])
    for _ in range(2):
        updater.step(rows, ("critics",))
        assert weight.grad is not None
        plain.grad = weight.grad.clone()
        adam.step()
    torch.testing.assert_close(weight.detach(), plain.detach())


def test_normalisation_stands_before_every_linear_layer_and_critics_are_wide(box):
    model = CrossQAlgorithm.build(box).model
    names = [type(layer).__name__ for layer in model.critic.net]
    assert names == [*["BatchRenorm", "EnsembleLinear", "ReLU"] * 2, "BatchRenorm", "EnsembleLinear"]
    assert model.critic.net[1].weight.shape == (2, 5, 2048)
    assert model.critic.net[3].weight.shape == (2, 1, 2048)
    assert [type(layer).__name__ for layer in model.actor.net][:3] == ["BatchRenorm", "Linear", "ReLU"]
    assert model.actor.net[1].out_features == 256
