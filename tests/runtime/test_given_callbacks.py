"""Callbacks that are passed to the training: which are refused, and how an error in one is reported."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rl_training import DQN, Callback, resume_training
from rl_training.envs.pools.group import EnvError
from rl_training.experiment import training_run
from rl_training.experiment.config.messages import ConfigError
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.run import run_population
from rl_training.experiment.run_directory import RunDirectory
from rl_training.experiment.user_errors import USER_ERRORS
from rl_training.runtime.engine import CallbackError

OPTIONS: dict[str, Any] = {
    "total_timesteps": 8,
    "hidden_sizes": [4],
    "learning_starts": 4,
    "batch_size": 4,
    "eval_interval": 0,
}


class Own(Exception):
    """Not one of Python's exceptions."""


class Fails(Callback):
    name = "fails"  # its state is saved

    def __init__(self, method: str, error: BaseException | None = None) -> None:
        self.error = error
        setattr(self, method, self.fail)

    def fail(self, *arguments: Any) -> None:
        if self.error is not None:
            raise self.error
        _ = 1.0 >= "best"  # type: ignore[operator]  # <- the line


class Saved(Callback):
    name = "fails"


class Steps(Callback):
    def _on_step(self) -> bool:
        return True


LINE = next(number for number, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "# <- the line" in text)


def learn(directory: Path, callbacks: Any) -> Any:
    return DQN("CartPole-v1", output_dir=str(directory), **OPTIONS).learn(callbacks=callbacks)


EVENTS = ["on_train_start", "on_collect_end", "on_update_end", "on_step_end", "on_train_end"]


@pytest.mark.parametrize("method", [*EVENTS, "next_due", "state_dict"])
def test_an_error_in_a_callback_names_it_and_the_line(tmp_path: Path, method: str):
    with pytest.raises(CallbackError) as raised:
        learn(tmp_path, [Fails(method)])
    sentence = (
        f"callback Fails failed in {method}: TypeError: '>=' not supported between instances of 'float' and 'str'"
    )
    assert re.fullmatch(rf"{re.escape(sentence)} \(\S*test_given_callbacks.py:{LINE}\)", str(raised.value))
    assert not isinstance(raised.value, USER_ERRORS)
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["status"], result["stop_reason"]) == ("failed", str(raised.value))


def test_a_next_step_that_is_no_number_names_the_callback(tmp_path: Path):
    class Words(Callback):
        def next_due(self, state: Any) -> Any:
            return "ten"

    with pytest.raises(CallbackError, match="callback Words must return a step or None in next_due, got 'ten'"):
        learn(tmp_path, [Words()])


def test_an_error_on_resume_names_the_callback(tmp_path: Path):
    learn(tmp_path, [Saved()])
    with pytest.raises(CallbackError, match=r"callback Fails failed in load_state_dict: TypeError: .* not supported"):
        resume_training(tmp_path, total_timesteps=12, callbacks=[Fails("load_state_dict")])


def test_an_error_in_a_callback_of_a_population_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(training_run, "callbacks_of", lambda config: [Fails("next_due")])
    values = {"algo": "dqn", "env_id": "CartPole-v1", "total_timesteps": 8, "eval_interval": 0}
    configs = [parse_config({**values, "seed": seed, "output_dir": str(tmp_path / str(seed))}) for seed in (0, 1)]
    with pytest.raises(CallbackError, match="callback Fails failed in next_due: TypeError"):
        run_population(configs)
    results = [json.loads((tmp_path / str(seed) / "result.json").read_text()) for seed in (0, 1)]
    assert [each["status"] for each in results] == ["failed", "failed"]


@pytest.mark.parametrize("error", [EnvError("x"), ConfigError("x"), Own("x"), KeyboardInterrupt("x")])
def test_other_errors_pass_unchanged(tmp_path: Path, error: BaseException):
    with pytest.raises(type(error)) as raised:
        learn(tmp_path, [Fails("on_step_end", error)])
    assert raised.value is error
    stopped_at_once = isinstance(error, KeyboardInterrupt)
    assert (tmp_path / "result.json").exists() is not stopped_at_once


def test_a_failed_run_is_continued_by_the_same_command(tmp_path: Path):
    with pytest.raises(Own):
        learn(tmp_path, [Fails("on_train_end", Own("no space for the picture"))])
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["status"] == "failed"
    assert result["stop_reason"].startswith("Own: no space for the picture in ")
    assert result["steps"] == 8
    agent = learn(tmp_path, [])
    assert (agent.result.status, agent.result.steps) == ("finished", 8)


def test_an_error_is_raised_also_if_the_result_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: Any) -> None:
        raise OSError("no space left on device")

    class FillsDisk(Callback):
        def on_step_end(self, state: Any) -> None:
            monkeypatch.setattr(RunDirectory, "write", full)
            raise Own("first")

    with pytest.raises(Own, match="first"):
        learn(tmp_path, [FillsDisk()])


def test_a_single_callback_needs_no_list(tmp_path: Path):
    ends: list[int] = []

    class Ends(Callback):
        def on_train_end(self, state: Any) -> None:
            ends.append(state.global_step)

    learn(tmp_path, Ends())
    assert ends == [8]


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        (Steps, r"callbacks: Steps is a class; pass an object: callbacks=\[Steps\(…\)\]"),
        ([Steps], "callbacks: Steps is a class; pass an object"),
        (lambda state: True, "callbacks must be objects of a subclass of rl_training.Callback, got <function"),
        ([3], "callbacks must be objects of a subclass of rl_training.Callback, got 3"),
        ("module:Name", "got 'module:Name'; a name belongs in the key `callbacks` of the config"),
        ([Steps()], r"callbacks: Steps has only _on_step, a method of Stable-Baselines3 .* define on_step_end"),
    ],
)
def test_what_is_no_callback_is_refused_before_the_run_starts(tmp_path: Path, callbacks: Any, message: str):
    with pytest.raises(TypeError, match=message):
        learn(tmp_path / "run", callbacks)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("callbacks", [Callback(), [Callback()], Callback])
def test_the_constructor_points_to_learn(callbacks: Any):
    with pytest.raises(ConfigError, match=r"pass objects to learn\(callbacks=\[…\]\)"):
        DQN("CartPole-v1", callbacks=callbacks, **OPTIONS)
