"""Options that an algorithm of your own inherits: `normalize_obs` and `network.memory`."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from rl_training.algorithms import AlgorithmConfig, Learner, ReplayConfig, RolloutConfig
from rl_training.experiment.config.registry import check_policy
from rl_training.models import Layers
from rl_training.models.heads import Categorical
from rl_training.testing import CHECKS, check_algorithm, checks
from rl_training.types import Action, EnvSpec, Loss

SPEC = EnvSpec((4,), "discrete", 2)
UNIT = {"mean": torch.zeros(4), "std": torch.ones(4), "count": torch.zeros(())}


class Model(nn.Module):
    @classmethod
    def build(cls, spec: EnvSpec, config: Any) -> Model:
        model = cls()
        model.policy = Layers.from_config(spec, config).from_obs(spec.obs_shape[0], spec.action_dim)
        return model


class Reinforce(Learner):
    """Policy gradient with the rewards of single steps."""

    name, lane, action_kinds = "reinforce", "rollout", ("discrete",)
    config_type: ClassVar[type[AlgorithmConfig]] = RolloutConfig
    model_type = Model

    def loss(self, batch):
        policy = Categorical(self.model.policy(self.normalizer(batch["obs"])))
        return Loss({"loss": -(policy.log_prob(batch["actions"]) * batch["rewards"]).mean()})

    def act(self, obs, memory=None, *, deterministic=False, generator=None):
        policy = Categorical(self.model.policy(self.normalizer(obs)))
        return Action(policy.mode() if deterministic else policy.sample(generator))


class RawPolicy(Reinforce):
    def act(self, obs, memory=None, *, deterministic=False, generator=None):
        return Action(Categorical(self.model.policy(obs)).sample(generator))


class RawLoss(Reinforce):
    lane, config_type = "replay", ReplayConfig

    def loss(self, batch):
        policy = Categorical(self.model.policy(batch["obs"]))
        return Loss({"loss": -(policy.log_prob(batch["actions"]) * batch["rewards"]).mean()})


class Unfitted(Reinforce):
    def prepare(self, batch):
        return batch


def test_an_algorithm_passes_all_checks_and_its_model_needs_no_shape():
    check_algorithm(Reinforce, "CartPole-v1")
    assert Reinforce.build(SPEC, normalize_obs=True).model.obs_shape == (4,)


def test_rollouts_are_added_to_the_statistics_of_observations():
    learner: Any = Reinforce.build(SPEC, normalize_obs=True)
    rollouts = torch.randn(2, 5, 3, 4, generator=torch.Generator().manual_seed(0))  # [rollouts, time, envs, obs]
    for rollout in rollouts:
        learner.prepare({"obs": rollout})
    rows = rollouts.flatten(0, 2)
    torch.testing.assert_close(learner.normalizer.mean, rows.mean(0))
    torch.testing.assert_close(learner.normalizer.std, rows.std(0, unbiased=False), atol=2e-3, rtol=0)
    assert learner.normalizer.count.item() == 30


def test_a_policy_that_ignores_normalize_obs_is_refused():
    assert check_policy(RawPolicy.build(SPEC)).model.obs_shape == (4,)
    with pytest.raises(ValueError, match=r"normalize_obs is true, but RawPolicy ignores it: call self\.normalizer"):
        check_policy(RawPolicy.build(SPEC, normalize_obs=True))


def test_the_check_of_a_policy_draws_no_random_numbers_and_leaves_the_statistics():
    learner = Reinforce.build(SPEC, normalize_obs=True)
    noise = torch.get_rng_state()
    check_policy(learner)
    assert torch.get_rng_state().equal(noise)
    assert all(value.equal(UNIT[name]) for name, value in learner.normalizer.named_buffers())


@pytest.mark.parametrize(
    ("learner", "message"),
    [
        (RawPolicy, "RawPolicy ignores it: call self.normalizer"),
        (RawLoss, "losses ignore normalize_obs: read self.normalized"),
        (Unfitted, r"prepare\(\) does not fit the normalizer"),
    ],
)
def test_the_checks_find_observations_that_are_not_normalised(learner, message):
    with pytest.raises(AssertionError, match=f"fails the check 'normalized': .*{message}"):
        check_algorithm(learner, "CartPole-v1", skip=CHECKS.keys() - {"normalized"})


def test_memory_is_refused_where_the_model_has_none():
    message = "the model Model has no recurrent layers, but network.memory is lstm"
    with pytest.raises(ValueError, match=message):
        Reinforce.build(SPEC, network={"memory": "lstm"})


def test_saved_agents_are_compared_on_different_observations():
    obs = np.stack(checks.observations_for(SPEC, "CartPole-v1"))  # all first ones of its episodes are below 0.05
    assert (obs.shape, obs.std() > 0.2) == ((5, 4), True)


@pytest.mark.parametrize("env_id", ["Blackjack-v1", "CombinationLock-v0"])  # Tuple observations; Dict with a mask
def test_checks_run_in_environments_whose_observations_are_converted(env_id):
    check_algorithm(Reinforce, env_id, skip=CHECKS.keys() - {"saved_agent"})
