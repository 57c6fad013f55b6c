"""Loading of datasets: reads, validates and, where allowed, repairs transitions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from rl_training.data.datasets import validation
from rl_training.data.datasets.actions import Bounds
from rl_training.data.datasets.stored import as_numbers
from rl_training.data.datasets.transition_dataset import TransitionDataset, transitions_of
from rl_training.data.readers import Source, read_columns, shown
from rl_training.data.readers.names import Names
from rl_training.data.readers.options import AUTO, Categories, table_options
from rl_training.types import EnvSpec


def load_transition_dataset(
    source: Source, *, spec: EnvSpec | None = None, columns: Mapping[str, Names] | None = None,
    action_range: Bounds | None = None, allow: Collection[str] = (), categories: Categories | None = None,
    csv_dialect: str = AUTO, max_gap: float | None = None, ids: Collection[str] = (), keep_durations: bool = False,
    text_times: bool = True, choices: bool = True,
) -> TransitionDataset:  # fmt: skip
    """Reads transitions from a file, several files, a glob, or a Minari dataset by its directory or id.

    - `spec`: the environment that the data must match.
    - `columns`: names of the file's columns, such as `{"obs": "state"}` or `{"obs": ["x", "y"]}`.
    - `action_range`: the bounds in which Box actions were recorded.
    - `allow`: problems to repair instead of raising DatasetError: nan, out_of_range, no_episode_end, crossing.
    - `categories`: columns of a table to read as categories, or a dict with the values of each in order.
    - `csv_dialect`: separators of a CSV file; auto detects them.
    - `max_gap`: seconds; a longer step in the time column of a table ends the episode.
    - `ids`: columns of a table to keep as integers, one for each different text.
    - `keep_durations`: adds the time to the next row if a table has a time column, for files that hold a part of it.
    - `text_times`: recognises columns of text that hold timestamps.
    - `choices`: reads integers in several columns as choices; False reads them as Box actions.
    """
    validation.check_allow(allow)
    options = table_options(categories, csv_dialect, max_gap, ids=ids, keep_durations=keep_durations)
    options = replace(options, text_times=text_times).for_spec(spec, action_range)
    stored = read_columns(source, columns=columns, options=options if choices else replace(options, action_start=0))
    stored = stored if choices else as_numbers(stored)
    try:
        return transitions_of(stored, spec=spec, action_range=action_range, allow=allow)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{shown(source)}: {error}") from error
