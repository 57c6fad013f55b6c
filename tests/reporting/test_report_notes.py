"""Notes of a report about runs that are hard to compare."""

from __future__ import annotations

import json

from rl_training.reporting.report.gathering import gather


def set_steps(run, steps, **changes):
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps({**result, "steps": steps, **changes}))


def test_seeds_of_unequal_lengths_are_reported(tmp_path, write_run):
    runs = [write_run(tmp_path / f"seed_{seed}", 5, 10, seed=seed) for seed in range(3)]
    assert gather([str(tmp_path)]).notes == []
    set_steps(runs[1], 600, status="early_stop")
    assert gather([str(tmp_path)]).notes == ["X-v1: the runs took unequal steps (sac 100 to 600)"]
    set_steps(runs[1], "many")
    assert gather([str(tmp_path)]).notes == []


def test_a_run_that_still_trains_is_not_called_shorter(tmp_path, write_run):
    write_run(tmp_path / "seed_0", 5, 10)
    set_steps(write_run(tmp_path / "seed_1", 5, 10, seed=1), 10, status="stopped")
    assert gather([str(tmp_path)]).notes == []
