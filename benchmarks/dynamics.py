"""The dynamics ensemble: speed of a gradient step against a loop over members, and prediction errors.

`speed` alternates both in one process and reports the fastest twentieth and the median; `--device cuda` replays
captured updates. `error` fits the model to random transitions and predicts held-out ones from their actions, 1 to 10
steps ahead. An error of 1.0 is that of predicting no change. `--picture FILE` plots it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from provenance import provenance
from torch import Tensor

from rl_training.algorithms import Dynamics, Updater
from rl_training.data import TransitionDataset
from rl_training.data.replay.bootstrap import BootstrapSampler
from rl_training.runtime.lanes.model_fit import ModelFit
from rl_training.runtime.recipes import roll_dataset
from rl_training.types import Batch, EnvSpec

HOPPER = EnvSpec((11,), "box", 3, action_shape=(3,), action_low=(-1.0,) * 3, action_high=(1.0,) * 3)
MEMBERS, ROWS, TURNS, WARM_UPS, CAPTURED = 7, 256, 20, 3, 32
TASKS, FARTHEST = ("Pendulum-v1", "Hopper-v5"), 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "error"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=int, default=5_000, help="transitions in the training set")
    parser.add_argument("--hidden", type=int, nargs="+", default=[200, 200, 200, 200], help="hidden layer widths")
    parser.add_argument("--picture", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    result = speed(args.device) if args.what == "speed" else errors(args.rows, args.hidden, args.device, args.picture)
    command = f"python benchmarks/dynamics.py {args.what} --device {args.device} --threads {args.threads}"
    command += f" --rows {args.rows} --hidden {' '.join(map(str, args.hidden))}" if args.what == "error" else ""
    plotted = {} if args.picture is None else {"picture": args.picture.name}
    print(json.dumps({**result, **plotted, "commands": [command], **provenance()}, indent=2))


class SameRows:
    """Returns the same batch every time, so that only updates are timed."""

    samples_on_device = True

    def __init__(self, batch: Batch, device: str) -> None:
        self.batch, self.generator = batch, torch.Generator(device)

    def sample(self, batch_size: int, members: tuple[int, ...] = ()) -> Batch:
        return self.batch


def speed(device: str) -> dict[str, Any]:
    shape = (MEMBERS, ROWS)
    batch = {
        "obs": torch.randn(*shape, 11), "actions": torch.rand(*shape, 3), "rewards": torch.randn(shape),
        "next_obs": torch.randn(*shape, 11), "dones": torch.zeros(shape),
    }  # fmt: skip
    batch = {name: column.to(device) for name, column in batch.items()}
    captured = device != "cpu"
    count = CAPTURED if captured else 1

    def updates(members: int, rows: Batch) -> Callable[[], object]:
        learner = Dynamics.build(HOPPER, model_members=members, model_elites=1).to(device)
        updater, source = Updater([learner], capture=captured), SameRows(rows, device)
        return lambda: updater.run(source, count)

    alone = [updates(1, {name: column[m : m + 1] for name, column in batch.items()}) for m in range(MEMBERS)]
    times = turns({"batched": updates(MEMBERS, batch), "loop": lambda: [step() for step in alone]}, device, count)
    gain = times["loop"]["best_ms"] / times["batched"]["best_ms"]
    return {
        "what": f"one gradient step of {MEMBERS} members, 4 x 200, {ROWS} rows each, on {device}",
        "result": f"{times['batched']['best_ms']:.2f} ms; {gain:.2f} times faster than a loop over members",
        "goal": f"{4 if captured else 1.3} times",
        "times": times,
    }


def turns(calls: dict[str, Callable[[], object]], device: str, count: int) -> dict[str, dict[str, float]]:
    """Milliseconds of one step of each, measured alternately."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(WARM_UPS + TURNS):
        for name, call in calls.items():
            before = time.perf_counter()
            call()
            if device != "cpu":
                torch.cuda.synchronize()
            if turn >= WARM_UPS:  # the turns before capture graphs and allocate memory
                seconds[name].append((time.perf_counter() - before) / count)
    ordered = {name: sorted(each) for name, each in seconds.items()}
    return {n: {"best_ms": 1e3 * e[TURNS // 20], "median_ms": 1e3 * e[TURNS // 2]} for n, e in ordered.items()}


def errors(rows: int, hidden: list[int], device: str, picture: Path | None) -> dict[str, Any]:
    curves = {}
    for env_id in TASKS:
        training, held_out = roll_dataset(env_id, rows=rows), roll_dataset(env_id, rows=2_000, seed=1)
        curves[env_id] = curve(fitted(training, hidden, device), held_out.to(device))
    if picture is not None:
        draw(curves, picture)
    parts = [f"{env_id} {curve[0]:.3f} one step ahead, {curve[4]:.3f} five" for env_id, curve in curves.items()]
    return {
        "what": f"error of a model of {rows:,} random steps on held-out ones, against 'next = current'",
        "result": "; ".join(parts),
        "goal": "0.5 one step ahead, 0.8 five",
        "errors": curves,
    }


def fitted(training: TransitionDataset, hidden: list[int], device: str) -> Dynamics:
    torch.manual_seed(0)
    options = {"model_hidden_sizes": tuple(hidden), "model_normalize_targets": True}
    dynamics = Dynamics.build(training.spec, None, **options).to(device)
    generator = torch.Generator(device).manual_seed(0)
    rows = BootstrapSampler(training.to(device), dynamics.model.members, generator)
    fit = ModelFit(dynamics, Updater([dynamics], capture=device != "cpu"), rows)
    fit.begin()
    while fit.running:
        fit.epoch()
    return dynamics


@torch.no_grad()
def curve(dynamics: Dynamics, held_out: TransitionDataset) -> list[float]:
    """RMSE by steps ahead, in standard deviations, divided by the RMSE of the current observation."""
    obs, actions, next_obs = (held_out.columns[name] for name in ("obs", "actions", "next_obs"))
    ends = held_out.episode_ends.long().cumsum(0) - held_out.episode_ends.long()  # the episode of each row
    starts = (ends[: 1 - FARTHEST] == ends[FARTHEST - 1 :]).nonzero().squeeze(1)  # with as many steps to come
    scale, seen = obs.std(0).clamp_min(1e-6), obs[starts]
    found = []
    for step in range(FARTHEST):
        means = dynamics.model(seen, actions[starts + step]).mean[dynamics.model.elites]
        seen = seen + means.mean(0)[:, :-1]
        truth = next_obs[starts + step]
        found.append(float(root_mean_square((seen - truth) / scale) / root_mean_square((obs[starts] - truth) / scale)))
    return found


def root_mean_square(errors: Tensor) -> Tensor:
    return errors.square().mean().sqrt()


def draw(curves: dict[str, list[float]], path: Path) -> None:
    from rl_training.reporting.plots import INK, PALETTE, new_figure, plain

    figure = new_figure(6, 3.6)
    axes = figure.subplots()
    for (name, values), colour in zip(curves.items(), PALETTE, strict=False):
        axes.plot(range(1, FARTHEST + 1), values, marker="o", label=name, color=colour)
    axes.axhline(1.0, color="grey", linestyle="--", label="predicting no change")
    axes.set(xlabel="steps ahead", ylabel="relative error", ylim=(0, 1.1))
    plain(axes)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9, labelcolor=INK)
    figure.savefig(path)


if __name__ == "__main__":
    main()
