"""`compile: auto`: the choice by timed updates, which leaves the run as it is, and which resume repeats."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
import torch._inductor

from rl_training.algorithms import IQLAlgorithm, Updater
from rl_training.data import TransitionDataset
from rl_training.experiment.config.train_config import ConfigError, parse_config
from rl_training.experiment.run import resume_run, run_population, run_training
from rl_training.experiment.timing import compilation
from rl_training.experiment.timing.compilation import Timing, choose_compilation
from rl_training.experiment.timing.trial import TimedUpdates, random_rows, time_in_turns, trial_source
from rl_training.experiment.verify import compare_runs
from rl_training.runtime.callbacks.training import StopAtStep
from rl_training.types import EnvSpec

BOX = EnvSpec((3,), "box", 2, action_shape=(2,), action_low=(-1.0, -1.0), action_high=(1.0, 1.0))
SAC = {"algo": "sac", "env_id": "Pendulum-v1", "total_timesteps": 60, "eval_interval": 0, "log": [],
       "checkpoint_interval": 30,
       "algo_kwargs": {"hidden_sizes": [8], "batch_size": 4, "learning_starts": 10}}  # fmt: skip


def learner() -> IQLAlgorithm:
    torch.manual_seed(0)
    return IQLAlgorithm.build(BOX, hidden_sizes=(8,), batch_size=4)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "timings"


class FakeTrial:
    """Takes the seconds that a test sets, and compiles in `cost` seconds or with an error."""

    plain, compiled, cost = 0.001, 0.0005, 40.0
    error: Exception | None = None
    made: list[str] = []

    def __init__(self, learners: Any, source: Any, *, compile: bool = False) -> None:
        self.compile, self.learners, self.device = compile, list(learners), torch.device("cpu")
        self.made.append("compiled" if compile else "plain")

    def warm_up(self) -> float:
        if self.compile and self.error is not None:
            raise self.error
        return self.cost if self.compile else 0.0

    def seconds_per_update(self) -> float:
        return self.compiled if self.compile else self.plain

    def rewound(self) -> tuple[list[Any], str]:
        return self.learners, "updater"


@pytest.fixture
def fake(monkeypatch):
    """A class of trials in the place of the real ones, on a device where 100 s of updates are worth a try."""
    trials = type("Trials", (FakeTrial,), {"made": []})
    monkeypatch.setattr(compilation, "TimedUpdates", trials)
    monkeypatch.setattr(
        compilation, "time_in_turns", lambda trials, needed=0.0: [t.seconds_per_update() for t in trials]
    )
    monkeypatch.setattr(compilation, "MIN_SECONDS", {"cpu": 100.0})
    return trials


def chosen(updates: int, warnings: list[str] | None = None) -> compilation.Compilation:
    warn = pytest.fail if warnings is None else warnings.append
    return choose_compilation([learner()], BOX, None, updates, warn=warn)


def test_a_short_run_is_not_timed(fake):
    assert chosen(9_999) == (False, "off (9,999 updates)", None)
    assert fake.made == []


def test_a_run_whose_updates_end_soon_is_timed_but_not_compiled(fake):
    assert chosen(99_999) == (False, "off (99,999 updates of 1 ms take 100 s, compiling pays off from 100 s on)", None)
    assert fake.made == ["plain"]


def test_a_long_run_that_gains_is_compiled_with_the_code_that_was_timed(fake):
    choice = chosen(100_000)
    assert choice[:2] == (True, "on (update 1 -> 0.5 ms)")
    assert choice.trained is not None
    assert str(choice.trained[1]) == "updater"


@pytest.mark.parametrize(("compiled", "kept"), [(0.00097, False), (0.00095, True), (0.002, False)])
def test_compiled_updates_must_be_a_twentieth_faster(compiled, kept, fake):
    fake.compiled = compiled
    assert chosen(100_000).compile is kept


def test_a_learner_of_your_own_is_compiled_anew_because_it_may_have_other_state(fake, monkeypatch):
    monkeypatch.setattr(IQLAlgorithm, "is_traceable", False)
    assert chosen(100_000) == (True, "on (update 1 -> 0.5 ms)", None)


def test_a_failing_compiler_is_reported_and_the_run_goes_on_without(fake):
    fake.error, warnings = RuntimeError("g++ failed\nwith a long output"), list[str]()
    assert chosen(100_000, warnings) == (False, "off (RuntimeError: g++ failed)", None)
    (warning,) = warnings
    assert "not compiled" in warning
    assert "g++ failed)" in warning
    assert "long output" not in warning


def test_on_other_devices_nothing_is_timed(fake, monkeypatch):
    monkeypatch.setattr(compilation, "MIN_SECONDS", {"cuda": 1.0})
    assert not chosen(10_000_000).compile
    assert fake.made == []


def test_a_trial_without_gain_is_not_repeated_by_the_next_run(fake):
    fake.compiled = 0.001
    first, second = chosen(100_000), chosen(10_000_000)
    assert (first.reason, fake.made) == ("off (update 1 -> 1 ms)", ["plain", "compiled"])
    assert second.reason == "off (an update was 1.00 times as fast in an earlier run)"


@pytest.mark.parametrize(("updates", "kept"), [(60_000, True), (50_000, False)])  # the code is stored: 40 / 3 seconds
def test_the_next_run_is_compiled_if_it_saves_twice_the_time_of_loading_the_code(updates, kept, fake):
    assert chosen(100_000).compile
    assert chosen(updates).compile is kept


def test_a_damaged_timing_is_measured_again(fake, cache):
    chosen(100_000)
    (file,) = cache.iterdir()
    file.write_text("{")
    assert chosen(100_000).compile
    assert Timing(**json.loads(file.read_text())) == pytest.approx((2, 40 / 3))


def test_without_a_folder_for_compiled_code_every_run_measures(fake, monkeypatch):
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    assert chosen(100_000).compile
    assert chosen(100_000).compile


class Clock:
    def __init__(self) -> None:
        self.now, self.slow = 0.0, 1.0

    def trial(self, seconds: list[float]) -> TimedUpdates:
        """A trial whose updates have so many phases in turn and take so many seconds."""
        trial = TimedUpdates([learner()], None, clock=lambda: self.now)
        trial.updater.learner.phases = lambda update: (f"phase {update % len(seconds)}",)  # type: ignore[method-assign]

        def run(source: Any, count: int) -> None:
            self.now += self.slow * seconds[trial.updater.updates % len(seconds)]
            trial.updater.updates += 1

        trial.updater.run = run  # type: ignore[method-assign, assignment]
        return trial


def test_phases_are_weighted_by_their_frequency():
    clock = Clock()
    assert time_in_turns([clock.trial([0.001, 0.003])]) == pytest.approx([0.002], rel=0.02)


def test_timing_ends_early_if_the_updates_are_fast_enough():
    clock = Clock()
    time_in_turns([clock.trial([0.001])], needed=0.0011)
    assert clock.now == pytest.approx(0.003)


def test_other_work_slows_both_trials():
    clock = Clock()
    trials = [clock.trial([0.002]), clock.trial([0.001])]
    assert time_in_turns(trials[:1]) == pytest.approx([0.002])
    clock.slow = 2.0  # from the end of compiling on
    before, after = time_in_turns(trials)
    assert before / after == pytest.approx(2)


@pytest.mark.parametrize("members", [1, 2])
def test_a_trial_changes_neither_learners_nor_data_and_ends_where_it_began(members):
    learners = [learner() for _ in range(members)]
    dataset = TransitionDataset(random_rows(learners[0], BOX, 20), spec=BOX)
    before = [[each.clone() for each in mine.state_dict().values()] for mine in learners]
    sampling = dataset.generator.get_state()
    trial = TimedUpdates(learners, trial_source(learners, BOX, dataset))
    trial.warm_up()
    assert trial.updater.updates
    assert not torch.equal(next(trial.learners[0].parameters()), before[0][0])
    mine, updater = trial.rewound()
    for each, twin, values in zip(learners, mine, before, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(each.state_dict().values(), values, strict=True))
        assert all(torch.equal(a, b) for a, b in zip(twin.state_dict().values(), values, strict=True))
    fresh = Updater(learners).state_dict()["optimizer"]
    for name, state in updater.state_dict()["optimizer"].items():
        assert all(torch.equal(state[key], fresh[name][key]) for key in state)
    assert updater.updates == 0
    assert all(parameter.grad is None for parameter in updater.params.values())
    assert torch.equal(dataset.generator.get_state(), sampling)


@pytest.fixture
def timed(monkeypatch):
    """Times short runs too; returns a function that decides whether compiled updates win."""
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    monkeypatch.setattr(torch._inductor, "compile", lambda graph, inputs, options: graph)
    monkeypatch.setattr("rl_training.experiment.timing.choosing.has_compiler", lambda: True)
    monkeypatch.setattr("rl_training.experiment.timing.trial.TIMED_SECONDS", 0.01)
    monkeypatch.setattr("rl_training.experiment.timing.trial.WARM_UP_SECONDS", 0.0)
    monkeypatch.setattr(compilation, "MIN_UPDATES", 1)
    monkeypatch.setattr(compilation, "MIN_SECONDS", {"cpu": 0.0})
    return lambda wins: monkeypatch.setattr(compilation, "MIN_GAIN", 0.0 if wins else np.inf)


def test_compiling_without_a_compiler_is_refused_at_the_start(monkeypatch, tmp_path):
    monkeypatch.setattr("rl_training.experiment.timing.choosing.has_compiler", lambda: False)
    with pytest.raises(ConfigError, match=r"compile is on, but no C\+\+ compiler was found"):
        run_training(parse_config({**SAC, "compile": "on", "output_dir": str(tmp_path / "run")}))


@pytest.mark.parametrize("wins", [True, False])
def test_a_measured_run_equals_one_with_the_same_choice_byte_for_byte(wins, timed, tmp_path):
    timed(wins)
    for name, choice in (("measured", "auto"), ("set", "on" if wins else "off")):
        run_training(parse_config({**SAC, "compile": choice, "output_dir": str(tmp_path / name)}))
    record = json.loads((tmp_path / "measured" / "run.json").read_text())
    assert record["choices"]["compile"] is wins
    assert record["compile"].startswith("on (" if wins else "off (")
    assert "compile" not in json.loads((tmp_path / "set" / "run.json").read_text())
    assert compare_runs(tmp_path / "measured", tmp_path / "set") == []


def test_members_of_a_population_are_measured_together(timed, tmp_path):
    timed(True)
    for name, choice in (("measured", "auto"), ("set", "on")):
        runs = [
            {**SAC, "seed": seed, "compile": choice, "output_dir": str(tmp_path / f"{name}{seed}")} for seed in (0, 1)
        ]
        run_population([parse_config(each) for each in runs])
    assert compare_runs(tmp_path / "measured1", tmp_path / "set1") == []


@pytest.mark.parametrize("wins", [True, False])
def test_resume_repeats_the_choice_without_measuring(wins, timed, tmp_path, monkeypatch):
    timed(wins)
    measured, set_by_user = ({**SAC, "output_dir": str(tmp_path / name)} for name in ("measured", "set"))
    run_training(parse_config(measured), callbacks=[StopAtStep(30)])
    reason = json.loads((tmp_path / "measured" / "run.json").read_text())["compile"]
    monkeypatch.setattr("rl_training.experiment.timing.choosing.choose_compilation", None)
    resume_run(tmp_path / "measured")
    run_training(parse_config({**set_by_user, "compile": "on" if wins else "off"}))
    assert compare_runs(tmp_path / "measured", tmp_path / "set") == []
    record = json.loads((tmp_path / "measured" / "run.json").read_text())
    assert (record["compile"], record["choices"]["compile"]) == (reason, wins)


def test_without_run_json_the_checkpoint_has_the_choice(timed, tmp_path, monkeypatch):
    timed(True)
    run_training(parse_config({**SAC, "output_dir": str(tmp_path / "run")}), callbacks=[StopAtStep(30)])
    (tmp_path / "run" / "run.json").unlink()
    monkeypatch.setattr("rl_training.experiment.timing.choosing.choose_compilation", None)
    resume_run(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["choices"]["compile"]
