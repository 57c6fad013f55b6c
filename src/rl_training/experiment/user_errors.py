"""Errors caused by user input, and the message printed for an error."""

USER_ERRORS = (
    ValueError, TypeError, FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError,
    ImportError,  # an extra that is not installed
    BlockingIOError,  # another process trains in the run directory
)  # fmt: skip


def message_of(error: Exception) -> str:
    """The message alone for user errors and errors of this package.

    Any other error has its class name too, and the line of the user's code that it comes from, if there is one.
    """
    if isinstance(error, USER_ERRORS) or type(error).__module__.startswith("rl_training."):
        return str(error)
    from rl_training.envs.checks.user_code import place_of_error  # imports gymnasium

    place = place_of_error(error, installed=False)  # typer and torch are on the way to any error
    where = "" if place is None else f" in {place}"
    return f"{type(error).__name__}: {error}{where} (--debug shows the traceback)"
