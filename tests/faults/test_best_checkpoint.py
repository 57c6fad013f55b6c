"""The best checkpoint of a run that was killed or stopped while it fitted a model, and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.run import run_training
from rl_training.runtime.engine import Callback
from rl_training.runtime.state import CollectResult, TrainerState

MBPO: dict[str, Any] = {
    "algo": "mbpo", "env_id": "Pendulum-v1", "total_timesteps": 60, "eval_interval": 20, "eval_episodes": 1,
    "checkpoint_interval": 30, "keep_checkpoints": 10,
    "algo_kwargs": {
        "batch_size": 16, "hidden_sizes": [8], "model_members": 3, "model_elites": 2, "model_hidden_sizes": [8],
        "model_max_epochs": 4, "rollout_batch_size": 12, "rollout_interval": 10, "rollout_schedule": [0, 0, 2, 2],
        "model_retention": 2, "learning_starts": 20, "buffer_size": 100, "model_train_interval": 20,
        "updates_per_collect": 1,
    },
}  # fmt: skip


class KilledError(BaseException):
    pass


class EndInFit(Callback):
    """Kills or stops the run after two epochs of the model fit at step 20, where the first evaluation is the best."""

    def __init__(self, how: str) -> None:
        self.how, self.epochs = how, 0

    def on_collect_end(self, state: TrainerState, result: CollectResult) -> None:
        self.epochs += bool(result.doing)
        if self.epochs == 2 and self.how == "kill":
            raise KilledError
        if self.epochs == 2:
            state.request_stop("stopped by SIGTERM")


def files_of(checkpoint: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in checkpoint.iterdir() if path.name != "manifest.json"}


@pytest.mark.parametrize("how", ["kill", "signal"])
def test_checkpoints_equal_those_of_an_uninterrupted_run(how, tmp_path):
    whole = run_training(parse_config({**MBPO, "output_dir": str(tmp_path / "whole")}))
    config = parse_config({**MBPO, "output_dir": str(tmp_path / "run")})
    if how == "kill":
        with pytest.raises(KilledError):
            run_training(config, callbacks=[EndInFit(how)])
    else:
        assert run_training(config, callbacks=[EndInFit(how)]).steps == 20
    assert run_training(config).status == "finished"
    checkpoints = sorted(path.name for path in (whole.run_dir / "checkpoints").iterdir())
    assert "step_000000020" in checkpoints
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == checkpoints
    for name in checkpoints:
        expected = files_of(whole.run_dir / "checkpoints" / name)
        assert files_of(tmp_path / "run" / "checkpoints" / name) == expected, name
