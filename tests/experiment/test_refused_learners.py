"""Learner classes that registration, or `check_algorithm`, refuses with a reason."""

from __future__ import annotations

from typing import Any

import pytest

import rl_training
from rl_training.algorithms import (
    BCAlgorithm,
    GAILAlgorithm,
    Learner,
    ModelBasedConfig,
    ModelBasedLearner,
    PPOAlgorithm,
    ReplayConfig,
    SACAlgorithm,
)
from rl_training.experiment.config import registry
from rl_training.models import PPOModel
from rl_training.testing import CHECKS, check_algorithm


class Wrong(BCAlgorithm):
    name = "wrong"
    lane = "nowhere"


class WrongKinds(BCAlgorithm):
    action_kinds = ("boxes", "discrete")


class NoModel(Learner):
    name, lane, config_type, model_type, action_kinds = "no_model", "replay", ReplayConfig, object, ("discrete",)


class WrongOptions(Learner):
    name, lane, config_type, model_type, action_kinds = "other", "rollout", ReplayConfig, PPOModel, ("discrete",)


class NotModelBased(SACAlgorithm):
    name, lane_class = "not_model_based", "model_based"


class WithoutModelOptions(ModelBasedLearner, SACAlgorithm):
    name, lane_class = "without_model_options", "model_based"


class WithoutReplayOptions(ModelBasedLearner, SACAlgorithm):
    name, lane_class, config_type = "without_replay_options", "model_based", ModelBasedConfig


class WithoutDiscriminator(PPOAlgorithm):
    name, lane_class, needs_expert = "without_discriminator", "imitation", True


class WithoutExpert(GAILAlgorithm):
    name, needs_expert = "without_expert", False


BOTH = "config_type of the lane model_based must be a subclass of ReplayConfig and ModelBasedConfig, got "
UNFIT_FOR_LANE: list[tuple[Any, str]] = [
    (WrongOptions, "config_type of the lane rollout must be a subclass of BaseRolloutConfig, got ReplayConfig"),
    (NotModelBased, "NotModelBased must be a subclass of ModelBasedLearner for the lane model_based"),
    (WithoutModelOptions, f"{BOTH}SACConfig"),
    (WithoutReplayOptions, f"{BOTH}ModelBasedConfig"),
    (WithoutDiscriminator, "config_type of the lane imitation must be a subclass of GAILConfig, got PPOConfig"),
    (WithoutExpert, "the lane imitation needs an expert's dataset; set needs_expert = True"),
]


@pytest.mark.parametrize(("learner", "message"), UNFIT_FOR_LANE)
def test_a_class_without_what_its_lane_needs_is_not_registered(learner, message):
    with pytest.raises(TypeError, match=message):
        rl_training.register_algorithm(learner)
    assert learner.name not in registry.algorithm_names()


@pytest.mark.parametrize(
    ("learner", "message"),
    [
        (Wrong, "lane must be one of offline, .*, got 'nowhere'"),
        (WrongKinds, r"action_kinds must be a tuple of box, discrete, multi_discrete, got \('boxes', 'discrete'\)"),
        (NoModel, r"model_type needs a class method build\(spec, config\)"),
        (int, "must be a subclass of rl_training.algorithms.Learner"),
        *UNFIT_FOR_LANE,
    ],
)
def test_an_incomplete_class_is_refused_before_its_checks(learner, message):
    with pytest.raises(TypeError, match=message):
        check_algorithm(learner, "CartPole-v1")


class Unseeded(BCAlgorithm):
    """Behaviour cloning that ignores the generator of its actions."""

    name = "unseeded"

    def act(self, obs, memory=None, *, deterministic=False, generator=None):
        return super().act(obs, deterministic=deterministic)


def test_a_failed_check_is_named_with_its_reason():
    with pytest.raises(AssertionError, match=r"Unseeded fails the check 'random_streams': .* pass `generator`"):
        check_algorithm(Unseeded, "Pendulum-v1", skip=["updates"])
    assert "unseeded" not in registry.algorithm_names()


def test_checks_can_be_left_out_by_their_names():
    check_algorithm(Unseeded, "Pendulum-v1", skip=CHECKS.keys() - {"actions"}, options={"hidden_sizes": [4]})
    with pytest.raises(ValueError, match=r"no check 'resumes'; there are updates, .*resume"):
        check_algorithm(Unseeded, "Pendulum-v1", skip=["resumes"])
