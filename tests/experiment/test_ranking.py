"""Ranking of several policies, fitted together as one population."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from rl_training import BC, TransitionDataset, load_transition_dataset
from rl_training.algorithms import FQEConfig
from rl_training.experiment.ope import EstimatorResult, evaluate_policy_offline, rank_policies
from rl_training.experiment.ope.fitting import FQEFit
from rl_training.experiment.ope.policies import PolicyActions, with_policy_actions
from rl_training.experiment.ope.remarks import importance_warnings, range_warnings
from rl_training.statistics import Interval
from rl_training.types import Action

FAST: dict[str, Any] = {"updates": 20, "members": 3, "hidden_sizes": (8,), "batch_size": 32}


class Always:
    def __init__(self, action: int) -> None:
        self.action = action

    def act(self, obs, memory=None, *, deterministic=False, generator=None):
        return Action(torch.full((len(obs),), self.action))


def episodes(count: int = 40) -> TransitionDataset:
    """Episodes of three steps; action 1 pays 1, action 0 pays nothing."""
    generator = torch.Generator().manual_seed(0)
    actions = torch.randint(2, (3 * count,), generator=generator)
    ends = (torch.arange(3 * count) % 3 == 2).float()
    obs = torch.eye(3).repeat(count, 1)
    columns = {"obs": obs, "actions": actions, "rewards": actions.float(), "next_obs": obs.roll(-1, 0)}
    return TransitionDataset({**columns, "dones": ends, "truncated": 0 * ends})


def fitted(*actions: int, updates: int = 60) -> torch.Tensor:
    """Values of the first states, [policies, fits, episodes]."""
    policies = [PolicyActions(Always(action), None, 0) for action in actions]
    data = with_policy_actions(episodes(), policies, 0.9)
    config = FQEConfig(gamma=0.9, hidden_sizes=(16,), batch_size=32, learning_rate=0.01)
    fit = FQEFit(data, data.spec, config, policies, fits=3, seed=0)
    fit.run(updates, [])
    return fit.values()


def test_policies_fitted_together_have_the_values_of_each_alone():
    together = fitted(0, 1)
    for number in (0, 1):
        torch.testing.assert_close(together[number], fitted(number)[0], rtol=1e-4, atol=1e-4)
    assert (together[1].mean(-1) > together[0].mean(-1) + 0.5).all()


def test_uneven_time_steps_have_their_own_discounts():
    # Every reward is 1, and steps of duration 2 are discounted by 0.9^2: 1 + 0.81 + 0.81^2.
    data = episodes()
    ones = torch.ones(len(data))
    data = data.with_columns(rewards=ones, discount_steps=2 * ones)
    policy = PolicyActions(Always(1), None, 0)
    rows = with_policy_actions(data, [policy], 0.9)
    config = FQEConfig(gamma=0.9, hidden_sizes=(16,), batch_size=32, learning_rate=0.03, tau=0.3)
    fit = FQEFit(rows, data.spec, config, [policy], fits=3, seed=0)
    fit.run(300, [])
    assert float(fit.values().mean()) == pytest.approx(1 + 0.81 + 0.81**2, abs=0.25)  # with 0.9 it would be 2.71
    assert float(fit.td_errors(0).mean()) == pytest.approx(0, abs=0.1)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> list[BC]:
    folder = tmp_path_factory.mktemp("runs")
    options: dict[str, Any] = {
        "dataset": {"kind": "random", "rows": 400},
        "eval_interval": 0,
        "algo_kwargs": {"hidden_sizes": [8]},
    }
    return [
        BC("CartPole-v1", output_dir=str(folder / str(seed)), seed=seed, total_timesteps=2, **options).learn()
        for seed in (0, 1)
    ]


@pytest.fixture(scope="module")
def data() -> TransitionDataset:
    from rl_training.runtime.recipes import roll_dataset

    return roll_dataset("CartPole-v1", rows=400)


def test_runs_are_ranked_best_first_by_every_estimator(runs, data, monkeypatch):
    monkeypatch.setattr("rl_training.experiment.ope.probabilities.CLONING_UPDATES", 20)
    paths = [each.agent.path.parent.parent for each in runs]
    found = rank_policies(paths, data, **FAST)
    assert sorted(each.run_dir for each in found) == sorted(paths)
    assert found[0].estimate >= found[1].estimate
    for each in found:
        shown = json.loads(json.dumps(each.to_json()))
        assert shown["estimates"]["dr"]["interval"][0] < shown["estimates"]["dr"]["estimate"]
        assert (shown["estimates"]["wis"]["interval"] is None) == (shown["estimates"]["wis"]["window"] is not None)
        assert shown["interval"][0] < shown["estimate"] < shown["interval"][1]
        assert list(shown["estimates"]) == ["fqe", "wis", "dr"]
        assert shown["estimates"]["fqe"]["estimate"] == shown["estimate"]
        assert 0 < shown["estimates"]["wis"]["effective_sample_size"] <= shown["episodes"]
        assert shown["estimates"]["dr"]["cloned"]
        assert any("was cloned from the data" in warning for warning in each.warnings)


@pytest.mark.parametrize("actions", [1, 3])  # the policy has two
def test_the_data_may_have_other_actions_than_the_policy(actions, runs, data):
    other = TransitionDataset({**data.columns, "actions": torch.arange(len(data)) % actions})
    assert other.spec.action_dim == actions
    (found,) = rank_policies([runs[0].agent.path], other, estimators=["fqe"], **FAST)
    assert found.estimate == evaluate_policy_offline(runs[0], other, **FAST).estimate


def test_a_single_estimator_leaves_the_others_out(runs, data):
    (found,) = rank_policies([runs[0].agent.path], data, estimators=["fqe"], **FAST)
    assert list(found.estimates) == ["fqe"]


def test_unknown_estimators_are_refused(runs, data):
    with pytest.raises(ValueError, match="unknown estimator 'is'; choose one of fqe, wis, dr"):
        rank_policies([runs[0].agent.path], data, estimators=["is"])


def test_an_estimate_beyond_all_returns_and_a_useless_interval_give_warnings():
    data = episodes().with_discounted_returns_to_go(0.9)
    high = float(data.columns["returns_to_go"].max())
    assert range_warnings(data, high / 2, Interval(0.0, high)) == []
    (beyond,) = range_warnings(data, 2 * high, Interval(0.0, 3 * high))
    assert "beyond all returns of the data" in beyond
    assert "use data of policies closer to this one" in beyond
    (useless,) = range_warnings(data, high / 2, Interval(-high, 2 * high))
    assert "wider than the range of returns" in useless


def test_few_effective_episodes_and_short_windows_give_warnings():
    found = EstimatorResult(1.0, Interval(0.0, 2.0), effective_sample_size=2.5, window=4, cloned=False)
    window, few = importance_warnings({"fqe": EstimatorResult(1.0), "wis": found})
    assert "weight the last 4 decisions only" in window
    assert "leave 2.5 effective episodes" in few
    assert importance_warnings({"fqe": EstimatorResult(1.0), "wis": EstimatorResult(reason="none")}) == []


def test_logged_probabilities_that_are_left_out_are_named_beside_the_clone(tmp_path):
    rows = [f"{number},{number % 2},1,1,{'' if number == 3 else 0.5}" for number in range(8)]
    (tmp_path / "log.csv").write_text("\n".join(["obs,action,reward,truncated,action_prob", *rows]))
    data = load_transition_dataset(tmp_path / "log.csv", columns={"dones": "truncated"})
    cloned = EstimatorResult(1.0, Interval(0.0, 2.0), effective_sample_size=50.0, cloned=True)
    for part in (data, *data.split(0.5)):
        (warning,) = importance_warnings({"wis": cloned}, part.incomplete)
        assert "cloned from the data: action_prob is not used, because values are missing; fill them in" in warning
    (warning,) = importance_warnings({"wis": cloned})
    assert "log the probability of each action (column action_logprob) for exact weights" in warning
