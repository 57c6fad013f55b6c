"""Writes docs/results.md from the stored results in benchmarks/results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rl_training.reporting import comparison
from rl_training.reporting.plots import save_comparison

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parents[1] / "docs"
INTRODUCTION = """\
# Results

A score is an undiscounted return: for each seed the mean of 50 episodes (10 in the benches of locomotion data) that its
last checkpoint plays, without exploring, from fixed seeds; over the seeds the interquartile mean, its 95% bootstrap
interval in brackets. A published score is that of one run. This page is written by `benchmarks/results_table.py` from
what these leave in `benchmarks/results/`:

```
python benchmarks/figures.py --data DATA
python benchmarks/engine_overhead.py --json > benchmarks/results/engine_overhead.json
python benchmarks/kill_resume.py --json > benchmarks/results/kill_resume.json
for name in throughput compiled bench_resume data_speed; do     # priorities with --json
    python benchmarks/$name.py > benchmarks/results/$name.json
done
for name in population fine_tuning; do
    python benchmarks/$name.py --data DATA > benchmarks/results/$name.json
done
python benchmarks/dreamer_speed.py > benchmarks/results/dreamer_speed.json
python benchmarks/dreamer_speed.py --compile --precision bfloat16 > benchmarks/results/dreamer_speed_compiled.json
python benchmarks/dynamics.py speed --device cuda > benchmarks/results/dynamics_speed.json
python benchmarks/dream_errors.py > benchmarks/results/dream_errors.json
python benchmarks/dynamics.py speed > benchmarks/results/dynamics_speed_cpu.json
python benchmarks/dynamics.py error --picture docs/pictures/model_errors.png > benchmarks/results/dynamics_error.json
python benchmarks/peers.py --peer VENV/bin/python
for name in halfcheetah hopper hopper_mixture mopo cartpole lunarlander minatar actor_critic model_based; do
    rl-training bench benchmarks/plans/$name.yaml --output benchmarks/results/$name
done
```
"""


def main() -> None:
    benches = stored_benches()
    (DOCS / "results.md").write_text(whole_page(benches), encoding="utf-8")
    for name, found in benches.items():
        save_comparison(comparison.learning_curves(found), DOCS / "pictures" / f"{name}.png")


def stored_benches() -> dict[str, comparison.Comparison]:
    return {plan.parent.name: comparison.compare(plan.parent) for plan in sorted(RESULTS.glob("*/bench.yaml"))}


def whole_page(benches: dict[str, comparison.Comparison]) -> str:
    results = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(RESULTS.glob("*.json"))]
    return "\n".join([page(results), *(bench(name, found) for name, found in benches.items())])


def page(results: list[dict[str, Any]]) -> str:
    table = ["| what | result | goal | published | seeds |", "|---|---|---|---|---|"]
    return "\n".join([INTRODUCTION, *table, *map(row, results), "", *map(details, results)])


def bench(name: str, found: comparison.Comparison) -> str:
    """What `rl-training compare` says of a stored bench, its curves, and what it takes to get them again."""
    published = RESULTS / name / "published.md"  # what papers and peers score, beside what was tried
    told = published.read_text(encoding="utf-8") if published.exists() else ""
    commands = "\n".join(cell["commands"][0] for cell in found.results)
    facts = [f"- not run: {', '.join(found.missing)}"] if found.missing else []
    facts += [f"- commit: {', '.join(sorted({run['commit'] for cell in found.results for run in cell['runs']}))}"]
    facts += [f"- hardware: {', '.join(sorted({machine(cell) for cell in found.results}))}"]
    return (
        f"## {name}\n\n{comparison.markdown(found)}\n{told}\n"
        f"![learning curves](pictures/{name}.png)\n\n```\n{commands}\n```\n\n" + "\n".join(facts) + "\n"
    )


def machine(cell: dict[str, Any]) -> str:
    known = cell["hardware"]
    return f"{known['cores']} CPU cores" + (f" and one {known['gpu']}" if known["gpu"] else "")


def row(result: dict[str, Any]) -> str:
    cells = (
        result["what"],
        result["result"],
        result["goal"],
        result.get("published", ""),
        len(result.get("runs", ()) or result.get("scores", {}).get("ours", ())) or "",  # of a peer's match: pairs
    )
    return f"| {' | '.join(map(str, cells))} |"


def details(result: dict[str, Any]) -> str:
    """What it takes to get this figure again."""
    commands = "\n".join(result["commands"])
    picture = f"![{result['what']}](pictures/{result['picture']})\n\n" if "picture" in result else ""
    told = "".join(f"- {line}\n" for line in notes(result))
    return f"## {result['what']}\n\n{picture}```\n{commands}\n```\n\n{told}"


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
