"""Hides warnings that Gymnasium and MuJoCo repeat for each environment they create."""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from rl_training.envs.creation.modules import entry_point_of

_warned_of: set[str] = set()  # ids


def hide_repeated_warnings(env_id: str) -> None:
    """Hides the warnings of Gymnasium's registry about this id, such as that its version is out of date.

    The filter stays: one for each environment would reset Python's memory of the warnings it has shown.
    """
    if env_id not in _warned_of:
        _warned_of.add(env_id)
        about = rf".*[ `]{re.escape(env_id.rpartition(':')[2])}[ `.]"
        warnings.filterwarnings("ignore", about, module=r"gymnasium\.envs\.registration$")


@contextmanager
def quiet_models(env_id: str) -> Iterator[None]:
    """Hides MuJoCo's warnings about Gymnasium's own models, which users cannot change.

    MuJoCo prints and logs them for each environment, and every evaluation creates new ones.
    """
    if not entry_point_of(env_id).startswith("gymnasium.envs.mujoco") or find_spec("mujoco") is None:
        yield
        return
    import mujoco

    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda message: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)
