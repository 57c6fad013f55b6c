"""Callbacks that end the training: with `sys.exit`, and with `request_stop` and its reason."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from rl_training import DQN, Callback
from rl_training.runtime.engine import CallbackError

OPTIONS: dict[str, Any] = {"total_timesteps": 8, "hidden_sizes": [4], "learning_starts": 4, "batch_size": 4,
                           "eval_interval": 0, "checkpoint_interval": 4}  # fmt: skip


class AtStep(Callback):
    """Calls a function at the sixth step."""

    interval = 6

    def __init__(self, act: Any) -> None:
        self.act = act

    def on_step_end(self, state: Any) -> None:
        if state.global_step == 6:
            self.act(state)


def learn(directory: Path, act: Any = None) -> Any:
    callbacks = [] if act is None else [AtStep(act)]
    return DQN("CartPole-v1", output_dir=str(directory), **OPTIONS).learn(callbacks=callbacks)


@pytest.mark.parametrize(("code", "shown"), [(3, "3"), (None, ""), ("text", "'text'"), (0, "0")])
def test_sys_exit_fails_the_run_with_a_result_and_the_same_command_continues_it(tmp_path, code, shown):
    with pytest.raises(CallbackError) as raised:
        learn(tmp_path, lambda state: sys.exit(code))
    assert str(raised.value).startswith(f"callback AtStep called sys.exit({shown}) in on_step_end (")
    assert str(raised.value).endswith("to end the training, call state.request_stop(reason)")
    assert f"{Path(__file__).name}:" in str(raised.value)
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["status"], result["stop_reason"]) == ("failed", str(raised.value))
    assert learn(tmp_path).result.steps == 8


def test_another_exception_that_is_no_error_names_the_callback(tmp_path):
    def leave(state: Any) -> None:
        raise GeneratorExit

    with pytest.raises(CallbackError, match="callback AtStep failed in on_step_end: GeneratorExit"):
        learn(tmp_path, leave)
    assert json.loads((tmp_path / "result.json").read_text())["status"] == "failed"


@pytest.mark.parametrize("reason", [None, 5, "", " "])
def test_a_stop_needs_a_reason(tmp_path, reason):
    with pytest.raises(CallbackError, match=f"request_stop needs a reason in words, .* got {reason!r}"):
        learn(tmp_path, lambda state: state.request_stop(reason))


def test_the_reason_is_in_the_result(tmp_path):
    assert learn(tmp_path, lambda state: state.request_stop("enough")).result.stop_reason == "enough"
