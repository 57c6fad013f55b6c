"""Damaged or forged checkpoints raise CheckpointError, and the previous checkpoint is used."""

from __future__ import annotations

import contextlib
import hashlib
import json
import pickle
import random
import re
import struct
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_training.runtime.checkpoints.format import CheckpointError, canonical_json
from rl_training.runtime.checkpoints.reading import Checkpoint, newest_checkpoint, read_checkpoint
from rl_training.runtime.checkpoints.writing import save_checkpoint

STATE = {"learner": {"weight": torch.arange(600.0)}, "sampler": {"state": torch.arange(500, dtype=torch.uint8), "n": 7}}


def save(directory: Path, step: int, value: float = 0.0, **options: Any) -> Path:
    return save_checkpoint(directory, step, {"learner": {"weight": torch.full((3,), value)}}, info={}, **options)


def test_a_path_without_a_checkpoint_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no checkpoint at .*nowhere: the directory does not exist"):
        read_checkpoint(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match=r"is not a checkpoint: it has no manifest\.json; pass a step_"):
        read_checkpoint(tmp_path)


def test_truncated_files_and_flipped_bits_are_detected(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 1, STATE, info={"threads": 1})
    rng = random.Random(0)
    for case in range(200):
        file = rng.choice(sorted(path.iterdir()))
        good = file.read_bytes()
        place = rng.randrange(len(good))
        flipped = good[:place] + bytes([good[place] ^ 1 << rng.randrange(8)]) + good[place + 1 :]
        file.write_bytes(flipped if case % 2 else good[:place])
        with pytest.raises(CheckpointError, match=r"step_000000001"):
            read_checkpoint(path)
        file.write_bytes(good)
    assert read_checkpoint(path).group("learner")["weight"].tolist() == list(range(600))


@pytest.mark.parametrize("name", ["learner.safetensors", "sampler.safetensors", "state.json", "manifest.json"])
def test_a_missing_or_empty_file_is_detected_and_the_previous_checkpoint_is_used(tmp_path: Path, name: str) -> None:
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, step, STATE, info={})
    (tmp_path / "step_000000003" / name).unlink()
    (tmp_path / "step_000000002" / name).write_bytes(b"")
    errors: list[str] = []
    checkpoint = newest_checkpoint(tmp_path, errors.append)
    assert isinstance(checkpoint, Checkpoint)
    assert checkpoint.step == 1
    assert [re.findall(f"step_00000000[23]|{re.escape(name)}", sentence)[:2] for sentence in errors] == [
        ["step_000000003", name],
        ["step_000000002", name],
    ]


def test_swapped_files_are_detected(tmp_path: Path) -> None:
    state = {"a": torch.zeros(2), "b": torch.ones(2)}  # files of equal size
    path = save_checkpoint(tmp_path, 1, state, info={})
    (path / "a.safetensors").rename(path / "c")
    (path / "b.safetensors").rename(path / "a.safetensors")
    (path / "c").rename(path / "b.safetensors")
    with pytest.raises(CheckpointError, match=r"a\.safetensors does not match its checksum"):
        read_checkpoint(path)


def test_an_unlisted_file_or_symbolic_link_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    (path / "model.pkl").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"model\.pkl is not listed in manifest\.json"):
        read_checkpoint(path)
    (path / "model.pkl").unlink()
    (path / "learner.safetensors").rename(tmp_path / "elsewhere")
    (path / "learner.safetensors").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match=r"learner\.safetensors is not a regular file"):
        read_checkpoint(path)


def test_another_format_version_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    forge_manifest(path, {**manifest_of(path), "format_version": 2})
    with pytest.raises(CheckpointError, match=r"has format 2, but this version of rl_training reads format 1"):
        read_checkpoint(path)


class Payload:
    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.fail, ("code in a checkpoint was run",)


def header(**tensor: Any) -> bytes:
    text = json.dumps({"weight": tensor}).encode()
    return struct.pack("<Q", len(text)) + text + bytes(12)


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps(Payload()),
        header(dtype="F32", shape=[10**10], data_offsets=[0, 4 * 10**10]),
        header(dtype="F32", shape=[2], data_offsets=[0, 12]),
        header(dtype="F9", shape=[3], data_offsets=[0, 12]),
        header(dtype="F8_E8M0", shape=[12], data_offsets=[0, 12]),
        struct.pack("<Q", 2**60),
        safetensors.torch.save({"other": torch.ones(3)}),
        safetensors.torch.save({"weight": torch.ones(3), "other": torch.ones(3)}),
    ],
)
def test_a_forged_file_with_a_valid_checksum_runs_no_code_and_is_refused(tmp_path: Path, content: bytes) -> None:
    path = save(tmp_path, 1)
    replace_file(path, "learner.safetensors", content)
    with pytest.raises(CheckpointError, match=r"learner\.safetensors"):
        _ = read_checkpoint(path).state


@pytest.mark.parametrize(
    "content",
    [
        b"[]",
        b"{",
        b"\xff",
        b"9" * 5_000,
        b"[" * 100_000,
        b'{"learner": NaN}',
        b'{"learner": {"$tensor": []}}',
        b'{"learner": {"$float": "x"}}',
        b'{"learner": 1}',
    ],
)
def test_a_forged_state_with_a_valid_checksum_is_refused(tmp_path: Path, content: bytes) -> None:
    path = save(tmp_path, 1)
    replace_file(path, "state.json", content)
    with pytest.raises(CheckpointError, match=r"state\.json"):
        _ = read_checkpoint(path).state


def replace_file(path: Path, name: str, content: bytes) -> None:
    (path / name).write_bytes(content)
    values = manifest_of(path)
    values["files"][name] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    forge_manifest(path, values)


def manifest_of(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((path / "manifest.json").read_text())
    del values["sha256"]
    return values


def forge_manifest(path: Path, values: dict[str, Any]) -> None:
    checksum = hashlib.sha256(canonical_json(values)).hexdigest()
    (path / "manifest.json").write_bytes(canonical_json({**values, "sha256": checksum}))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("checkpoints"), 1)


@pytest.fixture(scope="module")
def values(saved: Path) -> dict[str, Any]:
    return manifest_of(saved)


@settings(max_examples=200, deadline=None)
@given(
    field=st.sampled_from(["step", "info", "files", "replay", "format_version", "extra"]),
    value=json_values
    | st.dictionaries(st.sampled_from(["state.json", "../x", "/", ""]), json_values, max_size=2)
    | st.fixed_dictionaries({"state.json": st.fixed_dictionaries({"size": json_values, "sha256": json_values})})
    | st.fixed_dictionaries({"replay": st.fixed_dictionaries({"state.json": st.lists(st.integers()) | json_values})}),
)
def test_a_forged_manifest_is_read_or_raises_checkpoint_error(
    saved: Path, values: dict[str, Any], field: str, value: Any
) -> None:
    forge_manifest(saved, {**values, field: value})
    with contextlib.suppress(CheckpointError):
        assert read_checkpoint(saved).group("learner")["weight"].tolist() == [0, 0, 0]


@settings(max_examples=200, deadline=None)
@given(content=st.binary(max_size=40) | json_values.map(lambda value: json.dumps(value).encode()))
def test_arbitrary_bytes_as_manifest_are_refused(saved: Path, content: bytes) -> None:
    (saved / "manifest.json").write_bytes(content)
    with pytest.raises(CheckpointError, match="step_000000001"):
        read_checkpoint(saved)
