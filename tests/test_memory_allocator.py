"""Freed memory is kept for the next update, where the C library allows it."""

import ctypes
import subprocess
import sys

import pytest

from rl_training import platforms

PAGES = """
import ctypes, resource
from rl_training.platforms import keep_freed_memory
libc = ctypes.CDLL("libc.so.6")
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
keep_freed_memory()
def use():
    block = libc.malloc(2**22)
    ctypes.memset(block, 1, 2**22)
    libc.free(block)
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10): use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs glibc")
def test_a_freed_block_gets_no_new_pages():
    faults = subprocess.run(
        [sys.executable, "-c", PAGES], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    assert int(faults) < 100  # 4 MiB are at least 64 pages


def test_other_c_libraries_are_left_as_they_are(monkeypatch):
    def missing(name):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    platforms.keep_freed_memory()
