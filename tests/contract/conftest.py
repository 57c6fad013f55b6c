"""Every algorithm of the catalogue, in every action space it takes, with the smallest run of its lane."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from rl_training.algorithms import CATALOGUE, Learner
from rl_training.runtime.lanes import lane_class
from rl_training.types import EnvSpec

ENVS = {"box": "Pendulum-v1", "discrete": "CartPole-v1", "multi_discrete": "Levers-v0"}
SPECS = {
    "box": EnvSpec((3,), "box", 2, action_shape=(2,), action_low=(-2.0, -2.0), action_high=(2.0, 2.0)),
    "discrete": EnvSpec((4,), "discrete", 3),
    "multi_discrete": EnvSpec((4,), "multi_discrete", 2, action_shape=(2,), action_sizes=(3, 2), action_starts=(0, 0)),
}
SMALL: dict[str, dict[str, Any]] = {
    "offline": {"dataset": {"kind": "random", "rows": 200}, "total_timesteps": 40},
    "replay": {"total_timesteps": 60, "algo_kwargs": {"learning_starts": 20, "buffer_size": 45}},
    "sequence": {
        "total_timesteps": 60,
        "num_envs": 2,
        "algo_kwargs": {
            "learning_starts": 20,
            "buffer_size": 45,
            "train_ratio": 24,
            "window": 6,
            "size": "tiny",
            "horizon": 3,
        },
    },
    "rollout": {"total_timesteps": 96, "num_envs": 2, "algo_kwargs": {"num_steps": 8, "epochs": 2}},
}
SMALL_MODEL = {"model_members": 3, "model_elites": 2, "model_hidden_sizes": [8], "model_max_epochs": 2,
               "rollout_batch_size": 20, "rollout_interval": 10, "rollout_schedule": [0, 30, 1, 3]}  # fmt: skip
FEW_QUANTILES = 8  # of 200 the update takes ten times as long as all the rest
# Of replay and sequences: before the first update, and with a ring that has come round.
STOPS = {"offline": (7, 27), "replay": (13, 51), "sequence": (14, 50), "rollout": (16, 80)}


class Case(NamedTuple):
    learner: type[Learner]
    kind: str

    @property
    def spec(self) -> EnvSpec:
        return SPECS[self.kind]

    @property
    def stops(self) -> tuple[int, int]:
        """Two steps at which a run is no longer at its start and not yet at its end."""
        return STOPS[self.learner.lane]

    def config(self, **changes: Any) -> dict[str, Any]:
        """A run of less than a second that meets every kind of end: of an episode, of the ring, of a time limit."""
        small = SMALL[self.learner.lane]
        if self.learner.needs_expert:
            small = {**small, "dataset": {"kind": "random", "rows": 100}}
        options = {"batch_size": 16, "hidden_sizes": [8, 8], **small.get("algo_kwargs", {})}
        if "num_quantiles" in self.learner.config_type.model_fields:
            options["num_quantiles"] = FEW_QUANTILES
        if "policy_delay" in self.learner.config_type.model_fields:
            options["policy_delay"] = 2  # so that the actor learns in it too
        if "num_critics" in self.learner.config_type.model_fields:
            options |= {"num_critics": 4, "updates_per_collect": 3}
        options |= SMALL_MODEL if "model_members" in self.learner.config_type.model_fields else {}
        if "model_train_interval" in self.learner.config_type.model_fields:
            options |= {"model_train_interval": 15, "updates_per_collect": 2}
        rest = {"algo": self.learner.name, "env_id": ENVS[self.kind], "env_kwargs": {"max_episode_steps": 25},
                "eval_episodes": 1, "eval_interval": 30, "checkpoint_interval": 25}  # fmt: skip
        return {**rest, **small, "algo_kwargs": options, **changes}


CASES = [Case(learner, kind) for learner in CATALOGUE.values() for kind in learner.action_kinds]
FROM_DATA = [case for case in CASES if lane_class(case.learner).with_online_steps]


def _name(case: Case) -> str:
    return f"{case.learner.name}-{case.kind}"


@pytest.fixture(scope="module", params=CASES, ids=_name)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture(params=FROM_DATA, ids=_name)
def case_from_data(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found
