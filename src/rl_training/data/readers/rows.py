"""Rows as files keep them, made into transitions that never lead from one episode into another."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from rl_training.data.faults import find_breaks, require_equal_lengths

Arrays = dict[str, np.ndarray]

NAMES = {  # ours, and what files call the same
    "obs": ("obs", "observations"),
    "actions": ("actions",),
    "rewards": ("rewards",),
    "next_obs": ("next_obs", "next_observations"),
    # In other hands "dones" may count time limits too, so the plainer names go first.
    "dones": ("terminated", "terminations", "terminals", "dones"),
    "truncated": ("truncated", "timeouts", "truncations"),
    "next_actions": ("next_actions",),
    "returns_to_go": ("returns_to_go",),
}
NEEDED = ("obs", "actions", "rewards", "dones")


def find_names(stored: Mapping[str, object], source: object) -> dict[str, str]:
    """Our name of each column that the file has, with the name it has there."""
    names = {ours: next((name for name in theirs if name in stored), None) for ours, theirs in NAMES.items()}
    missing = [" or ".join(NAMES[name]) for name in NEEDED if names[name] is None]
    if missing:
        raise ValueError(f"{source} has no column {', no '.join(missing)}; it has {sorted(stored)}")
    return {ours: name for ours, name in names.items() if name is not None}


def complete_transitions(columns: Arrays, source: object) -> Arrays:
    """The columns with next_obs and truncated set, less the rows whose next observation is not known."""
    flags: Arrays = {name: columns[name].reshape(-1) != 0 for name in ("dones", "truncated") if name in columns}
    require_equal_lengths({**columns, **flags})
    dones = flags["dones"]
    if "next_obs" in columns:
        truncated = flags.get("truncated", np.zeros_like(dones)).copy()
        truncated[:-1] |= _breaks(columns) & ~dones[:-1]
        return {**columns, "dones": dones, "truncated": truncated}
    if "truncated" not in flags:
        raise ValueError(
            f"{source} has neither {' nor '.join(NAMES['next_obs'] + NAMES['truncated'])}, so where a time limit ended "
            "an episode cannot be seen; add one of them (timeouts all 0 if every episode ends in a terminal state)"
        )
    return _derive_next_obs(columns, dones, flags["truncated"] & ~dones)


def _derive_next_obs(columns: Arrays, dones: np.ndarray, cut: np.ndarray) -> Arrays:
    next_obs = np.roll(columns["obs"], -1, axis=0)
    # What follows a terminal row is another episode; no value is taken there, but a dynamics model would learn the
    # jump. Where death led is not in the file, so the row keeps its own observation.
    next_obs[dones] = columns["obs"][dones]
    known = ~cut
    known[-1] = dones[-1]
    truncated = np.zeros_like(cut)
    truncated[:-1] = cut[1:] & ~dones[:-1]  # the row before a dropped one is now its episode's last
    complete = {**columns, "next_obs": next_obs, "dones": dones, "truncated": truncated}
    return {name: column[known] for name, column in complete.items()}


def _breaks(columns: Arrays) -> np.ndarray:
    obs, next_obs = columns["obs"], columns["next_obs"]
    if obs.shape != next_obs.shape:
        raise ValueError(f"obs are {obs.shape} but next_obs are {next_obs.shape}")
    rows, next_rows = (torch.from_numpy(column.reshape(len(obs), -1)) for column in (obs, next_obs))
    return find_breaks(rows, next_rows.to(rows.dtype)).numpy()
