"""Operating systems that are supported, and their memory allocators."""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # parameters of glibc's `mallopt`
KEPT = 256 * 2**20  # bytes of free memory at the top of the heap above which it is returned to the system
LARGEST = 32 * 2**20  # bytes; the largest block that glibc takes from the heap

WINDOWS = (
    "rl-training runs on Linux and macOS, not on Windows itself; use the Windows Subsystem for Linux, where everything "
    "works as on Linux (wsl --install, then install Python and rl-training in it)"
)


def unsupported() -> str | None:
    """Returns an error message on systems without the file locks and signals of POSIX, else None."""
    return WINDOWS if sys.platform in ("win32", "cygwin") else None


def keep_freed_memory() -> None:
    """Lets glibc reuse the memory of freed tensors; without it, every update gets new pages from the system.

    Other C libraries are left as they are.
    """
    try:
        set_option = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return
    set_option(M_MMAP_THRESHOLD, LARGEST)
    set_option(M_TRIM_THRESHOLD, KEPT)
