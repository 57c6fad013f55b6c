"""From a log file to a served policy, without a simulator: check, split, train, estimate, compare, export, serve.

    python examples/logs_to_policy.py                      # the whole way, in the folder runs/logs-to-policy
    python examples/logs_to_policy.py --log charging.csv   # only write the log

The log is made by a small simulator of vans that charge overnight. From then on only the log is used, as with your own
data. At the end the simulator shows what the estimates could not know.
"""

from __future__ import annotations

import argparse
import csv
import json
import shlex
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

SPEED = {"pause": 0.0, "slow": 0.5, "fast": 1.0}  # actions, as a share of the charger's power
POWER = {"north": 5_500, "south": 3_700}  # watt hours in half an hour, by depot
DEPOTS = {"van-1": "north", "van-2": "south", "van-3": "north"}
PRICES = {20: 0.30, 23: 0.18, 25: 0.08, 29: 0.15, 30: 0.28}  # euros per kilowatt hour from this hour on; 25 is 1 am
STEPS, FULL = 24, 60_000  # half hours of a night, and watt hours of a battery
COLUMNS = ("timestamp", "night", "depot", "charge", "outside", "price", "hours_left", "speed", "score", "departed")
READING = (
    "--columns obs=charge,outside,price,hours_left,depot --columns actions=speed --columns rewards=score "
    "--columns dones=departed --columns episodes=night --categories depot --allow nan"
)
Row = dict[str, Any]
Chooser = Callable[[Row, np.random.Generator], str]


def nights(van: str, first: datetime, count: int, choose: Chooser, seed: int) -> Iterator[Row]:
    """Simulates the nights of one van; `choose` sees a row and returns the speed."""
    random = np.random.default_rng(seed)
    for night in range(count):
        charge, outside, market = random.uniform(0.15, 0.6) * FULL, random.normal(5, 6), random.normal(0, 0.03)
        for step in range(STEPS):
            hour = 20 + step / 2
            price = max(0.03, market + next(PRICES[start] for start in reversed(PRICES) if hour >= start))
            row: Row = {
                "timestamp": (first + timedelta(days=night, minutes=30 * step)).isoformat(),
                "night": f"{van}/{night}", "depot": DEPOTS[van], "charge": charge, "outside": outside,
                "price": price, "hours_left": (STEPS - step) / 2, "departed": int(step == STEPS - 1),
            }  # fmt: skip
            row["speed"] = choose(row, random)
            cold = 0.8 if outside < 0 else 1.0
            energy = min(SPEED[row["speed"]] * POWER[row["depot"]] * cold, FULL - charge)
            charge += energy
            late = max(0.0, 0.9 * FULL - charge) if row["departed"] else 0.0
            row["score"] = -(energy * price + late * 0.5) / 1000
            yield row


class Operator:
    """Charges whatever the price: on most nights at once, on others when somebody remembers."""

    begin = 0.0  # hours before departure

    def __call__(self, row: Row, random: np.random.Generator) -> str:
        if row["hours_left"] == STEPS / 2:
            self.begin = random.choice([STEPS / 2, random.uniform(2, STEPS / 2)])
        if random.random() < 0.2:
            return str(random.choice(list(SPEED)))
        return "fast" if row["charge"] < 0.9 * FULL and row["hours_left"] <= self.begin else "pause"


def write_log(path: Path, count: int = 100) -> None:
    """Writes the log of all vans in the order of time; a few values are missing."""
    first, random = datetime(2026, 1, 5, 20), np.random.default_rng(0)
    rows = [row for seed, van in enumerate(DEPOTS) for row in nights(van, first, count, Operator(), seed)]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for row in sorted(rows, key=lambda row: str(row["timestamp"])):
            numbers = {name: f"{row[name]:.4f}" for name in ("charge", "outside", "price", "score")}
            if random.random() < 0.002:
                numbers["outside"] = "NA"
            writer.writerow({**row, **numbers})


def run(command: str) -> None:
    """Prints a command and runs it."""
    from rl_training.cli import app

    print(f"\n$ rl-training {command}", flush=True)
    code = app(shlex.split(command), standalone_mode=False)
    if code:
        raise SystemExit(code)


def serve(policy: Path) -> Chooser:
    """Returns the exported policy as a function of a row; needs onnxruntime, numpy and the JSON file beside it."""
    import onnxruntime

    described = json.loads(policy.with_suffix(".json").read_text())
    columns, names = described["inputs"][0]["columns"], described["outputs"][0]["names"]
    session = onnxruntime.InferenceSession(str(policy))

    def choose(row: Row, random: np.random.Generator | None = None) -> str:
        values = [row[name] if name in row else float(name == f"depot={row['depot']}") for name in columns]
        (actions,) = session.run(["actions"], {"obs": np.array([values], np.float32)})
        return str(names[int(actions[0])])

    return choose


def mean_return(choose: Chooser, gamma: float = 0.99, count: int = 100) -> float:
    """The mean discounted return of a night, played in the simulator."""
    played = (nights(van, datetime(2026, 4, 1, 20), count, choose, 9 + seed) for seed, van in enumerate(DEPOTS))
    scores = np.array([row["score"] for rows in played for row in rows]).reshape(-1, STEPS)
    return float((scores * gamma ** np.arange(STEPS)).sum(1).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description="From a log file to a served policy, without a simulator.")
    parser.add_argument("--log", type=Path, metavar="FILE", help="only write the log")
    parser.add_argument("--steps", type=int, default=2_000, help="updates of each algorithm")
    parser.add_argument("--updates", type=int, default=1_000, help="updates of each estimate")
    parser.add_argument("--nights", type=int, default=100, help="nights in the log")
    parser.add_argument("--folder", type=Path, default=Path("runs/logs-to-policy"), help="a new folder")
    options = parser.parse_args()
    if options.log is not None:
        write_log(options.log, options.nights)
        return
    folder = options.folder
    folder.mkdir(parents=True)
    log, data, bench = folder / "charging.csv", folder / "data", folder / "bench"
    write_log(log, options.nights)
    run(f"data check {log} {READING}")
    run(f"data split {log} {READING} --test 0.25 --by time --time timestamp --out {data}")
    run(
        f"bench --algos iql,cql,bc --datasets {data}/train.parquet --score ope --test {data}/test.parquet --seeds 0 "
        f"--steps {options.steps} --updates {options.updates} --set normalize_obs=true --set hidden_sizes=[64,64] "
        f"--set learning_rate=0.001 --output {bench}"
    )
    runs = {name: bench / f"{name}-train" / "seed_0" for name in ("iql", "cql", "bc")}
    run(f"evaluate {' '.join(map(str, runs.values()))} --ope {data}/test.parquet --updates {options.updates}")
    for name, path in runs.items():
        run(f"export {path} --out {folder}/{name}.onnx --observations 512")
    print("\nmean discounted return of a night in the simulator, which no step above has seen:")
    print(f"  operator {mean_return(Operator()):.2f}")
    for name in runs:
        print(f"  {name:8} {mean_return(serve(folder / f'{name}.onnx')):.2f}")


if __name__ == "__main__":
    main()
