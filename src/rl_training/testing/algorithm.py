"""`check_algorithm` runs every check on an algorithm of the user's own."""

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rl_training.algorithms import Learner
from rl_training.envs.pools.pool import EnvPool
from rl_training.experiment.config.registry import check_learner
from rl_training.runtime.lanes import lane_class
from rl_training.testing import checks
from rl_training.testing.cases import AlgorithmCase

CHECKS: dict[str, Callable[..., None]] = {
    "updates": checks.check_updates,
    "update_equals_updater": checks.check_update_equals_updater,
    "state": checks.check_state,
    "actions": checks.check_actions,
    "random_streams": checks.check_random_streams,
    "targets": checks.check_targets,
    "normalized": checks.check_normalized,
    "population": checks.check_population,
    "compiled": checks.check_compiled,
    "seeds": checks.check_seeds,
    "resume": checks.check_resume,
    "population_resume": checks.check_population_resume,
    "saved_agent": checks.check_saved_agent,
}
OF_RUNS = ("seeds", "resume", "population_resume", "saved_agent")  # checks that train, in a folder


def check_algorithm(
    learner: type[Learner], env_id: str, *, skip: Iterable[str] = (), options: dict[str, Any] | None = None
) -> None:
    """Raises an AssertionError that names the check, if the algorithm fails one.

    The checks train tiny networks in `env_id` for a few seconds. `options` are options of the algorithm; `skip` leaves
    out checks by their names in `CHECKS`. The checks of populations are left out where seeds train as processes.
    """
    check_learner(learner)
    unknown = sorted({*skip} - CHECKS.keys())
    if unknown:
        raise ValueError(f"no check {unknown[0]!r}; there are {', '.join(CHECKS)}")
    with EnvPool(env_id) as pool:
        case = AlgorithmCase(learner, pool.spec, env_id, options or {})
    left_out = {*skip, *(() if lane_class(learner).takes_population else ("population", "population_resume"))}
    for name in (name for name in CHECKS if name not in left_out):
        with tempfile.TemporaryDirectory(prefix="rl_training-") as folder, case.in_catalogue():
            try:
                CHECKS[name](case, *([Path(folder)] if name in OF_RUNS else []))
            except Exception as error:
                raise AssertionError(f"{learner.__name__} fails the check {name!r}: {error}") from error
