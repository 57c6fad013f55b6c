"""Writes docs/results.md and docs/pictures from the stored results in benchmarks/results."""

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

A score is the mean undiscounted return of a seed's last checkpoint over 50 evaluation episodes (10 for locomotion
datasets), without exploration and with fixed seeds. Over seeds it is the interquartile mean, with its 95% bootstrap
interval in brackets. Published scores are single runs. `benchmarks/results_table.py` writes this page from
`benchmarks/results/`, which these commands fill:

```
python benchmarks/figures.py --data DATA
python benchmarks/speed.py engine > benchmarks/results/engine_overhead.json
python benchmarks/speed.py throughput > benchmarks/results/throughput.json
python benchmarks/speed.py compiled > benchmarks/results/compiled.json
python benchmarks/speed.py data > benchmarks/results/data_speed.json
python benchmarks/speed.py priorities > benchmarks/results/priorities.json
python benchmarks/speed.py dreamer > benchmarks/results/dreamer_speed.json
python benchmarks/speed.py dreamer --compile --precision bfloat16 > benchmarks/results/dreamer_speed_compiled.json
python benchmarks/resume.py runs > benchmarks/results/kill_resume.json
python benchmarks/resume.py bench > benchmarks/results/bench_resume.json
for name in population fine_tuning; do
    python benchmarks/$name.py --data DATA > benchmarks/results/$name.json
done
python benchmarks/dynamics.py speed --device cuda > benchmarks/results/dynamics_speed.json
python benchmarks/dreams.py errors > benchmarks/results/dream_errors.json
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
    """The tables of `rl-training compare`, published scores, learning curves and the commands that reproduce them."""
    published = RESULTS / name / "published.md"
    notes = published.read_text(encoding="utf-8") if published.exists() else ""
    commands = "\n".join(cell["commands"][0] for cell in found.results)
    facts = [f"- not run: {', '.join(found.missing)}"] if found.missing else []
    facts += [f"- commit: {', '.join(sorted({run['commit'] for cell in found.results for run in cell['runs']}))}"]
    facts += [f"- hardware: {', '.join(sorted({machine(cell) for cell in found.results}))}"]
    return (
        f"## {name}\n\n{comparison.markdown(found)}\n{notes}\n"
        f"![learning curves](pictures/{name}.png)\n\n```\n{commands}\n```\n\n" + "\n".join(facts) + "\n"
    )


def machine(cell: dict[str, Any]) -> str:
    hardware = cell["hardware"]
    return f"{hardware['cores']} CPU cores" + (f" and one {hardware['gpu']}" if hardware["gpu"] else "")


def row(result: dict[str, Any]) -> str:
    cells = (
        result["what"],
        result["result"],
        result["goal"],
        result.get("published", ""),
        len(result.get("runs", ()) or result.get("scores", {}).get("ours", ())) or "",  # peers have pairs
    )
    return f"| {' | '.join(map(str, cells))} |"


def details(result: dict[str, Any]) -> str:
    """The commands, hardware and versions that reproduce a result."""
    commands = "\n".join(result["commands"])
    picture = f"![{result['what']}](pictures/{result['picture']})\n\n" if "picture" in result else ""
    facts = "".join(f"- {line}\n" for line in notes(result))
    return f"## {result['what']}\n\n{picture}```\n{commands}\n```\n\n{facts}"


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
