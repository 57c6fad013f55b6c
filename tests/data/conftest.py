"""A tiny world for the data tests: the observation counts steps, and each episode starts 10 higher than the last."""

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

Columns = dict[str, np.ndarray]


@pytest.fixture(params=["npz", "hdf5"])
def write(request, tmp_path) -> Callable[[Columns], Path]:
    """Writes arrays to a file, in either format."""

    def write(columns: Columns) -> Path:
        path = tmp_path / f"data.{request.param}"
        if request.param == "npz":
            np.savez(path, **columns)  # type: ignore[arg-type]
        else:
            with h5py.File(path, "w") as file:
                for name, column in columns.items():
                    file[name] = column
        return path

    return write


@pytest.fixture
def counted() -> Callable[..., Columns]:
    def columns(rewards: list[float], *, dones: tuple[int, ...] = (), truncated: tuple[int, ...] = ()) -> Columns:
        """Rows with these rewards, whose episodes terminate at rows `dones` and are cut at rows `truncated`."""
        obs, episode, step = np.zeros((len(rewards), 1), np.float32), 0, 0
        for row in range(len(rewards)):
            obs[row] = 10 * episode + step
            ended = row in (*dones, *truncated)
            episode, step = (episode + 1, 0) if ended else (episode, step + 1)
        rows = np.arange(len(rewards))
        return {
            "obs": obs,
            "actions": np.linspace(-1, 1, len(rewards), dtype=np.float32)[:, None],
            "rewards": np.array(rewards, np.float32),
            "next_obs": obs + 1,
            "dones": np.isin(rows, dones),
            "truncated": np.isin(rows, truncated),
        }

    return columns
