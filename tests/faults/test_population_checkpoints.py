"""A population always keeps a step that all of its members can resume from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.run import run_population
from rl_training.experiment.verify import compare_runs
from rl_training.runtime.callbacks.saving import SaveCheckpoints
from rl_training.runtime.callbacks.training import Evaluate
from rl_training.runtime.checkpoints.reading import checkpoints_by_step
from rl_training.runtime.state import TrainerState

BC: dict[str, Any] = {
    "algo": "bc", "env_id": "Pendulum-v1", "dataset": {"kind": "random", "rows": 60}, "total_timesteps": 24,
    "checkpoint_interval": 8, "eval_interval": 2, "eval_episodes": 1, "keep_checkpoints": 1,
    "algo_kwargs": {"hidden_sizes": [8], "batch_size": 8},
}  # fmt: skip


class CrashError(Exception):
    pass


def configs(path: Path) -> list[Any]:
    return [parse_config({**BC, "seed": seed, "output_dir": str(path / str(seed))}) for seed in (0, 1)]


@pytest.fixture
def _first_seed_always_improves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first member saves a new best checkpoint at every evaluation, the second one only at the first."""
    evaluate = Evaluate.on_step_end

    def score(self: Evaluate, state: Any) -> None:
        sign = 1 if state.updater.member == 0 else -1
        self.evaluate = lambda watch: {"return_mean": sign * state.global_step}
        evaluate(self, state)

    monkeypatch.setattr(Evaluate, "on_step_end", score)


@pytest.mark.usefixtures("_first_seed_always_improves")
@pytest.mark.parametrize("crash_at", [5, 16])
def test_a_crash_between_the_members_leaves_a_step_that_all_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash_at: int
) -> None:
    """At step 5 only the first has a checkpoint; at step 16 the first has saved and the second has not."""
    run_population(configs(tmp_path / "whole"))
    save = SaveCheckpoints.save

    def crash(self: SaveCheckpoints, state: TrainerState, **options: Any) -> Path:
        if state.global_step >= crash_at and "1" in self.directory.parts[-2]:
            raise CrashError
        return save(self, state, **options)

    with monkeypatch.context() as patch:
        patch.setattr(SaveCheckpoints, "save", crash)
        with pytest.raises(CrashError):
            run_population(configs(tmp_path / "run"))
    first, second = (set(checkpoints_by_step(tmp_path / "run" / seed / "checkpoints")) for seed in "01")
    assert first & second == ({8} if crash_at == 16 else set())
    run_population(configs(tmp_path / "run"))
    for seed in "01":
        assert compare_runs(tmp_path / "run" / seed, tmp_path / "whole" / seed) == []
