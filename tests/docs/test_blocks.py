"""Every Python and shell block of the README and the docs runs, or carries a marker with a reason.

The blocks of a page run in order in one folder, and its Python blocks share one namespace. The tables below shorten
step counts, and generated datasets are cut. A comment just before a block changes how it is tested:

    <!-- file: NAME -->        the block is written to NAME, where later blocks can import it
    <!-- needs data -->        not run: it needs files that are not in the repository
    <!-- not run: REASON -->   not run
"""

from __future__ import annotations

import re
import runpy
import shlex
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from typer.testing import CliRunner

from rl_training import ExperimentManager, load_config
from rl_training.algorithms import CATALOGUE
from rl_training.cli import app
from rl_training.experiment import assembly, training_run

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(
    r"(?:<!-- (?P<marker>[^>]*) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
LANGUAGES = {"python", "bash", "sh", "console", "shell", "yaml", "text"}
NOT_RUN = re.compile(r"needs data(: .+)?|not run: .+")
SHORT_KEYWORDS = {"total_timesteps": "256", "rows": "400", "updates": "20"}
SHORT_COMMANDS = {  # added to a command
    "train": "--steps 16 --set eval_episodes=1 --quiet",
    "bench": "--steps 8 --seeds 0 --episodes 1 --jobs 1 --set eval_interval=4 --set eval_episodes=1",
    "bench --score ope": "--steps 8 --seeds 0 --updates 5 --jobs 1 --set hidden_sizes=[8]",
    "tune": "--trials 1 --steps 256 --seeds 0 --final-seeds 100 --episodes 1 --no-baseline --set eval_episodes=1",
    "data collect": "--steps 64",
    "evaluate": "--episodes 1",
    "evaluate --ope": "--updates 20",
    "resume": "--steps 64",
    "export": "--observations 64",
    "dream": "--steps 2 --rows 1",
}
SHORT_OPTIONS = {"--online-steps": "16", "--seeds": "0-1"}  # replace the value of an option that is given
MANY = ("--configs", "--algos", "--envs", "--datasets")  # lists of a bench
SHORT_ROLLOUT = 64  # steps of PPO between updates, where a page has its default of 2,048
SHORT_MODELS = {  # for configs that would take many seconds
    "ppo": f"--set num_steps={SHORT_ROLLOUT}",
    "dreamer": "--set learning_starts=64 --set batch_size=2 --set horizon=2",
    "mbpo": "--set model_max_epochs=1 --set rollout_batch_size=64 --set learning_starts=8",
}


class Block(NamedTuple):
    language: str
    text: str
    marker: str


def blocks(page: Path) -> list[Block]:
    found = FENCE.finditer(page.read_text(encoding="utf-8"))
    return [Block(match["language"], match["text"], match["marker"] or "") for match in found]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


RUNNABLE = [
    page
    for page in PAGES
    if any(b.language in ("python", "bash") and not NOT_RUN.match(b.marker) for b in blocks(page))
]
CONFIGS = [
    pytest.param(block.text, id=f"{name(page)}-{number}")
    for page in PAGES
    for number, block in enumerate(blocks(page))
    if block.language == "yaml" and block.text.startswith("algo:")
]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_names_a_known_language_and_every_marker_is_known(page):
    text = page.read_text(encoding="utf-8")
    if page.name != "results.md":  # which is generated
        assert text.count("\n```") == 2 * len(blocks(page)), "a block without a language, or not closed"
    for block in blocks(page):
        assert block.language in LANGUAGES - {"sh", "console", "shell"}, "write bash for commands, text for output"
        assert not block.marker or NOT_RUN.fullmatch(block.marker) or re.fullmatch(r"file: \w+\.py", block.marker)


@pytest.fixture
def unchanged_catalogue():
    """A page registers an algorithm, which other tests must not find."""
    before = dict(CATALOGUE)
    yield
    CATALOGUE.clear()
    CATALOGUE.update(before)


@pytest.fixture
def few_evaluations(monkeypatch):
    """Evaluates, saves and logs twice in a run: ten evaluations and checkpoints take longer than 16 steps."""
    every = assembly.interval

    def twice(given: int | None, total: int, parts: int) -> int:
        return every(given, total, min(parts, 2))

    for module in (assembly, training_run):
        monkeypatch.setattr(module, "interval", twice)


# In make learn, test_extend.py runs the commands with a module of the user in new processes.
@pytest.mark.usefixtures(
    "unchanged_catalogue", "few_evaluations", "few_rows", "short_cloning", "short_episodes", "forked_jobs"
)
@pytest.mark.parametrize("page", RUNNABLE, ids=name)
@pytest.mark.timeout(240)  # seconds of work each
def test_the_blocks_of_a_page_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    write_logs(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page):
        if NOT_RUN.match(block.marker):
            continue
        if block.marker.startswith("file: "):
            (tmp_path / block.marker.removeprefix("file: ")).write_text(block.text)
        elif block.language == "python":
            exec(compile(shortened(block.text), f"{name(page)}", "exec"), namespace)
        elif block.language == "bash":
            run_commands(block.text)


def write_logs(folder: Path) -> None:
    """Files that the pages name: 300 transitions with three observations and one action."""
    rng = np.random.default_rng(0)
    walk = rng.standard_normal((300, 3)).cumsum(0) / 10
    columns = {f"obs_{i}": walk[:, i] for i in range(3)} | {
        "action": rng.uniform(-1, 1, 300),
        "reward": rng.random(300),
    }
    ends = np.arange(300) % 50 == 49
    columns |= {"terminated": np.zeros(300), "truncated": ends.astype(float)}
    rows = np.column_stack(list(columns.values()))
    for file in ("robot.csv", "logs.csv", "held_out.csv"):
        np.savetxt(folder / file, rows, delimiter=",", header=",".join(columns), comments="", fmt="%.5f")
    runpy.run_path(str(ROOT / "examples" / "logs_to_policy.py"))["write_log"](folder / "charging.csv", 12)


def shortened(code: str) -> str:
    for keyword, value in SHORT_KEYWORDS.items():
        code = re.sub(rf'("?{keyword}"?(?:=|: ))\d[\d_]*', rf"\g<1>{value}", code)
    return re.sub(
        r"PPO\((?!.*num_steps)(.*)total_timesteps=", rf"PPO(\g<1>num_steps={SHORT_ROLLOUT}, total_timesteps=", code
    )


def run_commands(block: str) -> None:
    for line in block.splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        assert words[0] == "rl-training", f"only rl-training is run here; mark the block: {line}"
        arguments = words[1:]
        if arguments[0] == "bench":  # a cell is a process: one is enough
            arguments = [word.split(",")[0] if before in MANY else word for before, word in pairwise(words)]
        ended = CliRunner().invoke(app, shortened_command(arguments))
        assert ended.exit_code == 0, f"{line}\n{ended.output}{ended.stderr}\n{ended.exception!r}"


def shortened_command(words: list[str]) -> list[str]:
    """The command with `short_options`, without the options of the page that they replace."""
    options = short_options(words)
    replaced = {option for option in options if option.startswith("--")} - {"--set", "--quiet", "--no-baseline"}
    kept = [word for before, word in pairwise(["", *words]) if before not in replaced and word not in replaced]
    return [*kept, *options]


def short_options(words: list[str]) -> list[str]:
    command = " ".join(words[:2]) if words[0] == "data" else words[0]
    command += " --ope" if "--ope" in words else " --score ope" if "--score" in words else ""
    options = SHORT_COMMANDS.get(command, "").split()
    for option, value in SHORT_OPTIONS.items():
        options += [option, value] if option in words and option not in options else []
    return options + (SHORT_MODELS.get(words[1].split("/")[0], "").split() if command == "train" else [])


@pytest.mark.parametrize("block", CONFIGS)
def test_a_config_in_the_docs_trains(block, tmp_path):
    (tmp_path / "mine.yaml").write_text(block)
    short = {"total_timesteps": 200, "eval_interval": 100, "eval_episodes": 1, "output_dir": str(tmp_path / "run")}
    assert ExperimentManager.setup({**load_config(str(tmp_path / "mine.yaml")), **short}).train().status == "finished"
