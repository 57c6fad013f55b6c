"""Column names: guesses from common spellings, overridden by the user's `columns`."""

import re
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import TypeAlias

from rl_training.messages import did_you_mean

Names: TypeAlias = str | Sequence[str] | float  # a column, a list, a pattern such as obs_*, or a number of rewards
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
TIME_NAMES = ("time", "timestamp", "datetime", "date", "ts")
STEP_NAMES = ("t", "step", "steps", "timestep", "time_step", "index", "row")  # may be other things too
VECTORS = ("obs", "actions", "next_obs", "next_actions")  # tables store one column per dimension: obs_0, obs_1, ...
ACTIONS = ("actions", "next_actions")
NEEDED = ("obs", "actions", "rewards")
OPTIONAL = ("time", "durations", "discounts")
SINGLE = ("rewards", "dones", "truncated", "returns_to_go", *OPTIONAL)  # built from one column of the file
_NO_OBS = re.compile(r"(^|_)(id|ids|uuid|key|index|row|step|t|time|timestamp|datetime|date|ts|reward|return|score)$")
_CHOICE = re.compile(r"(^|_)(action|act|a|u|choice|control|command|decision|dose|setting)s?(_|$)")
LOGGED = ("action_logprob", "action_prob")  # the behaviour policy's probability of the logged action
INDEX = ("", "Unnamed: 0", "__index_level_0__")  # the index of a DataFrame in files that pandas writes
RESERVED = {"discounts", "discount_steps"}  # change the targets of training, so a file must not add them unnoticed


def as_patterns(given: Mapping[str, Names | None]) -> dict[str, str]:
    """The user's names as patterns; a list of columns becomes `a,b`. Leaves out those that are None."""
    named = {name: value for name, value in given.items() if value is not None}
    return {
        name: str(value) if isinstance(value, str | int | float) else ",".join(value) for name, value in named.items()
    }


def one_option(name: str, patterns: Sequence[str]) -> str:
    """Returns the advice that replaces several options for one name."""
    different = list(dict.fromkeys(part for pattern in patterns for part in pattern.split(",") if part))
    if name in SINGLE and len(different) > 1:
        return "choose " + " or ".join(f"{name}={pattern}" for pattern in different)
    return f"write {name}={','.join(different)}"


def choose_names(
    stored: Sequence[str], given: Mapping[str, str], source: object, *, needed: Sequence[str] = NEEDED,
    usable: Sequence[str] | None = None,
) -> dict[str, str]:  # fmt: skip
    """Maps column names to the file's; `a,b` and `obs_*` stand for several columns, "" for none.

    `usable` are the columns of numbers, which an error proposes; by default all.
    """
    given = dict(given)
    if "rewards" in given:  # none, or one number for all rows
        given["rewards"] = "" if constant_rewards(given, stored) is not None else given["rewards"]
        needed = [name for name in needed if name != "rewards"]
    names = {name: _guess(name, stored) for name in SPELLINGS} | given
    for name, pattern in given.items():
        if meant := _meant(name, stored):
            raise ValueError(f"unknown column {name!r}; did you mean {meant}={pattern}?")
        if missing := [part for part in parts_of(pattern, stored) if pattern and not matching_columns(part, stored)]:
            close = did_you_mean(missing[0], stored)
            use = "" if name == missing[0] else f" to use as {name}"
            raise ValueError(f"{source} has no column {missing[0]!r}{use}; it has {sorted(stored)}{close}")
    if unknown := [name for name in needed if not names[name]]:
        spellings = ", no ".join(" or ".join(SPELLINGS[name]) for name in unknown)
        ignored = ", or, for bc and gail, which ignore rewards, --columns rewards=0" if "rewards" in unknown else ""
        raise ValueError(
            f"{source} has no column {spellings}; it has {sorted(stored)}: name the columns with "
            f"--columns, such as {_example(unknown, names, stored if usable is None else usable)}{ignored}"
        )
    _require_single(given, stored, source)
    return {name: pattern for name, pattern in names.items() if pattern}


def _require_single(given: Mapping[str, str], stored: Sequence[str], source: object) -> None:
    for name in SINGLE:
        if len(matching_columns(given.get(name, ""), stored)) > 1:
            raise ValueError(
                f"{source}: {name} takes one column, got {given[name]}; choose one with --columns {name}=NAME"
            )


def with_one_use(
    names: Mapping[str, str], given: Mapping[str, str], stored: Sequence[str], source: object
) -> dict[str, str]:
    """Leaves columns with another use out of a pattern of observations such as `*`; refuses others with two uses."""
    found = {**names, "obs": _without_other_uses(names, given, stored)}
    _require_one_use(found, stored, source)
    return found


def _without_other_uses(names: Mapping[str, str], given: Mapping[str, str], stored: Sequence[str]) -> str:
    """The pattern of obs; one such as `*` leaves out indices, and columns that are dropped or have another use.

    It also leaves out `next_x` beside `x`, and logged probabilities: they are not known when the policy acts.
    """
    parts = parts_of(names["obs"], stored)
    wild = {part for part in parts if part.endswith("*") and part not in stored}
    others = [names[name] for name in (*SPELLINGS, *OPTIONAL, *LOGGED) if name != "obs" and name in names]
    used = {column for pattern in others for column in matching_columns(pattern, stored)}
    used |= {name for name, pattern in given.items() if not pattern} | RESERVED | {*LOGGED, *INDEX, *parts}
    reserved = {spelling for name, spellings in SPELLINGS.items() if name != "obs" for spelling in spellings}
    used |= {column for column in stored if column.lower() in reserved}
    used |= {column for column in stored if column.startswith("next_") and column.removeprefix("next_") in stored}
    matched = [column for part in parts if part in wild for column in matching_columns(part, stored)]
    if names["obs"] in stored or used.isdisjoint(matched):
        return names["obs"]
    columns = [
        column for part in parts for column in matching_columns(part, stored) if part not in wild or column not in used
    ]
    return ",".join(columns) or names["obs"]


def _require_one_use(names: Mapping[str, str], stored: Sequence[str], source: object) -> None:
    """Refuses columns with two uses, or listed twice.

    A time in numbers may be an observation, and the end of an episode a reward.
    """
    uses = {
        "obs": ("actions", "episodes", "dones", "truncated"), "rewards": ("actions", "episodes", "time"),
        "actions": ("episodes", "time"),
    }  # fmt: skip
    for name in VECTORS:
        listed = matching_columns(names.get(name, ""), stored)
        if len({*listed}) < len(listed):
            twice = next(column for column in listed if listed.count(column) > 1)
            raise ValueError(f"{source}: column {twice!r} is listed twice in {name}; list it once")
    for name, other in ((name, other) for name, others in uses.items() for other in others):
        own, used = (matching_columns(names.get(each, ""), stored) for each in (name, other))
        both = [column for column in own if column in used]
        if both:
            raise ValueError(
                f"{source}: column {both[0]!r} is used for {name} and for {other}; leave it out of one of them with "
                f"--columns {name}=NAME or --columns {other}=NAME"
            )


def _meant(name: str, stored: Collection[str]) -> str | None:
    """The column that a misspelled name stands for: `state=x` for `obs=x` would add a column instead of naming obs."""
    if name in SPELLINGS or name in stored or name in OPTIONAL:
        return None
    spelled = [known for known, spellings in SPELLINGS.items() if name in spellings]
    close = get_close_matches(name, [*SPELLINGS, *OPTIONAL], 1, 0.8) if name.isalpha() or "_" in name else []
    return next(iter([*spelled, *close]), None)


def _example(unknown: Sequence[str], names: Mapping[str, str], usable: Sequence[str]) -> str:
    """Options that name the missing columns, with columns of numbers that nothing uses yet, and that are no ids."""
    used = used_columns(names, usable)
    free = [column for column in usable if column and column not in used and not _NO_OBS.search(column.lower())]
    choices = [column for column in free if _CHOICE.search(column.lower())] or (free if "obs" not in unknown else [])
    states = [column for column in free if "actions" not in unknown or column not in choices]
    found = {"obs": states[:8], "actions": choices[:1]}
    found |= {name: [column] for name, column in capitalised(names, usable).items() if name != "obs"}
    return " --columns ".join(f"{name}={','.join(found.get(name, ())) or 'NAME'}" for name in unknown)


def capitalised(names: Mapping[str, str], stored: Sequence[str]) -> dict[str, str]:
    """Unused columns such as `Done` that are the spelling of a missing name but for their capitals, by that name."""
    used = used_columns(names, stored)
    free = [column for column in stored if column not in used and column != column.lower()]
    found = {name: [each for each in free if each.lower() in SPELLINGS[name]] for name in SPELLINGS}
    return {name: columns[0] for name, columns in found.items() if columns and not names.get(name)}


def constant_rewards(given: Mapping[str, str], stored: Collection[str]) -> float | None:
    """The reward of every row if `given` names a number instead of a column, else None."""
    pattern = given.get("rewards", "")
    try:
        return None if pattern in stored else float(pattern)
    except ValueError:
        return None


def used_columns(names: Mapping[str, str], stored: Collection[str]) -> set[str]:
    return {column for pattern in names.values() for column in matching_columns(pattern, stored)}


def matching_columns(pattern: str, stored: Collection[str]) -> list[str]:
    """The file's columns that a name, a list `a,b` or a prefix `obs_*` stands for."""
    if not pattern:
        return []  # also if pandas has written an index, whose column has no name
    if pattern in stored:
        return [pattern]
    if "," in pattern and len(parts := parts_of(pattern, stored)) > 1:
        known = dict.fromkeys(stored)  # thousands of columns are found faster than in a list
        return [name for part in parts for name in ([part] if part in known else matching_columns(part, stored))]
    if not pattern.endswith("*"):
        return []
    prefix = pattern[:-1]
    found = [name for name in stored if name.startswith(prefix)]
    numbered = [name for name in found if name[len(prefix) :].isdecimal()]
    return sorted(numbered, key=lambda name: int(name[len(prefix) :])) or found


def parts_of(pattern: str, stored: Collection[str]) -> list[str]:
    """Splits `a,b` at its commas, except those in the names of the file's columns."""
    words, parts = pattern.split(","), list[str]()
    stored = frozenset(stored)
    longest = 1 + max((name.count(",") for name in stored), default=0)
    while words:
        sizes = range(min(longest, len(words)), 1, -1)
        size = next((size for size in sizes if ",".join(words[:size]) in stored), 1)
        parts.append(",".join(words[:size]))
        del words[:size]
    return parts


def other_names(stored: Sequence[str], names: Mapping[str, str], given: Mapping[str, str]) -> list[str]:
    """The file's other columns, which keep their names."""
    used = used_columns(names, stored)
    known = {spelling for spellings in SPELLINGS.values() for spelling in spellings}
    left_out = {name for name, pattern in given.items() if not pattern}
    taken = used | known | left_out | RESERVED
    return [name for name in stored if name and name not in taken]


def _guess(name: str, stored: Sequence[str]) -> str:
    for spelling in SPELLINGS[name]:
        if spelling in stored:
            return spelling
        numbered = re.compile(rf"({spelling}[_.]?)\d+")
        found = next((match for column in stored if (match := numbered.fullmatch(column))), None)
        if found and name in VECTORS:
            return f"{found.group(1)}*"
    return ""
