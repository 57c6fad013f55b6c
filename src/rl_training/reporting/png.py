"""Pictures as PNG files, by the standard library alone."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np

from rl_training.types import Array

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GREY, COLOUR = 0, 2


def write_png(path: Path | str, pixels: Array) -> Path:
    """Bytes [height, width] as a grey picture, [height, width, 3] as one in colours."""
    is_picture = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)
    if pixels.dtype != np.uint8 or not is_picture or not pixels.size:
        raise ValueError(
            f"pixels must be uint8 [height, width] or [height, width, 3], got {pixels.dtype} {pixels.shape}"
        )
    height, width = pixels.shape[:2]
    header = struct.pack(">2I5B", width, height, 8, GREY if pixels.ndim == 2 else COLOUR, 0, 0, 0)
    unfiltered = np.zeros((height, 1), np.uint8)  # each line begins by saying how it is filtered
    lines = np.hstack([unfiltered, np.ascontiguousarray(pixels).reshape(height, -1)])
    chunks = _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)) + _chunk(b"IEND", b"")
    Path(path).write_bytes(SIGNATURE + chunks)
    return Path(path)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
