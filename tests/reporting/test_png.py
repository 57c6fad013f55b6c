"""PNG files as any reader takes them."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest

from rl_training.reporting.png import write_png


def chunks_of(data: bytes) -> dict[bytes, bytes]:
    """What a file holds by kind, its checksums verified."""
    found, place = {}, 8
    while place < len(data):
        (length,) = struct.unpack(">I", data[place : place + 4])
        kind, content = data[place + 4 : place + 8], data[place + 8 : place + 8 + length]
        assert struct.unpack(">I", data[place + 8 + length : place + 12 + length]) == (zlib.crc32(kind + content),)
        found[kind], place = content, place + 12 + length
    return found


def test_a_grey_picture_is_its_lines_each_after_a_zero(tmp_path):
    data = write_png(tmp_path / "grey.png", np.array([[1, 2, 3], [4, 5, 6]], np.uint8)).read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks = chunks_of(data)
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    assert struct.unpack(">2I5B", chunks[b"IHDR"]) == (3, 2, 8, 0, 0, 0, 0)  # 3 wide, 2 high, 8 bits, grey
    assert list(zlib.decompress(chunks[b"IDAT"])) == [0, 1, 2, 3, 0, 4, 5, 6]


def test_colours_lie_side_by_side(tmp_path):
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    chunks = chunks_of(write_png(tmp_path / "colours.png", pixels).read_bytes())
    assert chunks[b"IHDR"][9] == 2
    assert list(zlib.decompress(chunks[b"IDAT"])) == [0, *range(6), 0, *range(6, 12)]


@pytest.mark.parametrize("pixels", [np.zeros((2, 2)), np.zeros((2, 2, 4), np.uint8), np.zeros((0, 2), np.uint8)])
def test_what_is_no_picture_is_refused(tmp_path, pixels):
    with pytest.raises(ValueError, match=r"pixels must be uint8 \[height, width\] or \[height, width, 3\], got"):
        write_png(tmp_path / "no.png", pixels)
