"""Runs Gymnasium's own checker and adds what the checks of this package do not cover."""

import re
import warnings
from typing import Any

from rl_training.envs.checks.probing import Findings
from rl_training.envs.checks.user_code import place_of_class, place_of_method
from rl_training.envs.interrupts import CallLimit, CallTimeout

COVERED = re.compile(  # by the checks of this package, or without meaning here
    r"infinity|symmetric and normalized|not having a spec|different from the unwrapped|observation space|dtype|"
    r"expecting a numpy array|old step API|signal to be a boolean|reward|`Env.reset`|was not a tuple|\(obs, info\)|"
    r"share an object|truncates after 1 step|super\(\)\.reset|not within|already closed",
    re.IGNORECASE,
)
TRANSLATED = {  # part of Gymnasium's message: code, method, sentence
    "default seed argument": (
        "seed_default", "reset", "`reset` has a default seed, so all episodes would be equal: write seed=None"
    ),
    "`seed` function": ("seed_method", "seed", "the method `seed` is never called: use the argument of reset(seed=…)"),
    "`return_info`": ("return_info", "reset", "`reset` has the old argument return_info: remove it"),
    "maximum and minimum values are equal": (
        "equal_bounds", "__init__", "a Box space has equal lower and upper bounds: check them"
    ),
    "low value is greater": ("crossed_bounds", "__init__", "a Box space has a lower bound above its upper bound"),
    "on the closed environment": ("second_close", "close", "a second call of `close` raises an error: allow it"),
    "info are not": ("info_seed", "step", "info differs after the same seed and actions; training does not use it"),
}  # fmt: skip


def run_gymnasium_check(env: Any, found: Findings, limit: CallLimit) -> None:
    """Runs `gymnasium.utils.env_checker.check_env`; its errors count only if no other mistake explains them."""
    from gymnasium.utils.env_checker import check_env

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with limit:
                check_env(env, skip_render_check=True)
        except KeyboardInterrupt:
            raise
        except CallTimeout:  # its many calls together may take longer than one
            pass
        except BaseException as error:  # a user's environment may raise anything
            if not found.mistakes:
                _add(str(error), env, found, mistake=True)
    for warning in caught:
        message = str(warning.message)
        if "gymnasium" in str(warning.filename) and "WARN" in message:
            _add(message, env, found, mistake=False)


def _add(message: str, env: Any, found: Findings, *, mistake: bool) -> None:
    plain = re.sub(r"\x1b\[[0-9;]*m|WARN: ", "", message).strip()
    for part, (code, method, sentence) in TRANSLATED.items():
        if part in plain:
            found.add(code, sentence, place_of_method(env, method), mistake=False)
            return
    if not COVERED.search(plain):
        found.add(f"gymnasium:{plain[:40]}", f"Gymnasium's checker: {plain}", place_of_class(env), mistake=mistake)
