"""Which errors are the user's mistakes, and how an error is put into words."""

from __future__ import annotations

MISTAKES = (
    ValueError,
    TypeError,
    ImportError,  # an extra that is not installed
    FileNotFoundError,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
    BlockingIOError,  # a run that another process is training
)


def message_of(error: Exception) -> str:
    """Our own sentences as they are; others with their kind, since they may not be sentences."""
    ours = isinstance(error, MISTAKES) or type(error).__module__.startswith("rl_training.")
    return str(error) if ours else f"{type(error).__name__}: {error} (--debug shows where)"
