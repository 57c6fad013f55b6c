"""The start of a run: the folder for compiled code, and what the run waits for before its first step."""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rl_training.experiment.config.train_config import TrainConfig

CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
LINKING_SECONDS = 20.0  # after which no linker is still writing an empty library


def keep_compiled_code() -> None:
    """Lets PyTorch store compiled code in the user's cache folder, so that the next run does not compile it again.

    Without a folder that can be written, PyTorch uses the system's temporary one.
    """
    if CACHE_VARIABLE in os.environ:
        return
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        folder = (cache if cache.is_absolute() else Path.home() / ".cache") / "rl_training" / "compiled"
        folder.mkdir(parents=True, exist_ok=True)
    except (RuntimeError, OSError):  # no home directory, or a read-only one
        return
    if os.access(folder, os.W_OK):
        os.environ[CACHE_VARIABLE] = str(folder)
        remove_cut_libraries(folder)


def remove_cut_libraries(folder: Path) -> None:
    """Removes the empty libraries that remain if a process is killed while it compiles: PyTorch would load them."""
    before = time.time() - LINKING_SECONDS
    for library in folder.glob("*/*.so"):
        with suppress(OSError):  # another process has removed it
            status = library.stat()
            if status.st_size == 0 and status.st_mtime < before:
                library.unlink()


def assembly_wait(config: TrainConfig, device: str) -> str:
    """Describes what a run does before its first step."""
    parts = ["starting CUDA"] if device.startswith("cuda") else []
    parts += ["loading the dataset"] if config.dataset is not None else []
    parts += ["creating the environments"] if config.env_id is not None else []
    return ", ".join([*parts, "building the networks"])


def first_update_wait(choices: Mapping[str, Any]) -> str:
    """Describes what the first update does besides learning."""
    captured = " and capturing them as a CUDA graph" if choices["device"].startswith("cuda") else ""
    if choices["compile"]:
        return compilation_wait(captured)
    return "capturing the updates as a CUDA graph" if captured else "the first update"


def compilation_wait(more: str = "") -> str:
    return f"compiling the updates{more} (up to a minute the first time, then stored)"
