"""TransitionDataset: transitions as named columns of equal length, in recorded order."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rl_training.data.datasets.actions import Bounds, spec_in_library_units
from rl_training.data.datasets.columns import REQUIRED, to_columns
from rl_training.data.datasets.durations import discount_steps, require_durations
from rl_training.data.datasets.n_step import with_n_step_returns
from rl_training.data.datasets.returns import episode_returns, require_returns, returns_to_go
from rl_training.data.datasets.splitting import By, held_out_episodes
from rl_training.data.datasets.stored import (
    as_known,
    named_spec,
    naming_rows,
    reading_notes,
    repaired,
    require_same_table,
    rows_left_out,
)  # fmt: skip
from rl_training.data.datasets.tensors import to_array, to_tensor, transform_rewards, with_marked_ends
from rl_training.data.datasets.trajectories import copy_origin, first_rows
from rl_training.data.datasets.validation import require_columns, require_equal_lengths
from rl_training.data.readers.frames import read_frame
from rl_training.data.readers.names import Names
from rl_training.data.readers.options import Categories, table_options
from rl_training.data.readers.rows import StoredColumns, left_out_notes
from rl_training.data.sampling import PackedColumns, SeededSampler, gather
from rl_training.types import Array, Batch, EnvSpec


class TransitionDataset(SeededSampler):
    """Transitions for offline algorithms.

    The constructor takes Box actions in [-1, 1], `from_dict` in the environment's units. Transforms return a new one.
    """

    notes: tuple[str, ...] = ()  # how a table was read, and which of its rows are left out
    time_column: str = ""  # column that orders the rows of a table
    incomplete: tuple[str, ...] = ()  # other columns that are left out, because values are missing
    action_range: Bounds | None = None  # in which Box actions were recorded; None: the bounds of the spec
    file_episodes: Array | None = None  # [rows], the episode of the file, which dropped rows may have cut into several
    trajectories: Array | None = None  # [rows], where they go on after terminal (OGBench) or dropped rows

    def __init__(self, columns: Batch, *, episode_ends: Tensor | None = None, spec: EnvSpec | None = None) -> None:
        require_columns(columns, (*REQUIRED, "truncated"))
        require_equal_lengths(columns)
        super().__init__(columns["obs"].device)
        self.columns = columns
        self.spec = spec or spec_in_library_units(to_array(columns["obs"][:1]), to_array(columns["actions"]))
        self.episode_ends = (columns["dones"] + columns["truncated"]) > 0  # [rows], last rows of episodes
        self.episode_ends = self.episode_ends if episode_ends is None else self.episode_ends | episode_ends
        self.episode_ends[-1] = True
        self.dropped_terminals = 0  # terminal rows that `subsample` dropped
        self.gamma: float | None = None  # discount of the returns_to_go column, if known

    @classmethod
    def from_dict(
        cls, values: Mapping[str, npt.ArrayLike | Tensor], *, spec: EnvSpec | None = None,
        action_range: Bounds | None = None, allow: Collection[str] = (),
    ) -> TransitionDataset:  # fmt: skip
        """Converts and validates arrays, with Box actions in the units of `action_range`; `allow` names repairs."""
        arrays = {name: to_array(value) if isinstance(value, Tensor) else value for name, value in values.items()}
        columns, spec = to_columns(arrays, spec, action_range=action_range, allow=allow)
        device = next((value.device for value in values.values() if isinstance(value, Tensor)), "cpu")
        dataset = cls({name: to_tensor(column).to(device) for name, column in columns.items()}, spec=spec)
        dataset.action_range = action_range
        return dataset

    @classmethod
    def from_dataframe(
        cls, frame: Any, *, obs: Names | None = None, actions: Names | None = None, rewards: str | float | None = None,
        episode: str | None = None, next_obs: Names | None = None, dones: str | None = None,
        truncated: str | None = None, time: str | None = None, categories: Categories | None = None,
        max_gap: float | None = None, spec: EnvSpec | None = None, action_range: Bounds | None = None,
        allow: Collection[str] = (), ids: Collection[str] = (),
    ) -> TransitionDataset:  # fmt: skip
        """Converts a pandas or polars DataFrame; names that are not given are guessed, as for a CSV file.

        Other columns of text are left out, except for `ids`, which are numbered, such as the group of a split.
        """
        given = {"obs": obs, "actions": actions, "rewards": rewards, "episodes": episode, "next_obs": next_obs,
                 "dones": dones, "truncated": truncated, "time": time}  # fmt: skip
        options = table_options(categories, max_gap=max_gap, ids=ids).for_spec(spec, action_range)
        stored = read_frame(frame, given, options)
        return transitions_of(stored, spec=spec, action_range=action_range, allow=allow)

    def __len__(self) -> int:
        return len(self.columns["obs"])

    def sample(self, batch_size: int, members: tuple[int, ...] = ()) -> Batch:
        """Samples rows with replacement, [*members, batch_size]."""
        return gather(self.columns, self.sample_rows((*members, batch_size)))

    def sample_rows(self, shape: tuple[int, ...]) -> Tensor:
        return torch.randint(len(self), shape, generator=self.generator, device=self.generator.device)

    @property
    def episode_offsets(self) -> Tensor:
        ends = self.episode_ends.nonzero().squeeze(1)
        return torch.cat([ends.new_zeros(1), ends[:-1] + 1])

    @property
    def episode_numbers(self) -> Tensor:
        """The number of the episode of each row."""
        return self.episode_ends.cumsum(0) - self.episode_ends.long()

    @property
    def first_rows(self) -> Tensor:
        """First rows of the trajectories or of the file's episodes: dropped rows cut these into several."""
        numbers, offsets = self.file_episodes if self.trajectories is None else self.trajectories, self.episode_offsets
        return offsets if numbers is None else torch.from_numpy(first_rows(numbers)).to(offsets)

    def episode_returns(self) -> Tensor:
        """Undiscounted return of each episode."""
        returns = episode_returns(to_array(self.columns["rewards"]), to_array(self.episode_ends))
        return torch.from_numpy(returns).to(self.columns["rewards"])

    def to(self, device: torch.device | str) -> TransitionDataset:
        """Moves the dataset. On an accelerator, columns are packed, so that one kernel gathers a batch."""
        if torch.device(device).type == "cpu":
            return self._replaced({name: column.to(device) for name, column in self.columns.items()}, self.gamma)
        return self._replaced(PackedColumns.of(self.columns, device), self.gamma)

    def for_training(self) -> TransitionDataset:
        """Converts other columns, such as the time, to the float32 of batches; files keep their precision."""
        exact = {name for name, column in self.columns.items() if column.dtype == torch.float64} | {self.time_column}
        rounded = {name: self.columns[name].float() for name in exact & self.columns.keys()}
        return self._replaced({**self.columns, **rounded}, self.gamma) if rounded else self

    def subsample(self, *, episodes: int | None = None, stride: int = 1) -> TransitionDataset:
        """Keeps the first `episodes` episodes, and every `stride`-th row of each."""
        starts, number = self.episode_offsets, self.episode_numbers
        if episodes is not None and episodes > len(starts):
            raise ValueError(f"episodes must be at most {len(starts)}, the number in the dataset, got {episodes}")
        step = torch.arange(len(self), device=starts.device) - starts[number]
        rows = ((step % stride == 0) & (number < (episodes or len(starts)))).nonzero().squeeze(1)
        kept = number[rows]
        ends = torch.cat([kept[1:] != kept[:-1], kept.new_ones(1, dtype=torch.bool)])
        subset = TransitionDataset(gather(self.columns, rows), episode_ends=ends, spec=self.spec)
        dones = self.columns["dones"][number < (episodes or len(starts))]
        subset.dropped_terminals = self.dropped_terminals + int(dones.sum() - subset.columns["dones"].sum())
        copy_origin(subset, self, to_array(rows))
        return subset

    def split(self, test: float = 0.2, *, by: By = "episode", column: str | None = None, seed: int = 0) -> Split:
        """Splits whole episodes into `train` and `test`, a fraction of the episodes or groups.

        - `by="episode"`: episodes picked at random with `seed`.
        - `by="time"`: the last episodes, by the first entry of `column` or in recorded order.
        - `by="group"`: all episodes with the same number in `column`, such as a patient, stay together.
        """
        pieces = to_array(self.episode_numbers)
        number = pieces if self.file_episodes is None else np.unique(self.file_episodes, return_inverse=True)[1]
        values = None if column is None else self._values(column)
        flags = held_out_episodes(number, test, by=by, seed=seed, values=values, column=column)
        is_test = torch.from_numpy(flags[number]).to(self.episode_ends.device)
        return Split(*(self._rows_of_whole_episodes(rows) for rows in (~is_test, is_test)))

    def _values(self, column: str) -> Array:
        if column not in self.columns:
            raise ValueError(
                f"the dataset has no column {column!r}; it has {sorted(self.columns)}: columns of text are kept if you "
                f"load them with ids=[{column!r}]"
            )
        return to_array(self.columns[column])

    def _rows_of_whole_episodes(self, chosen: Tensor) -> TransitionDataset:
        rows, columns = chosen.nonzero().squeeze(1), with_marked_ends(self.columns, self.episode_ends)
        dataset = TransitionDataset(gather(columns, rows), spec=self.spec)
        dataset.gamma = self.gamma
        copy_origin(dataset, self, to_array(rows))
        return dataset

    @property
    def terminals(self) -> int:
        """Number of terminated episodes, including those whose last row was dropped by `subsample`."""
        return int(self.columns["dones"].sum()) + self.dropped_terminals

    def with_columns(self, **columns: Tensor) -> TransitionDataset:
        """Adds or replaces columns; known returns-to-go are recomputed where rewards or ends change."""
        gamma = None if "returns_to_go" in columns else self.gamma
        dataset = self._replaced({**self.columns, **columns}, gamma)
        if gamma is None or columns.keys().isdisjoint({"rewards", "dones", "truncated", "discounts"}):
            return dataset
        return dataset.with_discounted_returns_to_go(gamma)

    def with_reward_transform(
        self, scale: float = 1.0, shift: float = 0.0, clip: tuple[float, float] | None = None
    ) -> TransitionDataset:
        """Replaces rewards by clip(scale * reward + shift); returns-to-go are updated."""
        columns = {"rewards": transform_rewards(self.columns["rewards"], scale, shift, clip)}
        if "returns_to_go" in self.columns and self.gamma is None:
            if shift != 0 or clip is not None:
                raise ValueError(
                    "cannot shift or clip rewards: the data has returns_to_go with an unknown discount; drop that "
                    "column (--columns returns_to_go=) or call with_discounted_returns_to_go(gamma) first"
                )
            columns["returns_to_go"] = self.columns["returns_to_go"] * scale
        return self.with_columns(**columns)

    def return_range_scale(self) -> float:
        """1000 / (best - worst episode return), IQL's reward scale for locomotion."""
        returns = self.episode_returns()
        spread = float(returns.max() - returns.min())
        if spread == 0:
            raise ValueError(f"all {len(returns)} episodes have the return {returns[0]:g}: the return range is 0")
        return 1000 / spread

    def with_discounted_returns_to_go(self, gamma: float) -> TransitionDataset:
        """Adds the column returns_to_go."""
        # A terminated episode has return 0 after its end. For a truncated episode, 0 would bias values toward 0, so the
        # return after its end is estimated from its own rewards (see `truncated_futures`), or is 0 with gamma = 1.
        if not 0 <= gamma <= 1:
            raise ValueError(f"gamma must be in [0, 1], got {gamma}")
        column = torch.from_numpy(returns_to_go(*self._reward_arrays(), self._discounts(gamma)))
        return self._replaced({**self.columns, "returns_to_go": column.to(self.columns["rewards"])}, gamma)

    def require_returns_to_go(self, gamma: float) -> None:
        """Raises DatasetError if the column returns_to_go differs from the returns of the rewards with `gamma`."""
        stored, discounts = to_array(self.columns["returns_to_go"]), self._discounts(gamma)
        require_returns(stored, *self._reward_arrays(), discounts, f"gamma={gamma:g}")

    def with_time_unit(self, unit: float | None) -> TransitionDataset:
        """Adds discount_steps, the durations of the rows in steps of `unit`, for `with_discounts`."""
        require_durations(self.columns)
        steps = torch.from_numpy(discount_steps(to_array(self.columns["durations"]), unit))
        return self.with_columns(discount_steps=steps.to(self.columns["rewards"]))

    def with_discounts(self, gamma: float) -> TransitionDataset:
        """Adds discounts = gamma ** discount_steps; without uneven time steps, nothing is added."""
        if "discount_steps" not in self.columns:
            return self
        return self.with_columns(discounts=gamma ** self.columns["discount_steps"])

    def with_n_step_returns(self, n_step: int, gamma: float) -> TransitionDataset:
        """Replaces rewards by n-step returns within episodes; for training only, after all other transforms."""
        return self._replaced(with_n_step_returns(self.columns, self.episode_ends, n_step, gamma), self.gamma)

    def _reward_arrays(self) -> tuple[Array, Array, Array]:
        """Rewards in double precision, and flags of ends and of terminations."""
        rewards, dones = self.columns["rewards"].double(), self.columns["dones"] > 0
        return to_array(rewards), to_array(self.episode_ends), to_array(dones)

    def _discounts(self, gamma: float) -> float | Array:
        """The discount of all rows, or those of each row."""
        if "discount_steps" in self.columns:
            return gamma ** to_array(self.columns["discount_steps"].double())
        return to_array(self.columns["discounts"].double()) if "discounts" in self.columns else gamma

    def fingerprint(self) -> str:
        """sha256 over the names, dtypes, shapes and bytes of all columns."""
        digest = hashlib.sha256()
        for name, column in sorted(self.columns.items()):
            digest.update(f"{name} {column.dtype} {tuple(column.shape)}\n".encode())
            digest.update(column.cpu().contiguous().numpy().data)
        return digest.hexdigest()

    def _replaced(self, columns: Batch, gamma: float | None) -> TransitionDataset:
        dataset = copy.copy(self)  # keeps the class and the parts of a Mixture
        ends = self.episode_ends.to(columns["obs"].device)
        TransitionDataset.__init__(dataset, columns, episode_ends=ends, spec=self.spec)
        dataset.seed(self.generator.initial_seed())
        dataset.gamma, dataset.dropped_terminals = gamma, self.dropped_terminals
        return dataset


def transitions_of(
    stored: StoredColumns, *, spec: EnvSpec | None, action_range: Bounds | None, allow: Collection[str]
) -> TransitionDataset:
    """Validates the columns of a file, with the repairs that `allow` names."""
    require_same_table(spec, stored)
    stored = as_known(stored, spec, action_range)
    rows, episodes, positions = repaired(stored, allow)
    known = spec or stored.spec
    with naming_rows(stored, positions):
        dataset = TransitionDataset.from_dict(rows, spec=known, action_range=action_range, allow=allow)
    dataset.spec = named_spec(dataset.spec, stored) if known is None else dataset.spec
    left_out = stored.left_out if len(dataset) == len(stored.columns["obs"]) else rows_left_out(stored, allow)
    guessed = rows["actions"] if known is None and action_range is None else None
    dataset.notes = (*reading_notes(stored, guessed), *left_out_notes(left_out))
    dataset.time_column, dataset.incomplete = stored.labels.time, stored.labels.incomplete
    dataset.file_episodes, dataset.trajectories = episodes, None if stored.trajectories is None else episodes
    return dataset


class Split(NamedTuple):
    train: TransitionDataset
    test: TransitionDataset
