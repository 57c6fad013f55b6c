"""Errors caused by user input, and the message printed for an error."""

import os

from rl_training.messages import REMEDIES, describe_system_error

USER_ERRORS = (
    ValueError, TypeError, FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError,
    PermissionError,
    ImportError,  # an extra that is not installed
    BlockingIOError,  # another process trains in the run directory
)  # fmt: skip

USER_ERROR_CODE = 2  # exit code of a command after one of them

GPU_REMEDIES = {  # by the class of PyTorch's error, whose first sentences are shown
    "OutOfMemoryError": "train fewer seeds at once, or lower batch_size, num_envs, buffer_size or the network's sizes",
    "AcceleratorError": "the GPU failed. Repeat the command; training continues from its last checkpoint",
}
DEBUG = " (--debug shows the traceback)"


def reason_of(error: Exception) -> str:
    """The message without the hint about the traceback, for result.json."""
    return message_of(error).removesuffix(DEBUG)


def message_of(error: Exception) -> str:
    """The message alone for user errors, errors of this package and errors of the system about a file.

    For other errors, also the class name, and the line of the user's code that raised it, if there is one.
    """
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {describe_system_error(error)}"
    if isinstance(error, USER_ERRORS) or type(error).__module__.startswith("rl_training."):
        return str(error)
    if isinstance(error, OSError) and error.errno in REMEDIES:  # while a file was written
        return f"{os.strerror(error.errno)}{REMEDIES[error.errno]}"
    if type(error).__module__.startswith("torch") and type(error).__name__ in GPU_REMEDIES:
        first = str(error).partition("\n")[0].rstrip(". ")
        cause = ". ".join(first.split(". ")[:3])  # advice for developers follows
        return f"{cause}; {GPU_REMEDIES[type(error).__name__]}{DEBUG}"
    from rl_training.envs.checks.user_code import place_of_error  # imports gymnasium

    place = place_of_error(error, installed=False)  # tracebacks pass through typer and torch
    where = "" if place is None else f" in {place}"
    return f"{type(error).__name__}: {error}{where}{DEBUG}"
