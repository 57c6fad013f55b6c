"""Implicit Q-learning: the paper's three losses by hand, and an independent rendering of whole updates."""

from __future__ import annotations

import copy
import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import distributions, nn

from rl_training.algorithms import IQLAlgorithm, IQLConfig, IQLPredictions, iql_loss
from rl_training.experiment.config.train_config import ConfigError, parse_config
from rl_training.experiment.run import run_training
from rl_training.models import MLPIQLModel
from rl_training.runtime.checkpoints.reading import read_checkpoint
from rl_training.types import Batch


def predictions(advantage: list[float], log_prob: list[float]) -> IQLPredictions:
    rows = len(advantage)
    return IQLPredictions(torch.zeros(2, rows), torch.zeros(rows), torch.tensor(advantage), torch.tensor(log_prob))


def test_the_actor_weight_multiplies_the_advantage_by_beta():
    loss = iql_loss(predictions([0.5], [-2.0]), IQLConfig(beta=3.0))
    assert loss.terms["actor_loss"].item() == pytest.approx(2 * math.exp(1.5))  # exp(A / beta) would give 2.36


def test_the_actor_weight_is_clipped_at_100_even_where_exp_overflows():
    loss = iql_loss(predictions([10.0, 1000.0, 0.0], [-1.0, -1.0, -1.0]), IQLConfig(beta=3.0))
    assert loss.terms["actor_loss"].item() == pytest.approx((100 + 100 + 1) / 3)
    assert loss.metrics["advantage_weight_mean"].item() == pytest.approx(67)


def test_the_value_loss_is_the_expectile_of_the_advantage():
    loss = iql_loss(predictions([2.0, -1.0], [0.0, 0.0]), IQLConfig(expectile=0.7))
    assert loss.terms["value_loss"].item() == pytest.approx((0.7 * 4 + 0.3 * 1) / 2)


def test_the_critic_loss_sums_both_critics():
    seen = predictions([0.0, 0.0], [0.0, 0.0])._replace(
        q=torch.tensor([[1.0, 2.0], [3.0, 4.0]]), target_q=torch.tensor([1.0, 0.0])
    )
    assert iql_loss(seen, IQLConfig()).terms["critic_loss"].item() == (0 + 4) / 2 + (4 + 16) / 2


def test_the_target_stops_at_terminations_and_not_at_time_limits(box, draw):
    learner, rows = IQLAlgorithm.build(box, hidden_sizes=(8,), gamma=0.5), draw(box, 3)
    next_value = learner.model.value(rows["next_obs"])
    continues, terminates, runs_out = learner.predict_batch(rows).target_q  # so `draw` ends its rows, in this order
    assert continues.item() == pytest.approx((rows["rewards"][0] + 0.5 * next_value[0]).item())
    assert terminates.item() == rows["rewards"][1].item()
    assert runs_out.item() == pytest.approx((rows["rewards"][2] + 0.5 * next_value[2]).item())


def test_the_advantage_takes_the_smaller_of_the_target_critics(box, draw):
    learner, rows = IQLAlgorithm.build(box, hidden_sizes=(8,)), draw(box, 4)
    with torch.no_grad():
        learner.target.get_parameter("critic.net.2.bias").copy_(torch.tensor([5.0, -5.0]).view(2, 1, 1))
        first, second = learner.target["critic"](rows["obs"], rows["actions"])
        expected = torch.minimum(first, second) - learner.model.value(rows["obs"])
    torch.testing.assert_close(learner.predict_batch(rows).advantage.detach(), expected)


def test_each_term_trains_its_own_network_alone(box, draw, reached):
    learner = IQLAlgorithm.build(box, hidden_sizes=(8,))
    terms = learner.loss(draw(box, 4)).terms
    assert reached(terms["critic_loss"], learner) == {"critic"}
    assert reached(terms["value_loss"], learner) == {"value"}
    assert reached(terms["actor_loss"], learner) == {"actor"}


def test_observations_are_standardised_in_every_network(box, draw):
    plain, rows = IQLAlgorithm.build(box, hidden_sizes=(8,)), draw(box, 5)
    learner = IQLAlgorithm(copy.deepcopy(plain.model), normalize_obs=True)
    learner.prepare({"obs": 3 * rows["obs"] + 1})
    moved = {name: rows[name] * learner.normalizer.std + learner.normalizer.mean for name in ("obs", "next_obs")}
    for term, expected in plain.loss(rows).terms.items():
        torch.testing.assert_close(learner.loss({**rows, **moved}).terms[term], expected, rtol=1e-4, atol=1e-5)


def test_an_actor_without_a_rate_of_its_own_shares_one_optimizer(box):
    assert len(IQLAlgorithm.build(box).parameter_groups()) == 1
    apart = IQLAlgorithm.build(box, actor_learning_rate=1e-3).parameter_groups()
    assert [(group.rate, group.learning_rate) for group in apart] == [
        ("actor_learning_rate", 1e-3), ("learning_rate", 3e-4)
    ]  # fmt: skip


def scheduled_run(folder, **options):
    return parse_config(
        {"algo": "iql", "env_id": "Pendulum-v1", "dataset": {"kind": "random", "rows": 200}, "total_timesteps": 300,
         "eval_interval": 0, "output_dir": str(folder), "schedules": {"actor_learning_rate": {"kind": "cosine"}},
         "algo_kwargs": {"hidden_sizes": [8], "batch_size": 8, **options}}
    )  # fmt: skip


def test_the_actors_rate_falls_to_zero_while_the_critics_stays(tmp_path):
    result = run_training(scheduled_run(tmp_path / "run", actor_learning_rate=1e-3))
    actor, rest = read_checkpoint(str(result.checkpoint_path)).state["updater"]["rates"]
    assert actor.item() == 0
    assert rest.item() == pytest.approx(3e-4)


def test_a_schedule_of_a_rate_that_the_actor_has_not_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"use one of learning_rate, or set algo_kwargs\.actor_learning_rate first"):
        run_training(scheduled_run(tmp_path / "run"))


def test_the_model_draws_bounded_actions_and_gives_twin_q_and_v():
    model, obs = MLPIQLModel(3, 2, (8,)), torch.randn(100, 3)
    actions = model.sample(obs)
    assert actions.abs().max() == 1  # deviation one around a bounded mean: some draws fall outside and are clamped
    assert model.critic(obs, actions).shape == (2, 100)
    assert model.value(obs).shape == (100,)


def three_steps(steps: Any, log_std: nn.Parameter, batch: Batch) -> None:
    """The order of CORL."""
    obs, actions = batch["obs"], batch["actions"]
    pairs = torch.cat([obs, actions], 1)
    with torch.no_grad():
        next_v = steps.value(batch["next_obs"])[:, 0]
        target_v = torch.minimum(steps.slow[0](pairs), steps.slow[1](pairs))[:, 0]
    advantage = target_v - steps.value(obs)[:, 0]
    steps.minimise("value", (torch.where(advantage > 0, 0.8, 0.2) * advantage**2).mean())
    y = batch["rewards"] + 0.9 * (1 - batch["dones"]) * next_v
    steps.minimise("critics", torch.stack([((critic(pairs)[:, 0] - y) ** 2).mean() for critic in steps.critics]).sum())
    steps.move_targets()
    normal = distributions.Normal(torch.tanh(steps.actor(obs)), log_std.exp())
    log_prob = normal.log_prob(actions).sum(1)
    steps.minimise("actor", -(torch.exp(2.0 * advantage.detach()).clamp(max=100.0) * log_prob).mean())


def test_one_summed_update_equals_three_published_steps(box, draw, separate_steps):
    learner = IQLAlgorithm.build(
        box, hidden_sizes=(8,), learning_rate=1e-2, expectile=0.8, beta=2.0, gamma=0.9, tau=0.1
    )
    log_std = nn.Parameter(torch.zeros(2))
    oracle = separate_steps(learner.model, log_std)
    for seed in range(5):
        learner.update(draw(box, 16, seed=seed))
        three_steps(oracle, log_std, draw(box, 16, seed=seed))
    obs, actions = draw(box, 16)["obs"], draw(box, 16)["actions"]
    pairs = torch.cat([obs, actions], 1)
    close = partial(torch.testing.assert_close, atol=1e-5, rtol=1e-5)
    close(learner.model.value(obs), oracle.value(obs)[:, 0])
    close(learner.model.actor(obs).mean, oracle.actor(obs).tanh())
    close(learner.model.actor.log_std, log_std)
    for i in range(2):
        close(learner.model.critic(obs, actions)[i], oracle.critics[i](pairs)[:, 0])
        close(learner.target["critic"](obs, actions)[i], oracle.slow[i](pairs)[:, 0])


def test_weights_start_orthogonal_with_a_gain_of_the_root_of_two():
    model = MLPIQLModel(3, 2, (8, 8))
    hidden = [model.actor.net[2].weight, model.value.net[2].weight, *model.critic.net[2].weight]
    for weight in hidden:
        torch.testing.assert_close(weight @ weight.T, 2 * torch.eye(8), atol=1e-5, rtol=0)
    assert model.critic.net[0].bias.count_nonzero() == 0
