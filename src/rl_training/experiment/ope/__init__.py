"""Off-policy evaluation: estimates of policies from data alone."""

from rl_training.experiment.ope.coverage import unseen_action_fraction
from rl_training.experiment.ope.importance import EstimatorResult
from rl_training.experiment.ope.policies import load_dataset_for
from rl_training.experiment.ope.ranking import PolicyEstimate, rank_policies
from rl_training.experiment.ope.single import OffPolicyEstimate, evaluate_policy_offline

__all__ = [
    "EstimatorResult", "OffPolicyEstimate", "PolicyEstimate", "evaluate_policy_offline", "load_dataset_for",
    "rank_policies", "unseen_action_fraction",
]  # fmt: skip
