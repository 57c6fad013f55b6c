"""The examples run as written, and the docs name them."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py") if path.name != "reference.py")


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_docs_name_every_example(example):
    readme, *pages = (page.read_text() for page in PAGES)
    assert example in readme
    assert example == "demo.py" or any(f"examples/{example}" in page for page in pages)


@pytest.mark.usefixtures("few_rows", "short_episodes")
@pytest.mark.parametrize("example", [name for name in EXAMPLES if name.endswith("_reference.py")])
def test_reference_example_runs(example, tmp_path, monkeypatch, capsys):
    run_example(monkeypatch, tmp_path, example, "--steps", "1")
    names = [line.split(":")[0] for line in capsys.readouterr().out.splitlines() if ": return " in line]
    assert len(names) == (3 if example.startswith("gail") else 2)  # the algorithm, its baseline, GAIL's expert
    assert example.split("_")[0] in names
    assert sorted(path.name for path in (tmp_path / "runs" / example[:-3].replace("_", "-")).iterdir()) == sorted(names)


def run_example(monkeypatch, folder: Path, example: str, *arguments: str) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(ROOT / "examples")
    monkeypatch.setattr(sys, "argv", [example, *arguments])
    runpy.run_path(str(ROOT / "examples" / example), run_name="__main__")


def test_the_example_of_a_simulator_learns(tmp_path, monkeypatch, capsys):
    run_example(monkeypatch, tmp_path, "own_simulator.py", "--steps", "12000")
    printed = re.search(r"^return (\S+) of 100 at most$", capsys.readouterr().out, re.MULTILINE)
    assert printed is not None
    assert float(printed[1]) > 50  # without learning it is below -50


def test_the_example_from_a_log_to_a_policy_writes_its_log(tmp_path, monkeypatch):
    run_example(monkeypatch, tmp_path, "logs_to_policy.py", "--log", "charging.csv", "--nights", "2")
    lines = (tmp_path / "charging.csv").read_text().splitlines()
    assert (len(lines), lines[0].split(",")[0]) == (1 + 2 * 3 * 24, "timestamp")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_example_from_a_log_to_a_policy_goes_the_whole_way(tmp_path, monkeypatch, capsys):
    run_example(monkeypatch, tmp_path, "logs_to_policy.py", "--nights", "20", "--steps", "20", "--updates", "5")
    printed = capsys.readouterr().out
    assert "usable for training" in printed
    assert re.search(r"^  operator -\d", printed, re.MULTILINE)
    assert (tmp_path / "runs" / "logs-to-policy" / "iql.onnx").exists()


@pytest.mark.slow
def test_an_example_can_be_run_again_with_another_budget(tmp_path, monkeypatch, capsys):
    for arguments in (["--steps", "2"], ["--steps", "1", "--fresh"]):
        run_example(monkeypatch, tmp_path, "cql_pendulum_reference.py", *arguments)
    assert capsys.readouterr().out.count("return") == 4


@pytest.mark.usefixtures("few_rows", "short_episodes")
def test_demo_prints_where_its_files_are(tmp_path, monkeypatch, capsys):
    run_example(monkeypatch, tmp_path, "demo.py", "--steps", "2")
    printed = capsys.readouterr().out
    for name in ("run", "curve", "checkpoint"):
        path = re.search(rf"^{name} +(\S+)$", printed, re.MULTILINE)
        assert path is not None, printed
        assert (tmp_path / path[1]).exists()
