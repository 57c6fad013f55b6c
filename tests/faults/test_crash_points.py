"""A crash at any file operation loses nothing: the run resumes and ends byte for byte like an uninterrupted one."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from rl_training.experiment.config.train_config import ConfigError, parse_config
from rl_training.experiment.run import run_population, run_training
from rl_training.experiment.run_directory import RunDirectory
from rl_training.experiment.starts import UnusableRunError
from rl_training.experiment.verify import compare_runs
from rl_training.runtime.callbacks.logging import MetricsFile
from rl_training.runtime.callbacks.training import StopAtStep
from rl_training.runtime.checkpoints import replay_segments
from rl_training.runtime.checkpoints.reading import list_checkpoints

SMALL: dict[str, Any] = {"hidden_sizes": [8], "batch_size": 8}
COMMON: dict[str, Any] = {"total_timesteps": 24, "checkpoint_interval": 8, "eval_interval": 16, "eval_episodes": 1,
                          "keep_checkpoints": 2}  # fmt: skip
RUNS: dict[str, dict[str, Any]] = {
    "dqn": {"algo": "dqn", "env_id": "CartPole-v1",
            "algo_kwargs": {**SMALL, "learning_starts": 8, "buffer_size": 15}},
    "bc": {"algo": "bc", "env_id": "Pendulum-v1", "dataset": {"kind": "random", "rows": 60}, "algo_kwargs": SMALL},
    "sac": {"algo": "sac", "env_id": "Pendulum-v1",
            "algo_kwargs": {**SMALL, "learning_starts": 8, "buffer_size": 15}},
    "ppo": {"algo": "ppo", "env_id": "CartPole-v1", "algo_kwargs": {**SMALL, "num_steps": 8}},
}  # fmt: skip


@pytest.fixture(autouse=True)
def _small_and_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_segments, "SEGMENT_ROWS", 5)


def config(name: str, path: Path, **changes: Any) -> Any:
    return parse_config({**COMMON, **RUNS[name], "output_dir": str(path), **changes})


def moments(every: int) -> Iterator[int]:
    return count(0, every)


def assert_equal(run: Path, whole: Path) -> None:
    assert compare_runs(run, whole) == []
    kept, expected = ({path.name for path in list_checkpoints(each / "checkpoints")} for each in (run, whole))
    assert expected <= kept  # a crash after the last checkpoint may leave an older one


def crash_everywhere(crashes: Any, folder: Path, name: str, *, every: int, power_loss: bool) -> int:
    """Crashes a run at every n-th operation: its first checkpoint, later ones, pruning, and the end."""
    run_training(config(name, folder / "whole"))
    for moment in moments(every):
        run = folder / "run"
        if not crashes(partial(run_training, config(name, run)), moment, power_loss=power_loss):
            assert_equal(run, folder / "whole")
            return moment
        assert run_training(config(name, run)).status == "finished"
        assert_equal(run, folder / "whole")
        shutil.rmtree(run)
    raise AssertionError


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_run_that_crashes_resumes_to_the_same_bytes(crashes: Any, tmp_path: Path, power_loss: bool) -> None:
    assert crash_everywhere(crashes, tmp_path, "dqn", every=13 if power_loss else 11, power_loss=power_loss) > 50


@pytest.mark.soak
@pytest.mark.parametrize("power_loss", [False, True])
@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_crashes_anywhere_resumes_to_the_same_bytes(
    crashes: Any, tmp_path: Path, name: str, power_loss: bool
) -> None:
    assert crash_everywhere(crashes, tmp_path, name, every=1, power_loss=power_loss) > 50


def resume_everywhere(crashes: Any, folder: Path, *, every: int) -> int:
    """Crashes a resume: the log cut, run.json, and a checkpoint that replaces one of the same step."""
    run_training(config("dqn", folder / "whole"))
    stopped = folder / "stopped"
    run_training(config("dqn", stopped), callbacks=[StopAtStep(8)])
    with MetricsFile(stopped / "metrics.jsonl", keep_until=8)._file as log:
        log.write('{"step": 9}\n{"step": 10, "los')
    (stopped / "result.json").unlink()
    for moment in moments(every):
        run = folder / "run"
        shutil.copytree(stopped, run)
        crashed = crashes(partial(run_training, config("dqn", run)), moment)
        run_training(config("dqn", run))
        assert_equal(run, folder / "whole")
        shutil.rmtree(run)
        if not crashed:
            return moment
    raise AssertionError


def test_a_resume_that_crashes_can_be_repeated(crashes: Any, tmp_path: Path) -> None:
    assert resume_everywhere(crashes, tmp_path, every=9) > 20


@pytest.mark.soak
def test_a_resume_that_crashes_anywhere_can_be_repeated(crashes: Any, tmp_path: Path) -> None:
    assert resume_everywhere(crashes, tmp_path, every=1) > 20


@pytest.mark.soak
def test_a_population_that_crashes_anywhere_resumes_to_the_same_bytes(crashes: Any, tmp_path: Path) -> None:
    def seeds(name: str) -> list[Any]:
        return [config("bc", tmp_path / name / str(seed), seed=seed, keep_checkpoints=1) for seed in (0, 1)]

    run_population(seeds("whole"))
    for moment in moments(1):
        crashed = crashes(partial(run_population, seeds("run")), moment)
        run_population(seeds("run"))
        for seed in "01":
            assert compare_runs(tmp_path / "run" / seed, tmp_path / "whole" / seed) == []
        shutil.rmtree(tmp_path / "run")
        if not crashed:
            break


@pytest.mark.parametrize("power_loss", [False, True])
def test_cutting_the_log_leaves_the_old_rows_or_the_new_ones(crashes: Any, tmp_path: Path, power_loss: bool) -> None:
    log = tmp_path / "metrics.jsonl"
    rows = "".join(f'{{"step": {step}}}\n' for step in range(1, 6))
    for moment in moments(1):
        log.write_text(rows + '{"st')
        crashed = crashes(lambda: MetricsFile(log, keep_until=3), moment, power_loss=power_loss)
        assert log.read_text() in (rows + '{"st', "".join(rows.splitlines(keepends=True)[:3]))
        MetricsFile(log, keep_until=3).close()
        assert log.read_text() == "".join(rows.splitlines(keepends=True)[:3])
        if not crashed:
            break
    assert moment > 3


def test_fresh_can_be_repeated_after_a_crash_anywhere(crashes: Any, tmp_path: Path) -> None:
    run, done, other = tmp_path / "run", tmp_path / "done", config("bc", tmp_path / "run", seed=5)
    run_training(config("bc", done))
    (done / "notes.txt").write_text("my own file")
    (done / "metrics.jsonl.before-step-8").write_text("")
    (done / "tensorboard").mkdir()
    directory = RunDirectory(run)
    for moment in moments(1):
        shutil.copytree(done, run)
        crashed = crashes(partial(directory.begin, other, fresh=True), moment)
        with directory.locked():
            directory.check(other, fresh=True)
            directory.begin(other, fresh=True)
        assert sorted(os.listdir(run)) == [".lock", "config.yaml", "notes.txt"]
        stored = directory.config()
        assert stored is not None
        assert stored.seed == 5
        shutil.rmtree(run)
        if not crashed:
            break
    assert moment > 20


def test_a_run_whose_fresh_start_crashed_is_never_taken_for_a_finished_one(crashes: Any, tmp_path: Path) -> None:
    run, done = tmp_path / "run", tmp_path / "done"
    result = run_training(config("bc", done))
    for moment in (2, 4, 6, 8):
        shutil.copytree(done, run)
        assert crashes(partial(RunDirectory(run).begin, config("bc", run), fresh=True), moment)
        with suppress(UnusableRunError):  # "… is missing now; …, or start over with --fresh"
            assert run_training(config("bc", run)).steps == result.steps
            assert compare_runs(run, done) == []
        shutil.rmtree(run)


@pytest.mark.parametrize("name", ["checkpoints", "metrics.jsonl", "config.yaml", "tensorboard", "broken"])
def test_fresh_refuses_a_link_before_anything_is_deleted(tmp_path: Path, name: str) -> None:
    broken, name = name == "broken", "checkpoints" if name == "broken" else name
    run, target = tmp_path / "run", tmp_path / "elsewhere"
    run_training(config("bc", run))
    (run / "tensorboard").mkdir()
    os.replace(run / name, target)
    (run / name).symlink_to(tmp_path / "nowhere" if broken else target)
    before = {path.name: os.stat(path, follow_symlinks=False).st_mtime_ns for path in run.iterdir()}
    with pytest.raises(ConfigError) as refused:
        run_training(config("bc", run), fresh=True)
    assert str(refused.value) == (
        f"{run / name} is a link or a mount point, and --fresh (fresh=True in Python) deletes nothing outside the run "
        f"directory; remove {name} yourself, or choose another --output (output_dir in Python)"
    )
    after = {path.name: os.stat(path, follow_symlinks=False).st_mtime_ns for path in run.iterdir()}
    assert {**after, ".lock": 0} == {**before, ".lock": 0}
    assert target.exists()


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def test_a_fallback_keeps_what_is_damaged_and_the_old_log(tmp_path: Path) -> None:
    run, said = tmp_path / "run", list[str]()
    run_training(config("dqn", tmp_path / "whole"))
    run_training(config("dqn", run), callbacks=[StopAtStep(16)])
    newest = list_checkpoints(run / "checkpoints")[-1]
    segment = sorted(newest.glob("replay-*"))[0]
    flip(segment)
    log = (run / "metrics.jsonl").read_bytes()
    run_training(config("dqn", run), warn=said.append)
    assert said[0] == (
        f"checkpoint {newest} is damaged: {segment.name} does not match its checksum; it is now "
        "step_000000016.unusable, training resumes from step_000000008, and the log so far is kept as "
        "metrics.jsonl.before-step-8"
    )
    assert (run / "metrics.jsonl.before-step-8").read_bytes() == log
    assert (run / "checkpoints" / "step_000000016.unusable" / segment.name).exists()
    assert_equal(run, tmp_path / "whole")


def test_a_second_fallback_to_the_same_step_overwrites_nothing(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for number in ("", "-2"):
        run_training(config("bc", run), callbacks=[StopAtStep(16)])
        with (run / "metrics.jsonl").open("a") as log:
            log.write(json.dumps({"step": 16, "attempt": number}) + "\n")
        flip(run / "checkpoints" / "step_000000016" / "learner.safetensors")
        run_training(config("bc", run), callbacks=[StopAtStep(9)])
        shutil.rmtree(run / "checkpoints" / "step_000000009")
        assert json.dumps({"step": 16, "attempt": number}) in (run / f"metrics.jsonl.before-step-8{number}").read_text()
        assert (run / "checkpoints" / f"step_000000016.unusable{number}").is_dir()


def test_damaged_rows_of_the_log_are_reported_and_kept(tmp_path: Path) -> None:
    run, said = tmp_path / "run", list[str]()
    run_training(config("bc", run), callbacks=[StopAtStep(8)])
    log = run / "metrics.jsonl"
    damaged = log.read_bytes().replace(b'"step"', b'"st\xffp"', 1)
    log.write_bytes(damaged)
    run_training(config("bc", run), warn=said.append)
    kept = run / "metrics.jsonl.before-step-8"
    assert said[0] == f"damaged rows in {log}: 1; they are removed, and {kept} keeps them"
    assert kept.read_bytes() == damaged
