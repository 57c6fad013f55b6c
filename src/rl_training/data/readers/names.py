"""Which column of a file is which: guessed from common spellings, or said by the user."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

SPELLINGS = {  # ours, and what files call the same
    "obs": ("obs", "observations", "observation", "states", "state"),
    "actions": ("actions", "action", "acts", "act"),
    "rewards": ("rewards", "reward"),
    "next_obs": ("next_obs", "next_observations", "next_observation", "next_states", "next_state"),
    # In other hands "dones" may count time limits too, so the plainer names go first.
    "dones": ("terminated", "terminations", "terminals", "terminal", "is_terminal", "dones", "done"),
    "truncated": ("truncated", "timeouts", "truncations", "truncation", "timeout"),
    "next_actions": ("next_actions", "next_action"),
    "returns_to_go": ("returns_to_go",),
    "episodes": ("episode", "episode_id", "episodes", "traj_id", "trajectory_id"),  # the same number all episode long
}
VECTORS = ("obs", "actions", "next_obs", "next_actions")  # which tables keep as a column a number: obs_0, obs_1, ...
NEEDED = ("obs", "actions", "rewards")


def choose_names(stored: Sequence[str], given: Mapping[str, str] | None, source: object) -> dict[str, str]:
    """Our name of each column that the file has, with its name there; several are `a,b` or `obs_*`, "" is none."""
    names = {ours: _guess(ours, stored) for ours in SPELLINGS}
    names.update(given or {})
    for ours, theirs in (given or {}).items():
        _require_our_word(ours, theirs)
        missing = [name for name in theirs.split(",") if theirs and not members(name, stored)]
        if missing:
            raise ValueError(f"{source} has no column {missing[0]!r} to take for {ours}; it has {sorted(stored)}")
    unknown = [" or ".join(SPELLINGS[ours]) for ours in NEEDED if not names[ours]]
    if unknown:
        raise ValueError(
            f"{source} has no column {', no '.join(unknown)}; it has {sorted(stored)}: "
            "say which is which with --columns, such as obs=NAME"
        )
    return {ours: theirs for ours, theirs in names.items() if theirs}


def members(theirs: str, stored: Collection[str]) -> list[str]:
    """The file's columns that a name stands for."""
    if theirs in stored:
        return [theirs]
    if "," in theirs:
        return [name for part in theirs.split(",") for name in members(part, stored)]
    if not theirs.endswith("*"):
        return []
    prefix = theirs[:-1]
    found = [name for name in stored if name.startswith(prefix)]
    numbered = [name for name in found if name[len(prefix) :].isdecimal()]
    return sorted(numbered, key=lambda name: int(name[len(prefix) :])) or found


def other_names(stored: Sequence[str], names: Mapping[str, str], given: Mapping[str, str] | None) -> list[str]:
    """The file's columns that are nothing we know: they are kept as they are, if they fit."""
    used = {name for theirs in names.values() for name in members(theirs, stored)}
    known = {spelling for spellings in SPELLINGS.values() for spelling in spellings}
    left_out = {ours for ours, theirs in (given or {}).items() if not theirs}
    return [name for name in stored if name and name not in used | known | left_out]


def _require_our_word(ours: str, theirs: str) -> None:
    """A file's word for a column in the place of ours would be taken for a column of its own, and change nothing."""
    meant = [name for name, spellings in SPELLINGS.items() if ours in spellings and ours not in SPELLINGS]
    if meant:
        raise ValueError(f"our name for {ours!r} is {meant[0]!r}: say {meant[0]}={theirs}")


def _guess(ours: str, stored: Sequence[str]) -> str:
    for spelling in SPELLINGS[ours]:
        if spelling in stored:
            return spelling
        numbered = re.compile(rf"({spelling}[_.]?)\d+")
        found = next((match for name in stored if (match := numbered.fullmatch(name))), None)
        if found and ours in VECTORS:
            return f"{found.group(1)}*"
    return ""
