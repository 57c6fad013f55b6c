"""The study in its journal: suggestions, pruning, and a kill at any moment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("optuna")

from rl_training.experiment.config.messages import ConfigError
from rl_training.experiment.tuning.space import parse_search
from rl_training.experiment.tuning.study import JOURNAL, Study

SPACE = parse_search(["rate=1e-5:1e-2:log", "size=64,128", "widths=[8],[16,16]"])
STEPS = 40


def run_trials(directory: Path, count: int, *, reopened_at: tuple[int, ...] = (), sampler: str = "tpe") -> Study:
    """Trials whose score is their rate; trial 3 fails."""
    study = Study(directory, SPACE, sampler=sampler)
    for number in range(len(study.trials()), count):
        if number in reopened_at:
            study = Study(directory, SPACE, sampler=sampler)
        rate = study.create(number).params["rate"]
        for evaluation in range(1, 5):
            study.report(number, 10 * evaluation, rate * evaluation)
            if evaluation < 4 and study.should_prune(number, STEPS):
                study.prune(number)
                break
        else:
            if number == 3:
                study.fail(number, "it diverged")
            else:
                study.complete(number, 4 * rate)
    return study


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_study_that_is_opened_again_suggests_the_same_values(tmp_path, sampler):
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    whole = run_trials(tmp_path / "whole", 16, sampler=sampler).trials()
    parts = run_trials(tmp_path / "parts", 16, reopened_at=(1, 5, 12), sampler=sampler).trials()
    assert whole == parts
    assert [trial.number for trial in parts] == list(range(16))
    assert len({trial.params["rate"] for trial in parts}) == 16


def test_the_states_values_and_errors_of_trials_are_kept(tmp_path):
    run_trials(tmp_path, 16)
    trials = Study(tmp_path, SPACE).trials()
    assert {trial.state for trial in trials} == {"done", "pruned", "failed"}
    assert (trials[3].state, trials[3].value, trials[3].error) == ("failed", None, "it diverged")
    pruned = next(trial for trial in trials if trial.state == "pruned")
    assert pruned.value == pruned.evaluations[max(pruned.evaluations)]


def test_the_sampler_finds_higher_scores(tmp_path):
    study = run_trials(tmp_path, 30)
    rates = [trial.params["rate"] for trial in study.trials()]
    assert sorted(rates[20:])[5] > sorted(rates[:10])[5]  # the random ones come first
    assert study.importance()["rate"] > 0.5


def test_the_best_trial_is_the_highest_of_those_trained_to_the_end(tmp_path):
    study = Study(tmp_path, SPACE)
    for number in range(3):
        study.create(number)
    study.complete(0, 10.0)
    study.report(1, 10, 99.0)
    study.prune(1)
    study.complete(2, 5.0)
    best = study.best()
    assert best is not None
    assert (best.number, best.value) == (0, 10.0)


def test_low_trials_are_pruned_after_a_quarter_of_the_run_and_five_full_trials(tmp_path):
    study = Study(tmp_path, SPACE)
    for number in range(6):
        study.create(number)
        study.report(number, 5, float(number))
        study.report(number, 20, float(number))
        assert not study.should_prune(number, STEPS) or number == 5
        study.complete(number, 10.0 + number)
    study.create(6)
    study.report(6, 5, -1.0)
    assert not study.should_prune(6, STEPS)  # too early in the run
    study.report(6, 20, 1.0)
    assert study.should_prune(6, STEPS)
    study.create(7)
    study.report(7, 20, 4.0)
    assert not study.should_prune(7, STEPS)


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_no_config_is_tried_twice_in_a_small_space(tmp_path, sampler):
    space = parse_search(["size=64,128,256", "flag=true,false", "rate=0:0.4:0.2"])
    study = Study(tmp_path, space, sampler=sampler)
    for number in range(18):
        study.create(number)
        study.complete(number, 0.0)
    assert len({tuple(trial.params.values()) for trial in study.trials()}) == 18


def test_another_seed_of_the_sampler_suggests_other_values(tmp_path):
    (tmp_path / "other").mkdir()
    first, other = Study(tmp_path, SPACE), Study(tmp_path / "other", SPACE, seed=1)
    assert first.create(0).params != other.create(0).params


def test_the_journal_continues_after_a_line_that_was_cut_off(tmp_path):
    before = run_trials(tmp_path, 5).trials()
    journal = tmp_path / JOURNAL
    with journal.open("ab") as file:
        file.write(b'{"op_code": 4, "worker')
    study = Study(tmp_path, SPACE)
    assert study.trials() == before
    study.create(5)
    assert len(Study(tmp_path, SPACE).trials()) == 6


def test_no_lock_is_left_after_a_kill(tmp_path):
    code = f"""
import os, signal
from pathlib import Path
from rl_training.experiment.tuning import study as module
from rl_training.experiment.tuning.space import parse_search
directory = Path({str(tmp_path)!r})
study = module.Study(directory, parse_search(["rate=0:1"]))
study.create(0)
os.fsync = lambda file: os.kill(os.getpid(), signal.SIGKILL)  # in the middle of the next write
study.create(1)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == -9
    study = Study(tmp_path, parse_search(["rate=0:1"]))  # Optuna's own lock would wait for half a minute
    assert [trial.state for trial in study.trials()] == ["running", "running"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [JOURNAL]


def test_a_damaged_journal_is_reported(tmp_path):
    (tmp_path / JOURNAL).write_text("nonsense\nmore\n")
    with pytest.raises(ConfigError, match=f"{JOURNAL} is damaged"):
        Study(tmp_path, SPACE)


def test_importance_needs_a_few_scores_that_differ(tmp_path):
    study = Study(tmp_path, SPACE)
    for number in range(5):
        study.create(number)
        study.complete(number, 1.0)
    assert study.importance() == {}
