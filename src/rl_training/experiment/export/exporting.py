"""Exports an agent: writes the file, measures its parity with the agent and describes it in a JSON file."""

from __future__ import annotations

import copy
import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from rl_training.experiment.agent import Agent
from rl_training.experiment.export.description import describe_policy
from rl_training.experiment.export.files import format_of, open_policy, write_policy
from rl_training.experiment.export.observations import OBSERVATIONS, Observed, observe
from rl_training.experiment.export.parity import TOLERANCE, Comparison, Parity, ParityError
from rl_training.experiment.export.policy import ExportedPolicy
from rl_training.files import require_directory, write_atomically


class Exported(NamedTuple):
    path: Path
    description_path: Path
    description: dict[str, Any]
    parity: Parity


def export_agent(
    agent: Agent, path: Path | str, *, tolerance: float = TOLERANCE, observations: int = OBSERVATIONS,
    data: Path | str | None = None, reading: Mapping[str, Any] | None = None,
) -> Exported:  # fmt: skip
    """Writes the deterministic policy to a new file (.onnx or .pt2) and its description beside it (.json).

    Raises ParityError, and leaves no file, if the file differs from the agent by more than `tolerance` on
    `observations` observations from the environment, or from `data`. `reading` holds options of the data,
    such as `dataset_columns`; the others are those of the agent's training data.
    """
    path = Path(path)
    if observations < 1 or not 0 < tolerance < float("inf"):
        raise ValueError(f"observations and tolerance must be positive numbers, got {observations} and {tolerance}")
    kind, description_path = format_of(path), path.with_suffix(".json")
    if path.exists():
        raise FileExistsError(f"{path} exists; name another file or remove it first")
    require_directory(path)
    agent = agent._replace(learner=copy.deepcopy(agent.learner).cpu().eval())
    policy = ExportedPolicy(agent.learner, agent.spec).eval()
    source = None if data is None else Observed(Path(data), reading or {})
    described = describe_policy(agent, policy, with_env=source is None and agent.config.env_id is not None)
    others = _other_files(description_path, described)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=path.parent) as folder:
        written = Path(folder) / path.name
        added = write_policy(policy, written)
        parity = _measured(agent, written, observations, source, tolerance)
        content = written.read_bytes()
        facts = {"format": kind, **added, "sha256": hashlib.sha256(content).hexdigest(), "parity": parity.to_json()}
        described["files"] = {**others, path.name: facts}
        write_atomically(description_path, json.dumps(described, indent=2, allow_nan=False) + "\n")
        written.rename(path)
    return Exported(path, description_path, described, parity)


def _measured(agent: Agent, path: Path, count: int, data: Observed | None, tolerance: float) -> Parity:
    comparison = Comparison(agent, open_policy(path))
    with torch.random.fork_rng(devices=[]):
        source = observe(agent, comparison, count, data)
    parity = comparison.result(source, tolerance)
    if not parity.holds:
        differ = parity.observations - parity.equal_actions - parity.ties
        name = max(parity.errors, key=lambda name: parity.errors[name], default="actions")
        raise ParityError(
            f"the exported policy differs from the agent: the largest relative error is {parity.worst:.2g} ({name}; "
            f"allowed: {tolerance:g}), and {differ:,} of {parity.observations:,} actions differ. No file was written; "
            "raise the tolerance if this is good enough",
            parity,
        )
    return parity


def _other_files(path: Path, described: dict[str, Any]) -> dict[str, Any]:
    """Returns the files of an existing description of the same policy, such as policy.onnx beside policy.pt2."""
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        files = dict(found.pop("files"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        found = files = {}
    if found != json.loads(json.dumps(described)):
        raise FileExistsError(f"{path} exists and does not describe this policy; name another file or remove it first")
    return files
