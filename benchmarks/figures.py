"""Scores of the algorithms: trains each cell with several seeds and evaluates with fixed seeds, by `rl-training`.

python benchmarks/figures.py --data DIR [--cells NAME ...] [--seeds 0 1 2 3 4] [--jobs N]

A cell's result goes to benchmarks/results/NAME.json. The same command again continues and trains nothing twice.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from command_line import ask, shown
from provenance import known_commit, provenance

from rl_training.statistics import bootstrap_interval, interquartile_mean

RESULTS = Path(__file__).parent / "results"
EPISODES, EVALUATION_SEED = 50, 12345
PENDULUM_REPLAY, CARTPOLE_REPLAY = "classic/pendulum_replay.h5", "classic/cartpole_replay.h5"
CARTPOLE_EXPERT = "experts/cartpole.npz"
FIVE_EPISODES = {"setting": "5 expert episodes", "dataset": None}
TEN_EPISODES = {"setting": "every 20th step of 10 expert episodes", "dataset": None}
HOPPER_EXPERT = "locomotion/hopper-expert.hdf5"


@dataclass(frozen=True)
class Cell:
    what: str
    train: str  # arguments of `rl-training train`
    goal: str
    published: str = ""
    data: str | None = None  # file below --data
    row: dict[str, Any] = field(default_factory=dict)  # fields of the row in the table that the command does not show


CELLS = {
    "iql_pendulum_replay": Cell(
        "IQL on d3rlpy's Pendulum replay, 20,000 updates", "iql/pendulum --steps 20000",
        goal="at least -175, and 30 above BC", data=PENDULUM_REPLAY,
    ),
    "bc_pendulum_replay": Cell(
        "BC on d3rlpy's Pendulum replay, 20,000 updates", "bc/pendulum --steps 20000",
        goal="", data=PENDULUM_REPLAY,
    ),
    "iql_cartpole_replay": Cell(
        "IQL on d3rlpy's CartPole replay, 5,000 updates", "iql/cartpole",
        goal="above BC, and within 5% of the best here", data=CARTPOLE_REPLAY,
    ),
    "cql_cartpole_replay": Cell(
        "CQL on d3rlpy's CartPole replay, 5,000 updates", "cql/cartpole",
        goal="", data=CARTPOLE_REPLAY,
    ),
    "bc_cartpole_replay": Cell(
        "BC on d3rlpy's CartPole replay, 5,000 updates", "bc/cartpole",
        goal="", data=CARTPOLE_REPLAY,
    ),
    "sac_pendulum": Cell(
        "SAC on Pendulum-v1, 20,000 steps", "sac/pendulum --steps 20000",
        goal="at least -170", published="-157 (RL Zoo)",
    ),
    "td3_pendulum": Cell(
        "TD3 on Pendulum-v1, 20,000 steps", "td3/pendulum --steps 20000",
        goal="at least -170", published="-152 (RL Zoo)",
    ),
    "redq_pendulum": Cell(
        "REDQ on Pendulum-v1, 1,500 steps", "redq/pendulum --steps 1500",
        goal="at least -170",
    ),
    "dqn_cartpole": Cell(
        "DQN on CartPole-v1, 50,000 steps", "dqn/cartpole --steps 50000",
        goal="at least 475", published="500 (RL Zoo)",
    ),
    "ppo_cartpole": Cell(
        "PPO on CartPole-v1, 100,000 steps", "ppo/cartpole --steps 100000",
        goal="at least 490", published="500 (RL Zoo)",
    ),
    "ppo_pendulum": Cell(
        "PPO on Pendulum-v1, 100,000 steps", "ppo/pendulum --steps 100000",
        goal="at least -200", published="-172 (RL Zoo)",
    ),
    "ppo_lunarlander": Cell(
        "PPO on LunarLander-v3, 1,000,000 steps", "ppo/lunarlander --steps 1000000",
        goal="at least 230", published="242 (RL Zoo, v2)",
    ),
    "ppo_halfcheetah": Cell(
        "PPO on HalfCheetah-v5, 1,000,000 steps", "ppo/halfcheetah --steps 1000000",
        goal="at least 4,500", published="5,819 (RL Zoo, v3)",
    ),
    "dqn_acrobot": Cell(
        "DQN on Acrobot-v1, 100,000 steps", "dqn/acrobot --steps 100000",
        goal="at least -90", published="-77 (RL Zoo)",
    ),
    "qr_dqn_acrobot": Cell(
        "QR-DQN on Acrobot-v1, 100,000 steps", "qr_dqn/acrobot --steps 100000",
        goal="at least -90", published="-69 (RL Zoo)",
    ),
    "mbpo_pendulum": Cell(
        "MBPO on Pendulum-v1, 4,000 steps", "mbpo/pendulum --steps 4000",
        goal="at least -250, and above SAC",
    ),
    "sac_pendulum_4k": Cell(
        "SAC on Pendulum-v1, 4,000 steps", "sac/pendulum --steps 4000",
        goal="",
    ),
    "gail_cartpole": Cell(
        "GAIL on fixed-horizon CartPole, 5 episodes, 300,000 steps", "gail/cartpole_fixed_horizon --steps 300000",
        goal="at least 0.9 of the 500 of those episodes", data=CARTPOLE_EXPERT, row=FIVE_EPISODES,
    ),
    "gail_cartpole_random_expert": Cell(
        "GAIL on fixed-horizon CartPole, a random expert, 300,000 steps",
        "gail/cartpole_fixed_horizon --steps 300000 --set expert_dataset_kind=random --set expert_dataset_size=2500",
        goal="under 100", row={"setting": "a random expert", "dataset": None},
    ),
    "bc_cartpole": Cell(
        "BC on fixed-horizon CartPole, the same 5 episodes", "bc/cartpole_fixed_horizon",
        goal="", data=CARTPOLE_EXPERT, row={**FIVE_EPISODES, "family": "imitation"},
    ),
    "gail_hopper": Cell(
        "GAIL on Hopper-v5, every 20th step of 10 expert episodes, 1,000,000 steps", "gail/hopper --steps 1000000",
        goal="at least 0.8 of the expert's 2,835, and above BC",
        published="3,615 (the paper, 11 episodes of an expert with 3,571)", data=HOPPER_EXPERT, row=TEN_EPISODES,
    ),
    "bc_hopper_expert": Cell(
        "BC on Hopper-v5, the same rows, 20,000 updates",
        "bc/hopper Hopper-v5 --steps 20000 --set dataset_episodes=10 --set dataset_stride=20",
        goal="", published="1,026 (the GAIL paper, 11 episodes)", data=HOPPER_EXPERT,
        row={**TEN_EPISODES, "family": "imitation"},
    ),
    "dreamer_catch": Cell(
        "Dreamer on Catch, 16x16 pixels, 5,000 steps", "dreamer/catch --steps 5000",
        goal="at least 0.8 within 15 minutes on 2 cores (random: -0.6)",
    ),
    "dreamer_cue_memory": Cell(
        "Dreamer on a cue shown six pictures before it is asked for, 2,400 steps", "dreamer/cue_memory --steps 2400",
        goal="at least 0.9",
    ),
}  # fmt: skip


def main() -> int:
    args = arguments()
    with ThreadPoolExecutor(args.jobs) as pool:
        runs = {
            name: [pool.submit(score, name, seed, args.output, args.data) for seed in args.seeds] for name in args.cells
        }
        cells, failed = {run: name for name, seeds in runs.items() for run in seeds}, 0
        left = Counter(cells.values())
        for run in as_completed(cells):
            name = cells[run]
            left[name] -= 1
            if not left[name]:
                failed += not conclude(name, runs[name], args.data)
    return 1 if failed else 0


def conclude(name: str, runs: list[Future[dict[str, Any]]], data: Path | None) -> bool:
    """Stores the result of a cell whose seeds have all ended; False if one of them failed."""
    try:
        result = summary(CELLS[name], [run.result() for run in runs], data=data)
    except RuntimeError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return False
    write(RESULTS / f"{name}.json", result)
    print(f"{name}: {result['result']}", flush=True)
    return True


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS), metavar="NAME", help=", ".join(CELLS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4], metavar="SEED")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at a time, one thread each")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder with the datasets")
    parser.add_argument("--output", type=Path, default=Path("runs/figures"), metavar="DIR", help="parent of the runs")
    args = parser.parse_args()
    for name in args.cells:
        file = CELLS[name].data
        if file is not None and (args.data is None or not (args.data / file).is_file()):
            parser.error(f"{name} needs --data DIR, the folder that holds {file}; got {args.data}")
    return args


def score(name: str, seed: int, output: Path, data: Path | None) -> dict[str, Any]:
    """Trains one seed, unless it is trained, and evaluates its last checkpoint."""
    cell, run = CELLS[name], output / name / f"seed_{seed}"
    trained = ask(train_command(cell, seed=str(seed), run=str(run), data=str(data)))
    if trained["status"] != "finished":
        raise RuntimeError(f"{run} was {trained['status']} at step {trained['steps']}")
    played = ask(evaluate_command(str(run)))
    print(f"{name} seed {seed}: {played['return_mean']:.1f}", file=sys.stderr, flush=True)
    rate = trained["updates_per_second"]
    return {
        "seed": seed,
        "score": played["return_mean"],
        "train_seconds": trained["updates"] / rate if rate else None,  # None for a run that was already complete
        "commit": json.loads((run / "run.json").read_text())["git"],
    }


def train_command(cell: Cell, *, seed: str, run: str, data: str) -> list[str]:
    dataset = [] if cell.data is None else ["--dataset", f"{data}/{cell.data}"]
    machine = ["--device", "cpu", "--threads", "1", "--json"]
    return ["train", *cell.train.split(), *dataset, "--seed", seed, "--output", run, *machine]


def evaluate_command(run: str) -> list[str]:
    return ["evaluate", run, "--episodes", str(EPISODES), "--seed", str(EVALUATION_SEED), "--json"]


def summary(cell: Cell, runs: list[dict[str, Any]], *, data: Path | None) -> dict[str, Any]:
    scores = [run["score"] for run in runs]
    middle = interquartile_mean(scores)
    interval = list(bootstrap_interval(scores)) if len(scores) > 1 else None
    return {
        "what": cell.what,
        "result": f"{middle:.1f}" + (" [{:.1f}, {:.1f}]".format(*interval) if interval else ""),
        "goal": cell.goal,
        "published": cell.published,
        **cell.row,
        "interquartile_mean": middle,
        "interval_95": interval,
        "runs": runs,
        "commands": [
            shown(train_command(cell, seed="SEED", run="RUN", data="DATA")),
            shown(evaluate_command("RUN")),
        ],
        "data": None if cell.data is None or data is None else {"file": cell.data, "sha256": sha256(data / cell.data)},
        **provenance(),
        "commit": ", ".join(sorted({known_commit(run["commit"]) for run in runs})),
    }


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def write(file: Path, result: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
