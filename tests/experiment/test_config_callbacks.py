"""Callbacks that a config names."""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from rl_training import Callback, resume_training
from rl_training.experiment.config.messages import ConfigError
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.run import run_population, run_training
from rl_training.reporting.comparison import compare
from rl_training.runtime.engine import CallbackError

SOURCE = """
from rl_training import Callback

class Counts(Callback):
    name = "counts"
    made = []

    def __init__(self, limit=0, status="stopped"):
        self.limit, self.steps, self.seen, self.status = limit, 0, [], status
        Counts.made.append(self)

    def on_train_start(self, state):
        self.seen.append(("start", state.global_step, state.updates, state.total_timesteps))

    def on_step_end(self, state):
        self.steps += 1
        if self.limit and self.steps >= self.limit:
            state.request_stop("counted enough", status=self.status)

    def on_train_end(self, state):
        self.seen.append((state.status, state.stop_reason, state.metrics.keys() >= {"loss"}, state.progress))

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]

class Twin(Counts):
    pass

class LoggedName(Callback):
    name = "log"

class Nameless(Counts):
    name = ""

class Network:
    def __init__(self, size):
        pass

class Steps(Callback):
    def _on_step(self):
        return True

def not_a_callback():
    return 3

number = 3
"""
NUMBERS = count()


@pytest.fixture
def module(tmp_path, monkeypatch) -> str:
    """A module in the current folder, with a name of its own, because modules are imported once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    name = f"my_callbacks_{next(NUMBERS)}"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    return name


def config(**changes: Any) -> Any:
    options = {"hidden_sizes": [4], "learning_starts": 20, "batch_size": 8}
    run = {"algo": "dqn", "env_id": "CartPole-v1", "total_timesteps": 60, "output_dir": "run", "eval_interval": 0,
           "log_interval": 30, "algo_kwargs": options}  # fmt: skip
    return {**run, **changes}


def made(module: str) -> list[Any]:
    import importlib

    found: list[Any] = importlib.import_module(module).Counts.made
    return found


def test_a_named_callback_reads_the_state_and_is_restored_by_a_resume(module):
    assert run_training(parse_config(config(callbacks=[f"{module}:Counts"]))).status == "finished"
    (first,) = made(module)
    assert first.seen == [("start", 0, 0, 60), ("finished", None, True, 1.0)]
    resume_training("run", total_timesteps=80)
    assert [each.steps for each in made(module)] == [60, 80]


def test_options_of_a_callback_are_passed_on(module):
    result = run_training(parse_config(config(callbacks=[{"callback": f"{module}:Counts", "limit": 7}])))
    assert (result.status, result.stop_reason, result.steps) == ("stopped", "counted enough", 7)


def test_a_callback_may_end_a_run_for_good(module):
    stops = {"callback": f"{module}:Counts", "limit": 30, "status": "early_stop"}
    values = parse_config(config(callbacks=[stops], eval_interval=30, eval_episodes=1))
    first, again = run_training(values), run_training(values)
    assert [(each.status, each.stop_reason, each.steps) for each in (first, again)] == [
        ("early_stop", "counted enough", 30)
    ] * 2
    assert not again.trained
    assert compare("run").groups[0].seeds == [0]
    with pytest.raises(CallbackError, match="status of request_stop must be one of stopped, early_stop, finished, got"):
        run_training(parse_config(config(callbacks=[{**stops, "status": "solved"}], output_dir="other")))


def test_every_member_of_a_population_has_its_own_callbacks(module):
    configs = [config(callbacks=f"{module}:Counts", seed=seed, output_dir=f"run-{seed}") for seed in (0, 1)]
    run_population([parse_config(each) for each in configs])
    assert [each.steps for each in made(module)] == [60, 60]


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("{module}:Missing", "callbacks '{module}:Missing' not found: {module} has no Missing"),
        ("{module}:number", "callbacks: {module}:number must be a subclass of rl_training.Callback, got 3"),
        ("{module}:not_a_callback", "must be a subclass of rl_training.Callback, got int"),
        ("{module}:Network", "callbacks: {module}:Network must be a subclass of rl_training.Callback, got <class"),
        ("{module}:Steps", "callbacks: {module}:Steps has only _on_step, a method of Stable-Baselines3 .* on_step_end"),
        ({"callback": "{module}:Counts", "most": 3}, "could not be created: TypeError: .*unexpected keyword .*'most'$"),
        ({"callback": "{module}:Counts", "limt": 3}, r"could not be created: .*'limt'; did you mean 'limit'\?$"),
        ("{module}:LoggedName", "2 callbacks have the name 'log', under which their state is saved; rename one"),
        ("{module}:Nameless", "callback Nameless has a state_dict, which is saved under its name; give"),
        ("no_such_module_here:A", "there is no module 'no_such_module_here'"),
        ("Counts", "must be module:Name"),
    ],
)
def test_a_wrong_callback_is_refused_before_the_run_starts(module, named, message, tmp_path):
    if isinstance(named, dict):
        named = {key: each.format(module=module) if key == "callback" else each for key, each in named.items()}
    else:
        named = named.format(module=module)
    with pytest.raises((ConfigError, ValueError), match=message.format(module=module)):
        run_training(parse_config(config(callbacks=[named])))
    assert not (tmp_path / "run").exists()


def test_two_callbacks_of_one_name_are_refused(module):
    with pytest.raises(ConfigError, match="2 callbacks have the name 'counts'"):
        run_training(parse_config(config(callbacks=[f"{module}:Counts", f"{module}:Twin"])))


def test_the_documented_attributes_of_the_state_can_be_read_at_any_time(module):
    page = (Path(__file__).resolve().parents[2] / "docs" / "guide" / "callbacks.md").read_text()
    table = page.split("| `state` | meaning |")[1].split("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.count("|") > 1]
    names = list(dict.fromkeys(name for cell in cells for name in re.findall(r"`(\w+)", cell)))
    assert {"global_step", "evaluation", "status", "passed", "request_stop"} <= {*names}
    seen: list[str] = []

    class Reads(Callback):
        def on_train_start(self, state):
            seen.extend(name for name in names if hasattr(state, name))

        def on_collect_end(self, state, result):
            assert all(hasattr(state, name) for name in names)
            assert isinstance(result.episodes, list)

        def on_update_end(self, state, result):
            assert all(hasattr(state, name) for name in names)
            assert result.num_gradient_steps > 0

    run_training(parse_config(config()), callbacks=[Reads()])
    assert seen == names
