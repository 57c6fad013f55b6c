"""Whether data hold episodes that a run was trained on."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from rl_training.data import TransitionDataset
from rl_training.experiment.agent import Agent, read_record
from rl_training.experiment.config.dataset_config import FilePart
from rl_training.experiment.ope.policies import load_dataset_for

TRAINING_DATA = "the run was trained on these data, so the estimate may be too high: use episodes that it has not seen"


class Seen(NamedTuple):
    is_training_data: bool
    shared: int  # episodes that are also in the run's training data
    episodes: int

    @property
    def warnings(self) -> list[str]:
        if self.is_training_data:
            return [TRAINING_DATA]
        if not self.shared:
            return []
        return [
            f"{self.shared} of {self.episodes} episodes ({self.shared / self.episodes:.0%}) are also in the run's "
            "training data, so the estimate may be too high: use episodes that it has not seen"
        ]


class EvaluationData:
    """Compares data with the training data of runs, and reads the files that several runs share once."""

    def __init__(self, source: str, data: TransitionDataset) -> None:
        self.source, self.data = source, data
        self.episodes = len(data.episode_offsets)
        self._known: dict[str, set[bytes]] = {}

    def seen_by(self, agent: Agent) -> Seen:
        shared = self.episodes if self._is_file_of(agent) else len(self.hashes & self._hashes_of(agent))
        return Seen(shared == self.episodes, shared, self.episodes)

    def _is_file_of(self, agent: Agent) -> bool:
        """Compares the file with those of the run's config, and its contents with those that the run recorded."""
        if any(Path(file).resolve() == Path(self.source).resolve() for file in files_of(agent)):
            return True
        return read_record(agent.run_dir).get("dataset") == self.fingerprint

    @cached_property
    def hashes(self) -> set[bytes]:
        return once(episode_hashes(self.data))

    @cached_property
    def fingerprint(self) -> str:
        return self.data.fingerprint()

    def _hashes_of(self, agent: Agent) -> set[bytes]:
        """Hashes of the run's training episodes, as far as its files are still there and readable."""
        config = agent.config
        key = repr((config.dataset, config.dataset_columns, config.action_range, config.table, config.dataset_episodes))
        if key not in self._known:
            hashes = [each for file in files_of(agent) for each in _file_hashes(agent, file)]
            self._known[key] = once(hashes)
        return self._known[key]


def files_of(agent: Agent) -> list[str]:
    own = agent.config.dataset
    parts = own if isinstance(own, tuple) else (own,)
    files = (part.source if isinstance(part, FilePart) else part for part in parts)
    return [str(file) for file in files if isinstance(file, str)]


def _file_hashes(agent: Agent, file: str) -> list[bytes]:
    try:
        data = load_dataset_for(agent, file)
    except (OSError, ValueError):  # the file was removed or has changed since the training
        return []
    return episode_hashes(data)[: agent.config.dataset_episodes]


def episode_hashes(data: TransitionDataset) -> list[bytes]:
    """A hash of the observations, actions and rewards of each episode."""
    columns = [data.columns[name].cpu().contiguous().numpy() for name in ("obs", "actions", "rewards")]
    starts = data.episode_offsets.tolist()
    hashes = []
    for start, end in zip(starts, [*starts[1:], len(data)], strict=True):
        digest = blake2b(digest_size=16)
        for column in columns:
            digest.update(column[start:end].data)
        hashes.append(digest.digest())
    return hashes


def once(hashes: list[bytes]) -> set[bytes]:
    """Hashes that occur once: short episodes of a few states may be equal without being copies."""
    return {each for each, count in Counter(hashes).items() if count == 1}
