"""A callback that records each start of a training in the folder $STARTS, and slows it down enough to be killed."""

import os
import sys
import time
from pathlib import Path
from typing import Any

from rl_training import Callback


class Counted(Callback):
    def on_train_start(self, state: Any) -> None:
        cell = Path(sys.argv[sys.argv.index("--output") + 1]).name
        with (Path(os.environ["STARTS"]) / cell).open("a") as file:
            file.write(f"{state.global_step}\n")

    def on_step_end(self, state: Any) -> None:
        time.sleep(0.005)
