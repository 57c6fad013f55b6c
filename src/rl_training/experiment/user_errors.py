"""Errors caused by user input, and the message printed for an error."""

USER_ERRORS = (
    ValueError, TypeError, FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError,
    ImportError,  # an extra that is not installed
    BlockingIOError,  # another process trains in the run directory
)  # fmt: skip


def message_of(error: Exception) -> str:
    """The message alone for user errors and errors of this package; the class name as well for any other error."""
    known = isinstance(error, USER_ERRORS) or type(error).__module__.startswith("rl_training.")
    return str(error) if known else f"{type(error).__name__}: {error} (--debug shows the traceback)"
