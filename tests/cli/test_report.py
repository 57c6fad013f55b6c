"""The command `report`: what it writes and prints, mistakes in its options, and `--every`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from importlib.util import find_spec

import pytest

from rl_training.reporting.report.scripts import MISSING

pytest.importorskip("bokeh")


def test_endless_megabytes_are_refused(cli, tmp_path):
    result = cli("report", tmp_path, "--media-mb", "inf")
    assert (result.exit_code, result.stderr) == (2, "error: --media-mb must be a number of megabytes, got inf\n")


def test_the_command_reports_what_it_wrote(cli, runs, tmp_path):
    done = cli("report", runs, "--out", tmp_path / "r.html", "--json")
    assert done.exit_code == 0, done.stderr
    written = json.loads(done.stdout)
    assert {key: written[key] for key in ("path", "runs", "groups")} == {
        "path": str(tmp_path / "r.html"),
        "runs": 6,
        "groups": 2,
    }
    assert written["bytes"] == (tmp_path / "r.html").stat().st_size < 3e6
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.html", "runs"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent"], "absent does not exist"),
        (["'absent*'"], "absent*' does not exist|nothing matches"),
        ([".", "--out", "page.pdf"], "--out must end in .html, got page.pdf"),
        ([".", "--out", "no/page.html"], "directory no does not exist"),
        ([".", "--every", "0"], "greater than or equal to 1"),
        ([".", "--by", "batchsize"], "--by batchsize: no run has this key; did you mean batch_size?"),
    ],
)
def test_mistakes_are_named_in_one_sentence(cli, tmp_path, write_run, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run", 1)
    done = cli("report", *arguments)
    assert done.exit_code == 2
    assert any(each in done.stderr for each in message.split("|")), done.stderr
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("module", ["bokeh", "jinja2"])
def test_a_missing_extra_is_named(cli, runs, tmp_path, monkeypatch, module):
    from rl_training.reporting.report import scripts

    scripts.library.cache_clear()
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(scripts, "find_spec", lambda name: None if name == module else find_spec(name))
    done = cli("report", runs, "--out", tmp_path / "r.html")
    scripts.library.cache_clear()
    assert (done.exit_code, done.stderr) == (2, f"error: {MISSING}\n")
    assert not (tmp_path / "r.html").exists()


def test_every_writes_a_page_only_after_a_change_and_ctrl_c_ends_it(runs, tmp_path, write_run):
    page = tmp_path / "r.html"
    command = [sys.executable, "-m", "rl_training.cli", "report", str(runs), "--out", str(page), "--every", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert "6 runs" in process.stdout.readline()
            first = page.read_bytes()
            assert b'data-every="1"' in first
            time.sleep(2.5)
            assert page.read_bytes() == first
            write_run(runs / "slow" / "seed_3", 4, seed=3)
            assert "7 runs" in process.stdout.readline()
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert "7 runs" in output
    assert b'data-every=""' in page.read_bytes()
