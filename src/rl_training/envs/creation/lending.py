"""Environment objects of the user: training uses them, and everything else gets copies."""

import copy
import weakref
from collections.abc import Callable
from typing import Any

import gymnasium as gym

from rl_training.messages import describe_error


class KeptOpen(gym.Wrapper[Any, Any, Any, Any]):
    """Passes everything on to an object of the user, except `close`."""

    returned = False

    def close(self) -> None:
        self.returned = True


class LentEnv:
    """An environment object of the user, lent to one pool at a time, and copied for the others if that works.

    `make_again` creates it again, if it was made by `gymnasium.make`; otherwise deep copies are used. `wrappers` is the
    number of recorded wrappers that the object already has.
    """

    def __init__(
        self, env: gym.Env[Any, Any], make_again: Callable[..., gym.Env[Any, Any]] | None = None, *, wrappers: int = 0
    ) -> None:
        self.env, self.wrappers = env, wrappers
        self.cannot_copy: str | None = None  # the reason
        self._make_again = make_again
        self._borrower: weakref.ref[KeptOpen] | None = None
        self._unused: gym.Env[Any, Any] | None = None  # a copy that is never stepped, from before the first use
        if make_again is None:
            try:
                self._unused = copy.deepcopy(env)
            except Exception as error:  # whatever its classes raise
                self.cannot_copy = describe_error(error)

    def take(self, *, training: bool, **options: Any) -> gym.Env[Any, Any]:
        """Lends the object to a training pool, and also to others if it cannot be copied; otherwise returns a copy.

        Only an environment of `gymnasium.make` can be copied with other `options`, such as its render mode.
        """
        if (training or self.cannot_copy is not None) and self._is_free():
            lent = KeptOpen(self.env)
            self._borrower = weakref.ref(lent)
            return lent
        if self._make_again is not None:
            return self._make_again(**options)
        if self._unused is None:
            raise ValueError(self.refusal("is needed more than once"))
        return copy.deepcopy(self._unused)

    def refusal(self, need: str) -> str:
        name = type(self.env.unwrapped).__name__
        return (
            f"the environment object {name} {need} and cannot be copied ({self.cannot_copy}); "
            f"pass a class or a function that creates it, such as lambda: {name}()"
        )

    def _is_free(self) -> bool:
        borrower = None if self._borrower is None else self._borrower()
        return borrower is None or borrower.returned

    def __getstate__(self) -> dict[str, Any]:
        """Pickles it for a worker process, as a copy."""
        if self._make_again is None and self._unused is None:
            raise TypeError(self.refusal("is needed in another process"))
        return {**vars(self), "env": self._unused if self._make_again is None else None, "_borrower": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if self._make_again is not None:
            self.env = self._make_again()
