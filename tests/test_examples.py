"""The examples and the code in the docs run as written."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rl_training import ExperimentManager, load_config
from rl_training.cli import app

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    (f"{page.name}-{number}", block)
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
    if page.name != "design.md"  # its blocks are signatures
]
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py") if path.name != "reference.py")
SHORT = {
    "train": ["--steps", "8", "--set", "eval_interval=0"],
    "bench": ["--steps", "8", "--set", "eval_interval=0", "--seeds", "0", "--episodes", "1"],
}
CONFIGS = [
    (f"{page.name}-{number}", block)
    for page in PAGES
    for number, block in enumerate(re.findall(r"```yaml\n(algo: .*?)```", page.read_text(), re.DOTALL))
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_docs_name_every_example(example):
    readme, *pages = (page.read_text() for page in PAGES)
    assert example in readme
    assert example == "demo.py" or any(f"examples/{example}" in page for page in pages)


@pytest.mark.parametrize("example", [name for name in EXAMPLES if name.endswith("_reference.py")])
def test_reference_example_runs(example, tmp_path, monkeypatch, capsys):
    run_example(monkeypatch, tmp_path, example, "--steps", "2")
    names = [line.split(":")[0] for line in capsys.readouterr().out.splitlines() if ": return " in line]
    assert len(names) == (3 if example.startswith("gail") else 2)  # the algorithm, its baseline, GAIL's expert
    assert example.split("_")[0] in names
    assert sorted(path.name for path in (tmp_path / "runs" / example[:-3].replace("_", "-")).iterdir()) == sorted(names)


def run_example(monkeypatch, folder: Path, example: str, *arguments: str) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(ROOT / "examples")
    monkeypatch.setattr(sys, "argv", [example, *arguments])
    runpy.run_path(str(ROOT / "examples" / example), run_name="__main__")


def test_an_example_can_be_run_again_with_another_budget(tmp_path, monkeypatch, capsys):
    for arguments in (["--steps", "2"], ["--steps", "1", "--fresh"]):
        run_example(monkeypatch, tmp_path, "cql_pendulum_reference.py", *arguments)
    assert capsys.readouterr().out.count("return") == 4


def test_demo_prints_where_its_files_are(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "examples" / "demo.py"), "--steps", "2"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    printed = done.stdout
    for name in ("run", "curve", "checkpoint"):
        path = re.search(rf"^{name} +(\S+)$", printed, re.MULTILINE)
        assert path is not None, printed
        assert (tmp_path / path[1]).exists()


@pytest.mark.parametrize("block", [block for _, block in BLOCKS], ids=[name for name, _ in BLOCKS])
def test_python_in_the_docs_runs(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shortened = re.sub(r"total_timesteps=\d[\d_]*", "total_timesteps=256", block)
    shortened = re.sub(r"num_envs=\d+", "num_envs=1", shortened)  # each environment collects a whole rollout
    exec(compile(shortened, "block", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("block", [block for _, block in CONFIGS], ids=[name for name, _ in CONFIGS])
def test_a_config_in_the_docs_trains(block, tmp_path):
    (tmp_path / "mine.yaml").write_text(block)
    short = {"total_timesteps": 200, "eval_interval": 100, "eval_episodes": 1, "output_dir": str(tmp_path / "run")}
    assert ExperimentManager.setup({**load_config(str(tmp_path / "mine.yaml")), **short}).train().status == "finished"


def test_the_commands_of_imitation_run_one_after_the_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```bash\n(.*?)```", (ROOT / "docs" / "imitation.md").read_text(), re.DOTALL)
    for line in block.splitlines():
        program, *words = shlex.split(line, comments=True)
        assert program == "rl-training"
        ended = CliRunner().invoke(app, [*words, *SHORT.get(words[0], [])])
        assert ended.exit_code == 0, ended.stderr
