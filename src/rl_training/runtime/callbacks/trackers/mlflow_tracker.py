"""Logs to MLflow. Its own environment variables (MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME, ...) apply."""

import os
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from rl_training.runtime.callbacks.trackers.subject import Row, Subject, numbers_of

LONGEST = 500  # characters of a parameter
STATUS = {"finished": "FINISHED", "early_stop": "FINISHED", "stopped": "KILLED"}


class MlflowTracker:
    """One run of MLflow, which a resume continues by its id."""

    def __init__(self, subject: Subject) -> None:
        self._client = MlflowClient(tracking_uri=_store())
        known = subject.stored().get("run_id")
        if known is not None:
            self._run_id = str(known)
            self._client.update_run(self._run_id, status="RUNNING")
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "rl_training")
        experiment = self._client.get_experiment_by_name(name)
        number = self._client.create_experiment(name) if experiment is None else experiment.experiment_id
        tags = {"group": subject.group, "run_dir": str(subject.path)}
        self._run_id = self._client.create_run(number, run_name=subject.path.name, tags=tags).info.run_id
        subject.store({"run_id": self._run_id})
        params = [Param(key, str(value)[:LONGEST]) for key, value in flat(subject.config).items()]
        for start in range(0, len(params), 100):  # the most that a request may have
            self._client.log_batch(self._run_id, params=params[start : start + 100])

    def write(self, row: Row) -> None:
        now = int(time.time() * 1000)
        metrics = [Metric(name, float(value), now, row["step"]) for name, value in numbers_of(row).items()]
        self._client.log_batch(self._run_id, metrics=metrics)

    def finish(self, status: str) -> None:
        self._client.set_terminated(self._run_id, STATUS.get(status, "FAILED"))


def flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns the values of nested dicts by paths such as `algo_kwargs.gamma`."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) and value else {f"{prefix}{key}": value}
    return found


def _store() -> str | None:
    """Returns None, which follows MLflow's settings, or a folder if MLflow's default, a database, cannot be used."""
    if "MLFLOW_TRACKING_URI" in os.environ or find_spec("sqlalchemy") is not None:
        return None
    return Path("mlruns").resolve().as_uri()
