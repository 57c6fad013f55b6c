"""The line of each packaged config that names the score it reached: `# Score: ...`, below its comment."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from rl_training.experiment.config.packaged import load_config
from scores.page import budget_cell, number
from scores.rows import Row
from scores.stored import env_name

START = "# Score: "
NOT_RUN = "not run to the end"


def score_line(config: str, rows: Iterable[Row]) -> str:
    """The line of a config: the mean over seeds of its longest runs on each dataset."""
    own = [row for row in rows if row.config == config and row.final]
    longest = [row for row in own if row.budget == max(each.budget for each in own if each.task == row.task)]
    ended = [row for row in longest if not row.planned or row.budget >= row.planned]
    env = env_name(load_config(config).get("env_id", ""))
    parts: dict[str, list[str]] = {}
    for row in longest:
        seeds = "1 seed" if len(row.seeds) == 1 else f"{len(row.seeds)} seeds"
        place = row.dataset or (row.env if row.env != env else None)
        score = number(row.mean) + (f" on {place}" if place else "")
        parts.setdefault(f"after {budget_cell(row)}, {seeds}", []).append(score)
    texts = [f"{', '.join(scores)} {budget}" for budget, scores in parts.items()]
    return f"{START}{'; '.join([*texts, *([] if ended else [NOT_RUN])])}."


def with_score_line(text: str, config: str, rows: Iterable[Row]) -> str:
    """The text of a packaged config with its line as the stored results have it."""
    lines = [line for line in text.splitlines() if not line.startswith(START)]
    comment = list(takewhile(lambda line: line.startswith("#"), lines))
    return "\n".join([*comment, score_line(config, rows), *lines[len(comment) :]]) + "\n"
