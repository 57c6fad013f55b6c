"""Writes docs/results.md, the results in docs/performance.md and docs/pictures from benchmarks/results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from performance_page import write_page

from rl_training.reporting import comparison
from rl_training.reporting.plots import save_comparison

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parents[1] / "docs"
INTRODUCTION = """\
# Results

A score is the mean undiscounted return of a seed's last checkpoint over 50 evaluation episodes (10 for locomotion
datasets), without exploration and with fixed seeds. Over seeds it is the interquartile mean, with its 95% bootstrap
interval in brackets. Published scores are single runs.

The file named in a row holds the commands, the score of every seed, hardware, versions and commit. Files are in
`benchmarks/results/`, and `rl-training compare benchmarks/results/NAME` prints all comparisons of a benchmark.
"""
REPRODUCE = """\
## Reproduce

`benchmarks/results_table.py` writes this page, and the results in [Performance](performance.md), from
`benchmarks/results/`, which these commands fill:

```text
python benchmarks/figures.py --data DATA
python benchmarks/speed.py engine > benchmarks/results/engine_overhead.json
python benchmarks/speed.py throughput > benchmarks/results/throughput.json
python benchmarks/speed.py compiled > benchmarks/results/compiled.json
python benchmarks/speed.py data > benchmarks/results/data_speed.json
python benchmarks/speed.py priorities > benchmarks/results/priorities.json
python benchmarks/speed.py dreamer > benchmarks/results/dreamer_speed.json
python benchmarks/speed.py dreamer --compile --precision bfloat16 > benchmarks/results/dreamer_speed_compiled.json
python benchmarks/speed.py trainings --core 0 --peer NAME=VENV/bin/python > benchmarks/results/trainings.json
python benchmarks/speed.py gpu > benchmarks/results/gpu_training.json
python benchmarks/speed.py growth > benchmarks/results/growth.json
python benchmarks/speed.py ceiling > benchmarks/results/ceiling.json
python benchmarks/speed.py startup > benchmarks/results/startup.json
python benchmarks/resume.py runs > benchmarks/results/kill_resume.json
python benchmarks/resume.py bench > benchmarks/results/bench_resume.json
python benchmarks/environments.py > benchmarks/results/environments.json
for name in population fine_tuning; do
    python benchmarks/$name.py --data DATA > benchmarks/results/$name.json
done
for task in pendulum cartpole; do
    python benchmarks/ope_calibration.py $task --data DATA --work WORK
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
    write_page()
    for name, found in benches.items():
        save_comparison(comparison.learning_curves(found), DOCS / "pictures" / f"{name}.png")


def stored_benches() -> dict[str, comparison.Comparison]:
    return {plan.parent.name: comparison.compare(plan.parent) for plan in sorted(RESULTS.glob("*/bench.yaml"))}


def whole_page(benches: dict[str, comparison.Comparison]) -> str:
    results = {file.name: json.loads(file.read_text(encoding="utf-8")) for file in sorted(RESULTS.glob("*.json"))}
    scores = {file: result for file, result in results.items() if "runs" in result}
    others = {
        file: result
        for file, result in results.items()
        if file not in scores and result.get("page") != "performance"  # which has its own page
    }
    pictures = [picture(result) for result in others.values() if "picture" in result]
    return "\n".join(
        [
            *(INTRODUCTION, "## Scores\n", table(scores)),
            *(bench(name, found) for name, found in benches.items()),
            *("## Partial runs, speed, resume and models\n", table(others), *pictures, REPRODUCE),
        ]
    )


def table(results: dict[str, dict[str, Any]]) -> str:
    head = ["| what | result | goal | published | seeds | file |", "|---|---|---|---|---|---|"]
    return "\n".join([*head, *(row(file, result) for file, result in results.items()), ""])


def bench(name: str, found: comparison.Comparison) -> str:
    """The scores of a benchmark, published scores and learning curves."""
    published = RESULTS / name / "published.md"
    notes = published.read_text(encoding="utf-8") if published.exists() else ""
    scores = comparison.markdown(found).split("\n\n")[0].rstrip()
    missing = f"Not run: {', '.join(found.missing)}.\n\n" if found.missing else ""
    return f"### {name}\n\n{scores}\n\n{notes}\n{missing}![Learning curves of {name}](pictures/{name}.png)\n"


def picture(result: dict[str, Any]) -> str:
    return f"![{result['what']}](pictures/{result['picture']})\n"


def row(file: str, result: dict[str, Any]) -> str:
    cells = (
        result["what"],
        result["result"],
        result["goal"],
        result.get("published", ""),
        len(result.get("runs", ()) or result.get("scores", {}).get("ours", ())) or "",  # peers have pairs
        f"`{file}`",
    )
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
