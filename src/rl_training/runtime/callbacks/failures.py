"""The error that names a user's callback."""

from typing import Any

from rl_training.envs.checks.first_steps import describe_failure


class CallbackError(RuntimeError):
    """A callback raised an error."""


def named_failure(callback: Any, method: str, error: Exception) -> Exception:
    """Returns an error with the callback's name and the line of the user's code, or `error` itself.

    Only Python's own exceptions are replaced: the caller of the training may wait for any other one.
    """
    kind = type(callback)
    if kind.__module__.partition(".")[0] == "rl_training" or type(error).__module__ != "builtins":
        return error
    return CallbackError(f"callback {kind.__name__} failed in {method}: {describe_failure(error)}")
