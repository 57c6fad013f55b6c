"""Warnings in the log of a command."""

from __future__ import annotations

from rl_training.experiment.executors.job_log import JobLog, WarnOnce
from rl_training.experiment.result import finished_earlier


def test_new_complete_lines_are_read_up_to_an_error(tmp_path):
    file = tmp_path / "log.txt"
    log = JobLog(file)
    assert log.warnings() == []
    file.write_text("first\n\nsec")
    assert log.warnings() == ["first"]
    file.write_text("first\n\nsecond\nerror: wrong\n")
    assert log.warnings() == ["second"]
    with file.open("a") as more:
        more.write("the rest of the error\n")
    assert log.warnings() == []


def test_earlier_lines_and_progress_are_skipped(tmp_path):
    file = tmp_path / "log.txt"
    file.write_text("error: of an earlier attempt\n")
    log = JobLog(file, skip=True)
    with file.open("a") as more:
        more.write(f"{finished_earlier(1)}\n{finished_earlier(3)}\nnew\nTraceback (most recent call last):\n  line\n")
    assert log.warnings() == ["new"]


def test_a_warning_is_printed_once(capsys):
    warn = WarnOnce()
    warn("a", ["same", "one"])
    warn("b", ["same", "two"])
    assert capsys.readouterr().err == "a: same\na: one\nb: two\n"
