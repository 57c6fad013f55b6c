"""Turns run directories of one config, one for each seed, into a result of benchmarks/results.

python benchmarks/store_runs.py RUN ... --out benchmarks/results/sac_hopper_1m.json [--episodes 50]

RUN is a run directory or a folder of them, such as the one of `rl-training train --seeds 0-4`. It needs config.yaml,
run.json and metrics.jsonl; checkpoints only for --episodes, which plays the last one. Otherwise the score is the last
evaluation in training. Runs that were stopped count up to the last step at which every seed was evaluated. Then
`python benchmarks/results_table.py` adds the rows to the page, to table.json and to the line of the config.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from command_line import ask
from figures import EVALUATION_SEED, write
from scores.stored import described, env_name, is_at

from rl_training.experiment.config.packaged import load_config
from rl_training.reporting.stored_runs import StoredRun, read_run, run_directories
from rl_training.statistics import interquartile_mean

NOT_SHOWN = ("--seed", "--seeds", "--output", "--dataset")  # options that are replaced in the stored command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run directories, or folders of them")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSON file to write")
    parser.add_argument("--config", metavar="NAME", help="packaged config; taken from the command if it is named there")
    parser.add_argument(
        "--setting", metavar="TEXT", help="what else distinguishes the row, such as 'target entropy -1'"
    )
    parser.add_argument(
        "--episodes", type=int, metavar="N", help="play the last checkpoint of every seed for N episodes"
    )
    args = parser.parse_args()
    found = [read_run(directory) for path in args.runs for directory in run_directories(path)]
    try:
        result = summary(found, setting=args.setting, config=args.config, episodes=args.episodes)
    except ValueError as error:
        parser.error(str(error))
    write(args.out, result)
    print(f"{args.out}: {result['result']}")


def summary(
    runs: Sequence[StoredRun], *, setting: str | None = None, config: str | None = None, episodes: int | None = None
) -> dict[str, Any]:
    """The result of the seeds of one setting. Raises ValueError if they are not that."""
    first, runs = check(runs), sorted(runs, key=lambda run: run.seed)
    budget = common_budget(runs)
    stored = [stored_run(run, budget, episodes) for run in runs]
    normalized = all("return" in run for run in stored)
    scores, unit = [run["score"] for run in stored], "updates" if first.dataset else "steps"
    total, played = first.total_steps, episodes or evaluation_at(first, budget)["episodes"]
    trained = commands(first, episodes)
    config = config or (described(trained[0])["config"] if " train " in trained[0] else None)
    return {
        "what": f"{first.algo} on {first.env}, {budget:,} {unit}",
        "result": f"{interquartile_mean(scores):,.1f}",
        "goal": "",
        "algo": first.algo,
        "env": env_name(first.env or ""),
        "config": config,
        **({"dataset": Path(first.dataset).stem} if first.dataset else {}),
        **({"setting": setting} if setting else {}),
        "budget": total if is_at(total, budget) else budget,
        "planned": load_config(config)["total_timesteps"] if config else total,
        "measure": "normalized score" if normalized else "return",
        "episodes": played,
        "runs": stored,
        "commands": trained,
        "hardware": hardware(first),
        "versions": first.record.get("versions"),
        "commit": ", ".join(sorted({run.record.get("git") or "unknown" for run in runs})),
    }


def check(runs: Sequence[StoredRun]) -> StoredRun:
    """The first run, if all are seeds of one algorithm on one task."""
    if not runs:
        raise ValueError("no run directory found. Give run directories, or a folder of them")
    tasks = {(run.algo, run.env, run.dataset) for run in runs}
    if len(tasks) > 1:
        raise ValueError(f"the runs are of several tasks: {sorted(map(str, tasks))}. Give those of one")
    seeds = [run.seed for run in runs]
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"a seed occurs twice: {sorted(seeds)}. Give each seed once")
    for run in runs:
        if not run.evaluations:
            raise ValueError(f"{run.path} has no evaluations. Train it with eval_interval > 0")
    return runs[0]


def common_budget(runs: Sequence[StoredRun]) -> int:
    """The last step at which every seed was evaluated."""
    shared = set.intersection(*({int(row["step"]) for row in run.evaluations} for run in runs))
    if not shared:
        raise ValueError("no step at which every seed was evaluated. Give runs with equal eval_interval")
    return max(shared)


def stored_run(run: StoredRun, budget: int, episodes: int | None) -> dict[str, Any]:
    played = evaluation_at(run, budget) if episodes is None else evaluate(run, episodes)
    measure = "normalized_score" if run.dataset and "normalized_score" in played else "return_mean"
    training = [point for point in training_curve(run) if point[0] <= budget]
    return {
        "seed": run.seed,
        "score": played[measure],
        **({"return": played["return_mean"]} if measure != "return_mean" else {}),
        **({"training_return": training[-1][1]} if training else {}),
        "curve": [[row["step"], row.get(measure)] for row in run.evaluations if row["step"] <= budget],
        "training_curve": training,
        "seconds": run.result.get("seconds"),
        "status": run.status,
    }


def evaluation_at(run: StoredRun, step: int) -> dict[str, Any]:
    return next(row for row in run.evaluations if row["step"] == step)


def evaluate(run: StoredRun, episodes: int) -> dict[str, Any]:
    return ask(["evaluate", str(run.path), "--episodes", str(episodes), "--seed", str(EVALUATION_SEED), "--json"])


def training_curve(run: StoredRun) -> list[list[float]]:
    """The mean of training returns at each evaluation, since the one before or in the last tenth of the run."""
    curve, returns = [], []
    window = max(row["step"] for row in run.evaluations) / 10 if run.evaluations else 0
    for row in run.rows:
        if row.get("episode_return") is not None:
            returns.append((row["step"], row["episode_return"]))
        if "evaluation" in row and returns:
            step = row["evaluation"]["step"]
            recent = [value for logged, value in returns if logged >= step - window] or [returns[-1][1]]
            curve.append([step, sum(recent) / len(recent)])
            returns = []
    return curve


def commands(run: StoredRun, episodes: int | None) -> list[str]:
    """The command that trained the run, without its paths and seed, and the one that played it."""
    words = [str(word) for word in run.record.get("argv", ["rl-training", "train", run.algo, run.env or ""])]
    kept = [
        word for before, word in zip(["", *words], words, strict=False)
        if word not in NOT_SHOWN and before not in NOT_SHOWN and not word.startswith(tuple(f"{o}=" for o in NOT_SHOWN))
    ]  # fmt: skip
    data = ["--dataset", run.dataset] if run.dataset else []
    train = shlex.join(["rl-training", *kept[1:], *data, "--seed", "SEED", "--output", "RUN"])
    return [train, *([f"rl-training evaluate RUN --episodes {episodes} --seed {EVALUATION_SEED}"] if episodes else [])]


def hardware(run: StoredRun) -> str:
    facts = run.record.get("hardware") or {}
    cores = f"{facts['cores']} cores" if "cores" in facts else None
    return ", ".join(filter(None, (facts.get("cpu") or facts.get("platform"), cores, facts.get("gpu"))))


if __name__ == "__main__":
    main()
