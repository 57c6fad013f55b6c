"""Operating systems that are supported."""

import sys

WINDOWS = (
    "rl-training runs on Linux and macOS, not on Windows itself; use the Windows Subsystem for Linux, where everything "
    "works as on Linux (wsl --install, then install Python and rl-training in it)"
)


def unsupported() -> str | None:
    """Returns a sentence for systems without file locks and signals of POSIX."""
    return WINDOWS if sys.platform in ("win32", "cygwin") else None
