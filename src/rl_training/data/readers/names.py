"""Column names: guesses from common spellings, overridden by the user's `columns`."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

Names: TypeAlias = str | Sequence[str]  # a column, a list of columns or a pattern such as obs_*
SPELLINGS = {  # column name, and its spellings in files
    "obs": ("obs", "observations", "observation", "states", "state"),
    "actions": ("actions", "action", "acts", "act"),
    "rewards": ("rewards", "reward"),
    "next_obs": ("next_obs", "next_observations", "next_observation", "next_states", "next_state"),
    # "dones" comes last: in some files it includes time limits.
    "dones": ("terminated", "terminations", "terminals", "terminal", "is_terminal", "dones", "done"),
    "truncated": ("truncated", "timeouts", "truncations", "truncation", "timeout"),
    "next_actions": ("next_actions", "next_action"),
    "returns_to_go": ("returns_to_go",),
    "episodes": ("episode", "episode_id", "episodes", "traj_id", "trajectory_id"),  # constant within an episode
}
VECTORS = ("obs", "actions", "next_obs", "next_actions")  # tables store one column per dimension: obs_0, obs_1, ...
NEEDED = ("obs", "actions", "rewards")
RESERVED = {"discounts", "discount_steps"}  # change the targets of training, so a file must not add them unnoticed


def as_patterns(given: Mapping[str, Names | None]) -> dict[str, str]:
    """The user's names as patterns; a list of columns becomes `a,b`. Leaves out those that are None."""
    named = {name: value for name, value in given.items() if value is not None}
    return {name: value if isinstance(value, str) else ",".join(value) for name, value in named.items()}


def choose_names(
    stored: Sequence[str], given: Mapping[str, str] | None, source: object, *, needed: Sequence[str] = NEEDED
) -> dict[str, str]:
    """Maps column names to the file's; `a,b` and `obs_*` stand for several columns, "" for none."""
    given = dict(given or {})
    if "rewards" in given:  # none, or one number for all rows
        given["rewards"] = "" if constant_rewards(given, stored) is not None else given["rewards"]
        needed = [name for name in needed if name != "rewards"]
    names = {name: _guess(name, stored) for name in SPELLINGS} | given
    for name, pattern in given.items():
        # `state=x` instead of `obs=x` would add a column instead of naming obs.
        meant = [known for known, spellings in SPELLINGS.items() if name in spellings and name not in SPELLINGS]
        if meant:
            raise ValueError(f"unknown column {name!r}; did you mean {meant[0]}={pattern}?")
        if missing := [part for part in pattern.split(",") if pattern and not matching_columns(part, stored)]:
            raise ValueError(f"{source} has no column {missing[0]!r} to use as {name}; it has {sorted(stored)}")
    if unknown := [" or ".join(SPELLINGS[name]) for name in needed if not names[name]]:
        raise ValueError(
            f"{source} has no column {', no '.join(unknown)}; it has {sorted(stored)}: "
            f"name the columns with --columns, such as {_example(names, stored)}"
        )
    return {name: pattern for name, pattern in names.items() if pattern}


def _example(names: Mapping[str, str], stored: Sequence[str]) -> str:
    """The first name that is missing, with the columns that nothing uses yet."""
    name = next(name for name in NEEDED if not names[name])
    used = {column for pattern in names.values() for column in matching_columns(pattern, stored)}
    free = [column for column in stored if column and column not in used]
    return f"{name}={','.join(free[:8] if name == 'obs' else free[:1]) or 'NAME'}"


def constant_rewards(given: Mapping[str, str], stored: Collection[str]) -> float | None:
    """The reward of every row if `given` names a number instead of a column, else None."""
    pattern = given.get("rewards", "")
    try:
        return None if pattern in stored else float(pattern)
    except ValueError:
        return None


def matching_columns(pattern: str, stored: Collection[str]) -> list[str]:
    """The file's columns that a name, a list `a,b` or a prefix `obs_*` stands for."""
    if pattern in stored:
        return [pattern]
    if "," in pattern:
        return [name for part in pattern.split(",") for name in matching_columns(part, stored)]
    if not pattern.endswith("*"):
        return []
    prefix = pattern[:-1]
    found = [name for name in stored if name.startswith(prefix)]
    numbered = [name for name in found if name[len(prefix) :].isdecimal()]
    return sorted(numbered, key=lambda name: int(name[len(prefix) :])) or found


def other_names(stored: Sequence[str], names: Mapping[str, str], given: Mapping[str, str] | None) -> list[str]:
    """The file's other columns, which keep their names."""
    used = {column for pattern in names.values() for column in matching_columns(pattern, stored)}
    known = {spelling for spellings in SPELLINGS.values() for spelling in spellings}
    left_out = {name for name, pattern in (given or {}).items() if not pattern}
    return [name for name in stored if name and name not in used | known | left_out | RESERVED]


def _guess(name: str, stored: Sequence[str]) -> str:
    for spelling in SPELLINGS[name]:
        if spelling in stored:
            return spelling
        numbered = re.compile(rf"({spelling}[_.]?)\d+")
        found = next((match for column in stored if (match := numbered.fullmatch(column))), None)
        if found and name in VECTORS:
            return f"{found.group(1)}*"
    return ""
