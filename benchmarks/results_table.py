"""Writes docs/results.md from the stored results in benchmarks/results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
INTRODUCTION = """\
# Results

A score is an undiscounted return: for each seed the mean of 50 episodes that its last checkpoint plays, without
exploring, from fixed seeds; over the seeds the interquartile mean, its 95% bootstrap interval in brackets. A published
score is that of one run. This page is written by `benchmarks/results_table.py` from what these leave in
`benchmarks/results/`:

```
python benchmarks/figures.py --data DATA
python benchmarks/engine_overhead.py --json > benchmarks/results/engine_overhead.json
python benchmarks/kill_resume.py --json > benchmarks/results/kill_resume.json
```
"""


def main() -> None:
    results = [json.loads(file.read_text(encoding="utf-8")) for file in sorted((HERE / "results").glob("*.json"))]
    target = HERE.parent / "docs" / "results.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text(page(results), encoding="utf-8")


def page(results: list[dict[str, Any]]) -> str:
    table = ["| what | result | goal | published | seeds |", "|---|---|---|---|---|"]
    return "\n".join([INTRODUCTION, *table, *map(row, results), "", *map(details, results)])


def row(result: dict[str, Any]) -> str:
    cells = (
        result["what"],
        result["result"],
        result["goal"],
        result.get("published", ""),
        len(result.get("runs", ())) or "",
    )
    return f"| {' | '.join(map(str, cells))} |"


def details(result: dict[str, Any]) -> str:
    """What it takes to get this figure again."""
    commands = "\n".join(result["commands"])
    return f"## {result['what']}\n\n```\n{commands}\n```\n\n" + "".join(f"- {line}\n" for line in notes(result))


def notes(result: dict[str, Any]) -> list[str]:
    lines = [result["note"]] if "note" in result else []
    if runs := result.get("runs"):
        lines.append("seeds: " + ", ".join(f"{run['seed']}: {run['score']:.1f}" for run in runs))
        seconds = [run["train_seconds"] for run in runs if run["train_seconds"] is not None]
        lines += [f"training: {sum(seconds) / len(seconds):,.0f} s a seed, one thread"] if seconds else []
    if data := result.get("data"):
        lines.append(f"data: `{data['file']}`, sha256 `{data['sha256']}`")
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    return [*lines, f"hardware: {result['hardware']}", f"versions: {versions}", f"commit: {result['commit']}"]


if __name__ == "__main__":
    main()
