"""Every algorithm of the catalogue, in every action space it takes, with the smallest run of its lane."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from rl_training.algorithms import CATALOGUE, Learner
from rl_training.types import EnvSpec

ENVS = {"box": "Pendulum-v1", "discrete": "CartPole-v1"}
SPECS = {
    "box": EnvSpec((3,), "box", 2, action_shape=(2,), action_low=(-2.0, -2.0), action_high=(2.0, 2.0)),
    "discrete": EnvSpec((4,), "discrete", 3),
}
SMALL: dict[str, dict[str, Any]] = {
    "offline": {"dataset": {"kind": "random", "rows": 400}, "total_timesteps": 60},
    "replay": {"total_timesteps": 120, "algo_kwargs": {"learning_starts": 40, "buffer_size": 90}},
    "rollout": {"total_timesteps": 192, "num_envs": 2, "algo_kwargs": {"num_steps": 16, "epochs": 2}},
}


class Case(NamedTuple):
    learner: type[Learner]
    kind: str

    @property
    def spec(self) -> EnvSpec:
        return SPECS[self.kind]

    def config(self, **changes: Any) -> dict[str, Any]:
        """A run of a second or two."""
        small = SMALL[self.learner.lane]
        options = {"batch_size": 16, "hidden_sizes": [8, 8], **small.get("algo_kwargs", {})}
        rest = {"algo": self.learner.name, "env_id": ENVS[self.kind], "eval_episodes": 1, "eval_interval": 50,
                "checkpoint_interval": 30}  # fmt: skip
        return {**rest, **small, "algo_kwargs": options, **changes}


CASES = [Case(learner, kind) for learner in CATALOGUE.values() for kind in learner.action_kinds]


FROM_DATA = [case for case in CASES if case.learner.lane == "offline"]


def _name(case: Case) -> str:
    return f"{case.learner.name}-{case.kind}"


@pytest.fixture(params=CASES, ids=_name)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture(params=FROM_DATA, ids=_name)
def case_from_data(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found
