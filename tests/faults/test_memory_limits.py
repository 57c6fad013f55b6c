"""Replay buffers that do not fit into memory are refused before the run starts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from rl_training import control_groups
from rl_training.cli.app import app
from rl_training.data import FrameReplayBuffer, RecurrentReplayBuffer, ReplayBuffer
from rl_training.data.sampling import PackedColumns
from rl_training.experiment.config.train_config import ConfigError, parse_config
from rl_training.experiment.run import run_training
from rl_training.runtime.lanes import memory_limits
from rl_training.types import EnvSpec

GB = 10**9


def test_a_replay_buffer_larger_than_the_machine_is_refused_with_option_and_sizes(tmp_path):
    arguments = ["train", "sac", "Pendulum-v1", "--steps", "100", "--set", "buffer_size=1000000000000"]
    result = CliRunner().invoke(app, [*arguments, "--output", str(tmp_path / "run")])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    sentence = "buffer_size: 1,000,000,000,000 transitions of 40 bytes need 40,000.0 GB, but there are "
    assert result.stderr.startswith(f"error: {sentence}")
    assert result.stderr.endswith("; lower buffer_size\n")
    assert not (tmp_path / "run").exists()


def pendulum(folder: Path, steps: int, **options: int) -> dict[str, object]:
    small = {"hidden_sizes": [8], "batch_size": 8, "learning_starts": 10, **options}
    return {"algo": "sac", "env_id": "Pendulum-v1", "total_timesteps": steps, "eval_interval": 0,
            "output_dir": str(folder / "run"), "algo_kwargs": small}  # fmt: skip


def test_only_transitions_that_the_run_stores_must_fit_into_available_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(memory_limits, "host_memory", lambda: (GB, 4000))
    with pytest.raises(ConfigError, match=r"buffer_size: 101 transitions of 40 bytes need .* GB of memory available"):
        run_training(parse_config(pendulum(tmp_path, 101)))
    assert run_training(parse_config(pendulum(tmp_path, 100))).status == "finished"


def test_the_members_of_a_population_need_memory_each(monkeypatch):
    monkeypatch.setattr(memory_limits, "host_memory", lambda: (None, 79))
    with pytest.raises(memory_limits.NotEnoughMemoryError, match="1 transitions of 80 bytes"):
        memory_limits.require_memory("buffer_size", 1, 2 * 40, filled=5, device=torch.device("cpu"))


def allocated(*columns: torch.Tensor) -> int:
    return sum(column.numel() * column.element_size() for column in columns)


def columns_of(columns: PackedColumns) -> list[torch.Tensor]:
    return [columns.matrix, *(column for name, column in columns.items() if name not in columns.shapes)]


def test_the_bytes_of_a_row_are_those_that_a_buffer_allocates():
    pixels = EnvSpec((4, 10, 10), "discrete", 3, obs_dtype="uint8")
    plain = ReplayBuffer(128, pixels, prioritized=True)
    assert plain.priorities is not None
    assert allocated(*columns_of(plain.columns), plain.priorities.values) == 128 * ReplayBuffer.row_bytes(
        pixels, prioritized=True
    )
    frames = FrameReplayBuffer(128, pixels)
    assert allocated(*columns_of(frames.columns), frames.frames.frames) == 128 * FrameReplayBuffer.row_bytes(pixels)
    latents = {"deter": ((8,), torch.float16)}
    records = RecurrentReplayBuffer(128, pixels, window=8, latents=latents)
    stored = allocated(*columns_of(records.columns), *records.latents.values())
    assert stored == 128 * RecurrentReplayBuffer.row_bytes(pixels, latents)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 64 kB of memory, 40 of them available, whose files are in the returned folder."""
    for module, name in ((control_groups, "GROUPS"), (control_groups, "MEMBERSHIP"), (memory_limits, "MEMINFO")):
        monkeypatch.setattr(module, name, tmp_path / name.lower())
    memory = "MemTotal: 64 kB\nMemFree: 9 kB\nMemAvailable: 40 kB\nSwapTotal: 10 kB\nSwapFree: 5 kB\n"
    (tmp_path / "meminfo").write_text(memory)
    return tmp_path


def test_available_memory_is_that_of_the_machine_without_a_limit(machine):
    assert memory_limits.host_memory() == (74 * 1024, 45 * 1024)


@pytest.mark.parametrize(
    ("membership", "folder", "files", "left"),
    [
        ("0::/job", "job", {"memory.max": "9000", "memory.current": "5000"}, 4000),
        ("0::/job/step", "job", {"memory.max": "9000", "memory.current": "5000"}, 4000),
        ("0::/elsewhere", ".", {"memory.max": "9000", "memory.current": "5000"}, 4000),
        ("0::/job", "job", {"memory.max": "9000", "memory.current": "9500"}, 0),
        ("0::/job", "job", {"memory.max": "max", "memory.current": "5000"}, 45 * 1024),
        ("0::/job", "job",
         {"memory.max": "9000", "memory.current": "5000", "memory.stat": "anon 3000\ninactive_file 2000"}, 6000),
        ("4:cpu:/x\n3:memory:/job", "memory/job",
         {"memory.limit_in_bytes": "9000", "memory.usage_in_bytes": "5000",
          "memory.stat": "inactive_file 1\ntotal_inactive_file 1500"}, 5500),
    ],
)  # fmt: skip
def test_the_limit_of_a_container_counts(machine, membership, folder, files, left):
    (machine / "membership").write_text(f"{membership}\n")
    (machine / "groups" / folder).mkdir(parents=True)
    for name, text in files.items():
        (machine / "groups" / folder / name).write_text(f"{text}\n")
    assert memory_limits.host_memory() == (74 * 1024, left)


def test_a_gpu_must_have_room_for_the_whole_buffer(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 2000))
    device = torch.device("cuda", 0)
    memory_limits.require_memory("buffer_size", 25, 40, filled=1, device=device)
    with pytest.raises(memory_limits.NotEnoughMemoryError, match="GB of memory free on cuda:0, enough for 25"):
        memory_limits.require_memory("buffer_size", 26, 40, filled=1, device=device)
