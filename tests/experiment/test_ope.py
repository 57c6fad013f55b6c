"""Off-policy evaluation in an MDP with a known solution: two states, two actions, random termination."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from rl_training import BC, TransitionDataset, evaluate_policy_offline
from rl_training.experiment.ope import OffPolicyEstimate
from rl_training.experiment.ope.policies import resolve
from rl_training.runtime.engine import Callback
from rl_training.runtime.recipes import roll_dataset
from rl_training.types import Action

GAMMA = 0.9
# Transition probabilities [action, state, next state]; the remainder to 1 is the probability of termination.
MOVES = np.array([[[0.6, 0.3], [0.2, 0.6]], [[0.1, 0.8], [0.5, 0.4]]])
REWARDS = np.array([[1.0, -1.0], [0.0, 2.0]])  # [action, state]
FAST = {"updates": 60, "learning_rate": 0.1, "tau": 0.3, "batch_size": 64}
TABLE = {"hidden_sizes": (), "learning_rate": 0.04, "tau": 0.1, "batch_size": 128, "gamma": GAMMA}


class Always:
    def __init__(self, action: int) -> None:
        self.action = action

    def act(self, obs, memory=None, *, deterministic=False, generator=None):
        return Action(torch.full((len(obs),), self.action))


class Coin:
    """Takes action 1 with this probability; deterministically, action 0."""

    def __init__(self, probability: float) -> None:
        self.probability = probability

    def act(self, obs, memory=None, *, deterministic=False, generator=None):
        return Action((torch.rand(len(obs), generator=generator) < self.probability * (not deterministic)).long())


def recorded(episodes: int, *, seed: int = 0, limit: int = 8) -> TransitionDataset:
    """Episodes of the uniform policy from state 0, truncated after `limit` steps."""
    rng, rows = np.random.default_rng(seed), []
    for _ in range(episodes):
        state = 0
        for step in range(limit):
            action = int(rng.integers(2))
            probabilities = MOVES[action, state]
            following = int(rng.choice(3, p=[*probabilities, 1 - probabilities.sum()]))
            ended = following == 2
            rows.append((state, action, REWARDS[action, state], following % 2, ended, step == limit - 1 and not ended))
            if ended:
                break
            state = following
    names = ("obs", "actions", "rewards", "next_obs", "dones", "truncated")
    columns = {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
    one_hot = {name: np.eye(2)[columns[name]] for name in ("obs", "next_obs")}
    return TransitionDataset.from_dict({**columns, **one_hot})


def true_value(probability_of_1: float) -> float:
    """Value of state 0: V = r + gamma P V."""
    mixture = np.array([1 - probability_of_1, probability_of_1])
    moves, rewards = np.tensordot(mixture, MOVES, 1), mixture @ REWARDS
    return float(np.linalg.solve(np.eye(2) - GAMMA * moves, rewards)[0])


def estimate(policy, dataset=None, **options) -> OffPolicyEstimate:
    return evaluate_policy_offline(
        policy, dataset or recorded(400), **{"updates": 250, "members": 10, **TABLE, **options}
    )


@pytest.fixture(scope="module")
def always_0() -> OffPolicyEstimate:
    return estimate(Always(0), updates=400)


@pytest.fixture(scope="module")
def always_1() -> OffPolicyEstimate:
    return estimate(Always(1), updates=400)


def test_the_interval_holds_the_true_value_of_each_policy(always_0, always_1):
    for found, truth in ((always_0, true_value(0.0)), (always_1, true_value(1.0))):
        assert found.estimate == pytest.approx(truth, abs=0.5)
        assert found.interval.low < truth < found.interval.high
        assert found.interval.high - found.interval.low < 2


class ByState:
    """Takes action 0 in the first state and action 1 in the second."""

    def act(self, obs, memory=None, *, deterministic=False, generator=None):
        return Action(obs.argmax(-1))


def test_the_policy_acts_at_the_next_observation():
    # State 0 pays nothing and leads to state 1, where action 0 pays 1, action 1 pays 5, and the episode terminates.
    steps = [(0, 0, 0.0, 1, 0.0), (1, 0, 1.0, 1, 1.0), (0, 1, 0.0, 1, 0.0), (1, 1, 5.0, 1, 1.0)] * 10
    states, actions, rewards, following, dones = map(torch.tensor, zip(*steps, strict=True))
    obs, next_obs = torch.eye(2)[states], torch.eye(2)[following]
    columns = {"obs": obs, "actions": actions, "rewards": rewards, "next_obs": next_obs, "dones": dones}
    found = estimate(ByState(), TransitionDataset({**columns, "truncated": torch.zeros(40)}), members=3, **FAST)
    assert found.estimate == pytest.approx(GAMMA * 5, abs=0.2)  # with the action of state 0 it would be 0.9


def test_the_interval_covers_the_choice_of_episodes():
    # Half of 40 episodes pay 0, the others 10, as their only observation shows: every member learns the same values,
    # and the means of their resamples have the standard error 5 / sqrt(40) around 5.
    kind = torch.arange(40) % 2
    zeros = torch.zeros(40)
    columns = {"obs": torch.eye(2)[kind], "actions": torch.zeros(40, dtype=torch.int64), "rewards": 10.0 * kind}
    data = TransitionDataset({**columns, "next_obs": torch.eye(2)[kind], "dones": zeros + 1, "truncated": zeros})
    found = estimate(Always(0), data, **FAST)
    assert found.estimate == pytest.approx(5, abs=0.1)
    quantile = 2.262  # of Student's distribution with 9 degrees of freedom, 97.5%
    assert found.interval.high - found.estimate == pytest.approx(quantile * 5 / 40**0.5, rel=0.5)


def test_policies_are_ranked(always_0, always_1):
    assert true_value(1.0) > true_value(0.0)
    assert always_1.interval.low > always_0.interval.high


def test_sampled_actions_of_a_stochastic_policy_are_averaged():
    found = estimate(Coin(0.5), action_samples=8)
    assert found.interval.low < true_value(0.5) < found.interval.high


def test_a_policy_acts_deterministically_without_action_samples():
    dataset = recorded(40)
    assert estimate(Coin(0.5), dataset, updates=20) == estimate(Always(0), dataset, updates=20)


def test_equal_seeds_give_equal_estimates_and_keep_the_default_generator():
    dataset, before = recorded(40), torch.get_rng_state()
    first, again, other = (estimate(Always(0), dataset, updates=20, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert first.estimate != other.estimate
    assert torch.get_rng_state().equal(before)


def one_state(*, dones: float, truncated: float, rewards: tuple[float, ...] = (1.0,)) -> TransitionDataset:
    """40 episodes of 5 steps in a single state."""
    rows = 200
    ends = (torch.arange(rows) % 5 == 4).float()
    columns = {"obs": torch.zeros(rows, 1), "actions": torch.arange(rows) % 2, "next_obs": torch.zeros(rows, 1)}
    values = torch.tensor(rewards).repeat(rows // len(rewards))
    return TransitionDataset({**columns, "rewards": values, "dones": dones * ends, "truncated": truncated * ends})


def test_truncated_episodes_bootstrap():
    # Rewards of 1 on average, whatever the action: 1 + 0.9 + 0.81 + ... = 10. As a terminal state it would be 3.6.
    found = estimate(Always(0), one_state(dones=0, truncated=1, rewards=(2.0, 0.0, 1.0, 0.5, 1.5)))
    assert found.estimate == pytest.approx(1 / (1 - GAMMA), rel=0.1)


def test_terminated_episodes_do_not_bootstrap():
    # One step in five terminates: Q = 1 + 0.9 * 4/5 * Q. Both actions terminate equally often.
    found = estimate(Always(0), one_state(dones=1, truncated=0))
    assert found.estimate == pytest.approx(1 / (1 - 0.9 * 4 / 5), rel=0.1)


def test_the_return_of_the_behaviour_policy_is_reported():
    found = estimate(Always(0), one_state(dones=1, truncated=0, rewards=(1.0, 0.0, 0.0, 0.0, 1.0)), updates=1)
    assert found.behaviour_return == pytest.approx(1 + 0.9**4)
    assert found.behaviour_interval == pytest.approx((1 + 0.9**4,) * 2)
    assert found.behaviour_undiscounted_return == 2
    assert (found.gamma, found.episodes, found.updates, found.members) == (GAMMA, 40, 1, 10)


def test_a_converged_fit_has_no_warning(always_1):
    assert always_1.warnings == []
    assert always_1.unseen_actions == 0


def test_unseen_actions_give_a_warning():
    data = one_state(dones=1, truncated=0).with_columns(actions=torch.zeros(200, dtype=torch.int64))
    found = estimate(Always(1), data, updates=1)
    assert found.unseen_actions == 1
    assert found.warnings[0].startswith("in 100% of states the policy's action differs from all actions of the data")


def test_a_fit_that_has_not_converged_gives_a_warning():
    found = estimate(Always(1), updates=50)
    assert any("still changed" in warning for warning in found.warnings)


def test_few_episodes_give_a_warning_and_two_have_no_behaviour_interval():
    found = estimate(Always(0), recorded(2), updates=1)
    assert found.behaviour_interval is None
    assert "the interval rests on only 2 episodes: collect more" in found.warnings


def test_early_truncation_gives_a_warning():
    found = estimate(Always(0), one_state(dones=0, truncated=1), updates=1)  # 0.9^5 = 0.59
    assert any(warning.startswith("59% of the behaviour's discounted time") for warning in found.warnings)


def test_callbacks_are_called():
    class Count(Callback):
        steps = 0

        def on_step_end(self, state):
            self.steps = state.global_step

    count = Count()
    estimate(Always(0), recorded(3), updates=7, callbacks=[count])
    assert count.steps == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"updates": 0}, "updates must be at least 1, got 0"),
        ({"members": 2}, "members must be at least 3, got 2"),
        ({"action_samples": 0}, "action_samples must be at least 1, got 0"),
        ({"device": "gpu"}, "device must be auto, cpu, cuda or cuda:N, got 'gpu'"),
        ({"gamma": 1.0}, "gamma: must be less than 1, got 1.0"),
        ({"learning_rat": 1.0}, "learning_rat: unknown key; did you mean learning_rate?"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(ValueError, match="^" + message.replace("?", r"\?")):
        estimate(Always(0), recorded(3), **options)


def test_a_single_row_is_refused():
    with pytest.raises(ValueError, match="rows of data must be at least 2, got 1"):
        estimate(Always(0), TransitionDataset({name: c[:1] for name, c in recorded(3).columns.items()}))


def test_a_recurrent_policy_is_refused():
    class Remembering(Always):
        def act(self, obs, memory=None, **options):
            return super().act(obs, **options)._replace(memory=torch.zeros(1))

    with pytest.raises(TypeError, match="a recurrent policy"):
        estimate(Remembering(0), recorded(3))


@pytest.fixture(scope="module")
def cloned(tmp_path_factory) -> BC:
    options: dict[str, Any] = {"dataset": {"kind": "random", "rows": 80}, "total_timesteps": 2, "hidden_sizes": [8]}
    return BC("Pendulum-v1", output_dir=str(tmp_path_factory.mktemp("runs")), eval_interval=0, **options).learn()


def test_managed_algorithms_agents_and_learners_give_equal_estimates(cloned):
    dataset = roll_dataset("Pendulum-v1", rows=80)
    whole, agent, policy = (
        evaluate_policy_offline(each, dataset, updates=2) for each in (cloned, cloned.agent, cloned.agent.learner)
    )
    assert whole == agent == policy


def test_data_with_other_action_bounds_is_refused(cloned):
    dataset = roll_dataset("Pendulum-v1", rows=80)
    with pytest.raises(ValueError, match=r"the agent's action_low is \(-2.0,\), but the dataset's is \(-1.0,\)"):
        evaluate_policy_offline(cloned, TransitionDataset(dataset.columns))


def test_data_whose_actions_have_other_names_are_refused(cloned):
    dataset = roll_dataset("Pendulum-v1", rows=80)
    agent = cloned.agent
    named = [replace(dataset.spec, categories={"actions": names}) for names in (["left", "right"], ["right", "left"])]
    data = TransitionDataset(dataset.columns, spec=named[0])
    with pytest.raises(ValueError, match=r"the agent's categories is \{'actions': \['right', 'left'\]\}"):
        evaluate_policy_offline(agent._replace(spec=named[1]), data)
    assert resolve(agent, data)[1] is data
