"""Measures how exactly exported policies repeat their agents.

python benchmarks/export_parity.py > benchmarks/results/export_parity.json

Trains every algorithm of the catalogue for 300 to 4,096 steps with its default networks (Dreamer: its smallest),
exports it as ONNX and as torch.export, and compares both files with the agent on real observations. Further cases have
images, Dict observations, MultiDiscrete actions, normalised observations, masks, an LSTM and SimBa networks.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from provenance import provenance

import rl_training
from rl_training.algorithms import ROWS
from rl_training.experiment.agent import Agent
from rl_training.experiment.export.exporting import export_agent
from rl_training.experiment.export.parity import Parity, ParityError

TOLERANCE = 1e-5
FORMATS = ("onnx", "pt2")
SHORT_MODEL = {
    "model_max_epochs": 2, "model_hidden_sizes": [64], "rollout_batch_size": 400, "model_members": 3, "model_elites": 2,
}  # fmt: skip
ONLINE = {"total_timesteps": 1_000, "learning_starts": 500}
WIDE = {"total_timesteps": 600, "learning_starts": 500}
OFFLINE = {"total_timesteps": 300, "dataset": {"kind": "random", "rows": 2_000}}
VALUES = {"total_timesteps": 1_000, "learning_starts": 500}
DREAM = {"total_timesteps": 300, "learning_starts": 200, "size": "tiny", "batch_size": 4}


class Levers(gym.Env[Any, Any]):
    """Pays for pulling three levers as the observation shows."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-1, 1, (3,), np.float32)
        self.action_space = spaces.MultiDiscrete([2, 3, 4], start=[1, 0, 5])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._shown(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        wanted = [1 + (self.shown[0] > 0), (self.shown[1] > -0.3) + (self.shown[1] > 0.3), 5 + 3 * (self.shown[2] > 0)]
        ended = self.np_random.random() < 0.05
        return self._shown(), float(np.equal(action, wanted).mean()), bool(ended), False, {}

    def _shown(self) -> Any:
        self.shown = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        return self.shown


class Camera(Levers):
    """The same with an image, channels last, and a number beside it."""

    def __init__(self) -> None:
        super().__init__()
        image, number = spaces.Box(0, 255, (12, 12, 3), np.uint8), spaces.Box(-1, 1, (1,))
        self.observation_space = spaces.Dict({"image": image, "third": number, "sign": spaces.Discrete(2)})

    def _shown(self) -> Any:
        shown = super()._shown()
        image = self.np_random.integers(0, 50, (12, 12, 3), dtype=np.uint8)
        image[:6, :, 0] = 127 + 127 * shown[0]
        image[:, 6:, 1] = 127 + 127 * shown[1]
        return {"image": image, "third": shown[2:], "sign": np.int64(shown[2] > 0)}


CASES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    **{algo: (algo, "Pendulum-v1", OFFLINE) for algo in ("awac", "bc", "cal_ql", "cql", "edac", "fql", "iql")},
    **{algo: (algo, "Pendulum-v1", OFFLINE) for algo in ("rebrac", "td3_bc", "xql")},
    "bcq": ("bcq", "CartPole-v1", OFFLINE),
    **{algo: (algo, "Pendulum-v1", ONLINE) for algo in ("sac", "td3")},
    **{algo: (algo, "Pendulum-v1", WIDE) for algo in ("crossq", "tqc")},
    **{algo: (algo, "CartPole-v1", VALUES) for algo in ("dqn", "qr_dqn", "iqn", "fqf", "c51", "rainbow")},
    "redq": ("redq", "Pendulum-v1", {"total_timesteps": 510, "learning_starts": 500}),
    "ppo": ("ppo", "CartPole-v1", {"total_timesteps": 4_096}),
    "pqn": ("pqn", "CartPole-v1", {"total_timesteps": 4_096}),
    "gail": ("gail", "CartPole-v1", {"total_timesteps": 4_096, "dataset": {"kind": "random", "rows": 2_000}}),
    "mbpo": (
        "mbpo", "Pendulum-v1",
        {"total_timesteps": 210, "learning_starts": 200, "updates_per_collect": 2, **SHORT_MODEL},
    ),
    "mopo": ("mopo", "Pendulum-v1", {**OFFLINE, **SHORT_MODEL}),
    "dreamer": ("dreamer", "CartPole-v1", DREAM),
    "dreamer, Box actions": ("dreamer", "Pendulum-v1", DREAM),
    "dreamer, images": ("dreamer", "Catch-v0", DREAM),
    "dqn, images": ("dqn", "Catch-v0", VALUES),
    "rainbow, noisy": ("rainbow", "CartPole-v1", {**VALUES, "noisy": True}),
    "cql, Discrete actions": ("cql", "CartPole-v1", OFFLINE),
    "sac, Discrete actions": ("sac", "CartPole-v1", ONLINE),
    "sac, simba": ("sac", "Pendulum-v1", {**WIDE, "network": "simba"}),
    "ppo, LSTM": ("ppo", "CartPole-v1", {"total_timesteps": 4_096, "network": {"memory": "lstm"}}),
    "ppo, action masks": ("ppo", "CombinationLock-v0", {"total_timesteps": 4_096}),
    "ppo, normalised observations": ("ppo", "Pendulum-v1", {"total_timesteps": 4_096, "normalize_obs": True}),
    "ppo, MultiDiscrete actions": ("ppo", Levers, {"total_timesteps": 4_096}),
    "ppo, Dict of image, number and Discrete": ("ppo", Camera, {"total_timesteps": 4_096, "num_steps": 512}),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--observations", type=int, default=4_096, help="observations of each comparison")
    parser.add_argument("--case", action="append", choices=[*CASES], metavar="NAME", help="one case; repeatable")
    args = parser.parse_args()
    torch.set_num_threads(1)
    measured = [measure(name, args.observations) for name in args.case or CASES]
    worst = max(max(each[kind]["errors"].values()) for each in measured for kind in FORMATS)
    other = sum(each[kind]["other_actions"] for each in measured for kind in FORMATS)
    covered = {each["algorithm"] for each in measured}
    print(json.dumps({
        "what": f"Exported policies against their agents: {len(measured)} cases, {len(covered)} of {len(ROWS)} "
        f"algorithms, {args.observations:,} observations each",
        "result": f"largest relative error {worst:.1e}; {other} actions differ without a tie",
        "goal": f"at most {TOLERANCE:g}; 0 actions",
        "measure": "|a - b| / max(|b|, root mean square of b); Box actions: half their range",
        "cases": measured, **provenance(),
    }, indent=2))  # fmt: skip


def measure(name: str, observations: int) -> dict[str, Any]:
    """Trains, exports and compares one case."""
    algo, env, options = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        managed = getattr(rl_training, ROWS[algo])
        run = {"output_dir": f"{folder}/run", "eval_interval": 0, "log": []}
        agent = managed(env, **{**options, **run}).learn().agent
        found: dict[str, Any] = {"case": name, "algorithm": algo, "environment": getattr(env, "__name__", env)}
        for kind in FORMATS:
            path = Path(folder) / f"policy.{kind}"
            parity = parity_of(agent, path, observations)
            other = parity.observations - parity.equal_actions - parity.ties
            found[kind] = {
                "observations": parity.observations, "errors": parity.errors, "scales": parity.scales,
                "other_actions": other, "ties": parity.ties,
            }  # fmt: skip
    worst = max(found["onnx"]["errors"].values())
    print(f"{name}: {worst:.1e}, {found['onnx']['other_actions']} other actions", file=sys.stderr, flush=True)
    return found


def parity_of(agent: Agent, path: Path, observations: int) -> Parity:
    try:
        return export_agent(agent, path, observations=observations, tolerance=TOLERANCE).parity
    except ParityError as error:
        return error.parity


if __name__ == "__main__":
    main()
