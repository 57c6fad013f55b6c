"""Every algorithm of the catalogue, in every action space it accepts, with the smallest run of its lane."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rl_training.algorithms import CATALOGUE, Learner
from rl_training.experiment.agent import Agent
from rl_training.experiment.export.files import open_policy, write_policy
from rl_training.experiment.export.parity import TOLERANCE, Comparison
from rl_training.experiment.export.policy import ExportedPolicy
from rl_training.runtime.lanes import lane_class
from rl_training.testing import AlgorithmCase
from rl_training.types import EnvSpec

ENVS = {"box": "Pendulum-v1", "discrete": "CartPole-v1", "multi_discrete": "Levers-v0"}
SPECS = {
    "box": EnvSpec((3,), "box", 2, action_shape=(2,), action_low=(-2.0, -2.0), action_high=(2.0, 2.0)),
    "discrete": EnvSpec((4,), "discrete", 3),
    "multi_discrete": EnvSpec((4,), "multi_discrete", 2, action_shape=(2,), action_sizes=(3, 2), action_starts=(0, 0)),
}


def new_case(learner: type[Learner], kind: str) -> AlgorithmCase:
    return AlgorithmCase(learner, SPECS[kind], ENVS[kind])


def _name(case: AlgorithmCase) -> str:
    return f"{case.learner.name}-{case.kind}"


def slow_unless(is_fast: bool) -> list[pytest.MarkDecorator]:
    return [] if is_fast else [pytest.mark.slow]


CASES = [new_case(learner, kind) for learner in CATALOGUE.values() for kind in learner.action_kinds]
ROWS = [new_case(learner, learner.action_kinds[0]) for learner in CATALOGUE.values()]
OWN_DISCRETE = [new_case(learner, "discrete") for learner in CATALOGUE.values() if learner.discrete_type is not None]
FAMILIES = [
    case for case in ROWS + OWN_DISCRETE if not any(base in CATALOGUE.values() for base in case.learner.__mro__[1:])
]
COMPILED = [*FAMILIES, *(case for case in ROWS if case.learner.name in ("c51", "crossq", "edac", "fqf", "tqc"))]
POPULATIONS = [case for case in CASES if lane_class(case.learner).takes_population]
OFFLINE = [case for case in CASES if lane_class(case.learner).with_online_steps]
RESUMED_TOGETHER = {"crossq-box", *map(_name, FAMILIES)}  # CrossQ has statistics of batches
RESUMED_ONLINE = ("iql", "cal_ql", "cql", "td3_bc")  # exploration noise and changed weights are in the last three


RECURRENT = [
    AlgorithmCase(
        CATALOGUE[name],
        SPECS[kind],
        ENVS[kind],
        {"network": {"hidden_sizes": [8], "memory": memory, "memory_size": 6}},
    )
    for name, kind, memory in (
        ("ppo", "discrete", "lstm"),
        ("ppo", "box", "gru"),
        ("ppo", "multi_discrete", "lstm"),
        ("gail", "box", "lstm"),
    )
]


@pytest.fixture(scope="module", params=CASES, ids=_name)
def case(request: pytest.FixtureRequest) -> AlgorithmCase:
    found: AlgorithmCase = request.param
    return found


@pytest.fixture(
    scope="module",
    params=[pytest.param(case, marks=slow_unless(_name(case) in RESUMED_TOGETHER)) for case in POPULATIONS],
    ids=_name,
)
def population(request: pytest.FixtureRequest) -> AlgorithmCase:
    """Algorithms whose seeds train as one population; derived ones in `make learn` only."""
    found: AlgorithmCase = request.param
    return found


@pytest.fixture(params=COMPILED, ids=_name)
def compiled(request: pytest.FixtureRequest) -> AlgorithmCase:
    """Algorithms that derive from no other one of the catalogue, and some whose losses have parts of their own."""
    found: AlgorithmCase = request.param
    return found


@pytest.fixture(params=ROWS + OWN_DISCRETE, ids=_name)
def row(request: pytest.FixtureRequest) -> AlgorithmCase:
    """Every learner class once, in its first action space."""
    found: AlgorithmCase = request.param
    return found


@pytest.fixture(scope="session")
def all_rows() -> dict[str, AlgorithmCase]:
    """Every algorithm by name, in its first action space."""
    return {row.learner.name: row for row in ROWS}


@pytest.fixture(params=OFFLINE, ids=_name)
def offline_case(request: pytest.FixtureRequest) -> AlgorithmCase:
    found: AlgorithmCase = request.param
    return found


@pytest.fixture(
    params=[pytest.param(case, marks=slow_unless(case.learner.name in RESUMED_ONLINE)) for case in OFFLINE],
    ids=_name,
)
def resumed_online(request: pytest.FixtureRequest) -> AlgorithmCase:
    """Offline algorithms with online steps; some of them in `make learn` only."""
    found: AlgorithmCase = request.param
    return found


@pytest.fixture(
    params=[pytest.param(case, marks=slow_unless(_name(case) in ("ppo-discrete", "ppo-box"))) for case in RECURRENT],
    ids=_name,
)
def recurrent(request: pytest.FixtureRequest) -> AlgorithmCase:
    """Algorithms with an LSTM or GRU; GAIL, which has the policy of PPO, in `make learn` only."""
    found: AlgorithmCase = request.param
    return found


@pytest.fixture
def check_export() -> Callable[[Agent, Path], None]:
    """Exports an agent with three observations and compares the file with it on random numbers."""

    def check(agent: Agent, path: Path) -> None:
        write_policy(ExportedPolicy(agent.learner, agent.spec), path)
        comparison = Comparison(agent, open_policy(path))
        for seed in range(3):
            comparison.act(5 * torch.randn(4, 3, generator=torch.Generator().manual_seed(seed)))
        parity = comparison.result("random numbers", TOLERANCE)
        assert parity.holds, parity

    return check
