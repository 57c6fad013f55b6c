"""Calibrated Q-learning: what the return-to-go lifts, what it leaves, and where it comes from."""

from __future__ import annotations

import math

import pytest
import torch

from rl_training.algorithms import CalQLAlgorithm, CQLAlgorithm, CQLConfig, CQLPredictions, cal_ql_loss, cql_loss
from rl_training.experiment.assembly import assemble
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.machine import choose


def predictions(policy_q: torch.Tensor) -> CQLPredictions:
    """One row and two critics; a uniform action of value 0, and policy actions, all of density one."""
    zeros = torch.zeros(2, 1, 1)
    return CQLPredictions(
        q=zeros[:, 0], target_q=torch.zeros(1), uniform_q=zeros, policy_q=policy_q, uniform_log_prob=0.0,
        policy_log_prob=torch.zeros(policy_q.shape[1:]),
    )  # fmt: skip


def test_policy_values_are_lifted_to_the_return_and_uniform_ones_are_not():
    seen = predictions(torch.tensor([[[1.0], [5.0]], [[2.0], [2.0]]]))
    loss = cal_ql_loss(seen, torch.tensor([3.0]), CQLConfig(cql_alpha=2.0))
    first, second = (math.log(1 + math.exp(3) + math.exp(other)) for other in (5, 3))
    assert loss.terms["cql_penalty"].item() == pytest.approx(2 * (first + second))
    assert loss.metrics["calibrated_q1_mean"].item() == (3 + 5) / 2
    assert loss.metrics["calibrated_q2_mean"].item() == 3
    assert loss.metrics["returns_to_go_mean"].item() == 3
    assert loss.metrics["bound_rate"].item() == 3 / 4  # 1, 2 and 2 of the four


def test_a_lifted_value_is_not_pushed():
    policy_q = torch.tensor([[[1.0], [5.0]], [[2.0], [2.0]]], requires_grad=True)
    loss = cal_ql_loss(predictions(policy_q), torch.tensor([3.0]), CQLConfig())
    (slope,) = torch.autograd.grad(loss.terms["cql_penalty"], policy_q)
    assert (slope > 0).flatten().tolist() == [False, True, False, False]


def test_the_lift_comes_before_the_importance_weights():
    seen = predictions(torch.zeros(2, 2, 1))._replace(policy_log_prob=torch.tensor([[1.0], [2.0]]))
    loss = cal_ql_loss(seen, torch.tensor([3.0]), CQLConfig(cql_alpha=1.0))
    assert loss.terms["cql_penalty"].item() == pytest.approx(2 * math.log(1 + math.exp(3 - 1) + math.exp(3 - 2)))


def test_returns_below_every_value_leave_cql(box, draw):
    learner, rows = CalQLAlgorithm.build(box, hidden_sizes=(8,)), draw(box, 6)
    seen = learner.predict_batch(rows, torch.tensor(1.0))
    low = torch.full((6,), -1e3)
    assert cal_ql_loss(seen, low, learner.config).terms == cql_loss(seen, learner.config).terms


def test_each_term_trains_its_own_part_alone(box, draw, reached):
    learner = CalQLAlgorithm.build(box, hidden_sizes=(8,))
    terms = learner.loss({**draw(box, 6), "returns_to_go": torch.randn(6)}).terms
    assert reached(terms["critic_loss"], learner) == reached(terms["cql_penalty"], learner) == {"critic"}
    assert reached(terms["actor_loss"], learner) == {"actor"}


def test_a_batch_without_returns_is_refused_in_a_sentence(box, draw):
    with pytest.raises(ValueError, match="cal_ql needs the column returns_to_go"):
        CalQLAlgorithm.build(box, hidden_sizes=(8,)).update(draw(box, 6))


def test_discrete_actions_are_refused(discrete):
    with pytest.raises(TypeError, match="cal_ql needs a Box action space, got Discrete"):
        CalQLAlgorithm.build(discrete)


def assembled(algo: str):
    config = parse_config(
        {"algo": algo, "env_id": "Pendulum-v1", "dataset": {"kind": "random", "rows": 500},
         "algo_kwargs": {"gamma": 0.9, "hidden_sizes": [8]}}
    )  # fmt: skip
    return assemble([config], choose(config), 10)[1][0].dataset


def test_a_run_derives_the_returns_by_its_own_discount():
    dataset = assembled("cal_ql")
    expected = dataset.with_discounted_returns_to_go(0.9).columns["returns_to_go"]
    assert torch.equal(dataset.columns["returns_to_go"], expected)
    assert "returns_to_go" not in assembled("cql").columns
    assert CQLAlgorithm.needs == ()
