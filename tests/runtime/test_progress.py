"""Lines of progress where the output is no terminal, such as the log file of a job."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from rl_training.runtime.callbacks.progress import ShowProgress


def shown(*steps: int, start: int = 0, seconds: float = 10.0) -> str:
    output, now = io.StringIO(), [100.0]
    progress = ShowProgress(Console(file=output))
    state = SimpleNamespace(global_step=start, total_timesteps=1_000_000, metrics={"episode_return": 1558.79})
    state.evaluation = {"return_mean": 1781.04}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.monotonic", lambda: now[0])
        progress.on_train_start(state)
        for step in steps:
            now[0], state.global_step = now[0] + seconds, step
            progress.on_step_end(state)
    return output.getvalue().splitlines(keepends=True)[-1]


def test_a_line_has_step_rate_returns_and_time_and_stays_one_line():
    line = "step 139,264 of 1,000,000  13,926/s  return 1559  evaluation 1781  about 62 s left\n"
    assert shown(139_264) == line


def test_a_last_rollout_beyond_the_total_leaves_no_time():
    assert shown(1_001_472, start=900_000).endswith("about 0 s left\n")


def test_before_the_first_step_the_time_left_is_unknown():
    assert shown(0) == "step 0 of 1,000,000  0/s  return 1559  evaluation 1781\n"


@pytest.mark.parametrize(("step", "left"), [(50_000, "3 min"), (5_000, "33 min"), (1_000, "2.8 h")])
def test_longer_times_are_minutes_and_hours(step, left):
    assert shown(step).endswith(f"about {left} left\n")


def test_the_rate_is_that_of_the_later_half():
    assert "  13,000/s  " in shown(130_000)
    assert "  1,000/s  " in shown(130_000, 140_000)
    assert "  1,500/s  " in shown(130_000, 140_000, 160_000)
    assert shown(130_000, 140_000, 160_000, 200_000).endswith("  about 4 min left\n")


def test_a_long_run_keeps_few_marks():
    progress, now = ShowProgress(Console(file=io.StringIO())), [100.0]
    state = SimpleNamespace(global_step=0, total_timesteps=1_000_000, metrics={}, evaluation=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.monotonic", lambda: now[0])
        progress.on_train_start(state)
        for _ in range(10_000):
            now[0], state.global_step = now[0] + 10, state.global_step + 50
            progress.on_step_end(state)
        assert progress.rate(state) == pytest.approx(5)
    assert len(progress._marks) < 100
