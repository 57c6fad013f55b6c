"""Writes everything that shows the results of benchmarks/results, which stay the only source.

python benchmarks/results_table.py

It writes docs/results.md, the results in docs/performance.md, docs/pictures, benchmarks/results/table.json and the line
`# Score:` of every packaged config.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from equal_peers.page import section
from performance_page import table, write_page
from scores.config_lines import with_score_line
from scores.curves import save_curves
from scores.page import family_section, not_run
from scores.pictures import save_picture
from scores.rows import FAMILIES, Row
from scores.stored import stored_rows

from rl_training.experiment.config.packaged import packaged_configs
from rl_training.reporting import comparison
from rl_training.reporting.plots import save_comparison

RESULTS = Path(__file__).parent / "results"
CURVES = ("sac_halfcheetah_v4_1m", "sac_hopper_v4_1m", "td3_hopper_v4", "ppo_walker2d")  # on the first page
ROOT = Path(__file__).parents[1]
DOCS, CONFIGS = ROOT / "docs", ROOT / "src" / "rl_training" / "assets" / "configs"
INTRODUCTION = """\
# Results

This page is for readers who want to know how well an algorithm works here before they use it. Each row of the tables
is one algorithm on one task after one budget. A score is the mean return of a seed's last checkpoint. It is
played without exploration and with fixed seeds.

| task | episodes per seed |
|---|---|
| most tasks | 50 |
| MuJoCo v4, locomotion data, PPO on Hopper, Walker2d and Breakout, GAIL on CartPole-v1, Dreamer on Pong | 10 |
| Dreamer on Boxing, Breakout and Pendulum | 20 |
| Dreamer on SignedSide | 40 |
| Rainbow on Pong | 5, from 52x52 images 3 |
| CQL on hopper-medium beside CORL's | 100 |

On Atari, Dreamer samples its actions, as in the published scores. On locomotion data, the score is D4RL's normalized
score. Rows with smaller budgets come from evaluations during the same runs.

| column | meaning |
|---|---|
| task and config | environment and dataset; the packaged config, or the algorithm and what was changed |
| budget | environment steps, or gradient steps for offline algorithms; `150k of 1M` means stopped early |
| mean | mean over seeds; "training" is the mean return of the last training episodes, with exploration |
| interquartile mean | mean of the middle half of the seeds, with its 95% bootstrap interval |
| peer run here | another library, trained on the same task or file on our machines |
| published | mean ± standard deviation over seeds; budget and environment version where they differ from ours |
| difference | our mean minus the published one at equal budget, with Welch's 95% interval |

In the pictures, a dot is a seed, and a bar is the interval of the interquartile mean. A diamond is a seed of the peer.
A triangle is the published score (hollow if its budget differs). `benchmarks/results/table.json` holds the same rows
with their commands, machine and commit, and names the file with all details.

## Scores

"""
NO_RESULT = """\
The table lists published budgets that no run here has reached. A packaged config without a stored result says
`Score: not run to the end`; `rl-training configs show NAME` prints it. SAC and TD3 were run
for a million steps on Hopper, Walker2d and HalfCheetah, in version v4. Version v5 counts as another task.
"""
REPRODUCE = """\
## Reproduce

`python benchmarks/results_table.py` writes this page, its pictures, `table.json`, the results in
[Performance](performance.md) and the score line of every packaged config from `benchmarks/results/`. These commands
fill that folder:

```text
python benchmarks/figures.py --data DATA
python benchmarks/store_runs.py RUN ... --out benchmarks/results/NAME.json  # runs of `rl-training train`
python benchmarks/speed.py engine > benchmarks/results/engine_overhead.json
python benchmarks/speed.py throughput > benchmarks/results/throughput.json
taskset -c 0 python benchmarks/speed.py compiled > benchmarks/results/compiled.json
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
python benchmarks/equal_to_peers.py --peer NAME=VENV/bin/python --corl DIR
python benchmarks/peer_corl.py check --corl DIR --data DATA/hopper-medium.hdf5
for name in halfcheetah hopper hopper_mixture mopo cartpole lunarlander minatar actor_critic model_based; do
    rl-training bench benchmarks/plans/$name.yaml --output benchmarks/results/$name
done
```
"""


def main() -> None:
    rows, benches = stored_rows(RESULTS), stored_benches()
    (RESULTS / "table.json").write_text(table_text(rows), encoding="utf-8")
    (DOCS / "results.md").write_text(whole_page(rows), encoding="utf-8")
    write_page()
    for family, own in by_family(rows).items():
        save_picture(own, DOCS / "pictures" / f"scores_{family}.png")
    for name, found in benches.items():
        save_comparison(comparison.learning_curves(found), DOCS / "pictures" / f"{name}.png")
    save_curves([RESULTS / f"{name}.json" for name in CURVES], DOCS / "pictures" / "curves.png")
    for config in packaged_configs():
        file = CONFIGS / f"{config}.yaml"
        file.write_text(with_score_line(file.read_text(encoding="utf-8"), config, rows), encoding="utf-8")


def stored_benches() -> dict[str, comparison.Comparison]:
    return {plan.parent.name: comparison.compare(plan.parent) for plan in sorted(RESULTS.glob("*/bench.yaml"))}


def table_text(rows: list[Row]) -> str:
    return json.dumps([row.to_json() for row in rows], indent=1) + "\n"


def by_family(rows: list[Row]) -> dict[str, list[Row]]:
    found = {family: [row for row in rows if row.family == family] for family in FAMILIES}
    return {family: own for family, own in found.items() if own}


def whole_page(rows: list[Row]) -> str:
    scored = {row.file for row in rows}
    files = [file for file in sorted(RESULTS.glob("*.json")) if file.name not in (*scored, "table.json")]
    results = {file.name: json.loads(file.read_text(encoding="utf-8")) for file in files}
    others = {file: result for file, result in results.items() if result.get("page") != "performance"}
    equality = others.pop("equality.json", None)
    pictures = [picture(result) for result in others.values() if "picture" in result]
    families = [family_section(family, own, note(family)) for family, own in by_family(rows).items()]
    missing = ["## Not run, or not as long as published\n", NO_RESULT, not_run(rows)]
    equal = [] if equality is None else [section(equality)]
    return INTRODUCTION + "\n".join(
        [*families, *missing, *equal, "## Resume, models and estimates\n", other_table(others), *pictures, REPRODUCE]
    )


def note(family: str) -> str:
    """Findings that the table does not show."""
    file = RESULTS / "notes" / f"{family}.md"
    return file.read_text(encoding="utf-8") if file.exists() else ""


def other_table(results: dict[str, dict[str, Any]]) -> str:
    rows = [[each["what"], each["result"], each["goal"], f"`{file}`"] for file, each in results.items()]
    return table(["what", "result", "goal", "file"], rows)


def picture(result: dict[str, Any]) -> str:
    return f"![{result['what']}](pictures/{result['picture']})\n"


if __name__ == "__main__":
    main()
