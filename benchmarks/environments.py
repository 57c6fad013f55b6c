"""Trains and evaluates an agent in public environments for a few steps: does every one of them run as it is?

python benchmarks/environments.py [--families NAME ...] > benchmarks/results/environments.json

Needs the extras mujoco, box2d and atari, and the packages minigrid, highway-env and gymnasium-robotics.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from command_line import COMMAND, SINGLE_THREADED, shown
from provenance import provenance

GOAL = 30
TIMEOUT = 300  # seconds of one command
OFF_POLICY = "--steps 150 --set learning_starts=100 --set hidden_sizes=[32,32]"
OPTIONS = {
    "ppo": "--steps 128 --set num_steps=64",
    "dqn": OFF_POLICY, "rainbow": OFF_POLICY, "sac": OFF_POLICY, "td3": OFF_POLICY,
    "redq": f"{OFF_POLICY} --set updates_per_collect=2",
    "dreamer": "--steps 150 --set learning_starts=100 --set size=tiny --set window=16 --set train_ratio=8",
}  # fmt: skip
EVERYWHERE = "--set eval_interval=0 --set eval_max_steps=200 --device cpu --threads 1 --json"
ENVIRONMENTS = {
    "classic control": (
        "ppo CartPole-v1", "dqn Acrobot-v1", "dqn MountainCar-v0", "sac MountainCarContinuous-v0", "sac Pendulum-v1",
    ),
    "toy text": ("ppo FrozenLake-v1", "dqn FrozenLake8x8-v1", "dqn Taxi-v4", "dqn CliffWalking-v1", "ppo Blackjack-v1"),
    "Box2D": (
        "ppo CarRacing-v3", "sac BipedalWalker-v3", "dqn LunarLander-v3", "td3 LunarLanderContinuous-v3",
    ),
    "MuJoCo": (
        "sac Hopper-v5", "td3 HalfCheetah-v5", "ppo Ant-v5", "redq Walker2d-v5", "ppo Humanoid-v5", "sac Reacher-v5",
        "sac InvertedPendulum-v5",
    ),
    "ALE": (
        "dqn ALE/Breakout-v5", "ppo ALE/Pong-v5", "rainbow ALE/Seaquest-v5",
        "ppo ALE/Boxing-v5 --set env_kwargs.preprocess=false --set env_kwargs.obs_type=ram",
    ),
    "MiniGrid": (
        "ppo minigrid:MiniGrid-Empty-5x5-v0", "dqn minigrid:MiniGrid-DoorKey-5x5-v0",
        "ppo minigrid:MiniGrid-FourRooms-v0", "dreamer minigrid:MiniGrid-MultiRoom-N2-S4-v0",
        "ppo minigrid:BabyAI-GoToObj-v0",
    ),
    "highway-env": (
        "dqn highway_env:highway-fast-v0", "ppo highway_env:merge-v0", "ppo highway_env:roundabout-v0",
        "sac highway_env:parking-v0", "sac highway_env:racetrack-v0", "td3 highway_env:intersection-v1",
        "dqn highway_env:two-way-v0",
    ),
    "Gymnasium-Robotics": (
        "sac gymnasium_robotics:PointMaze_UMaze-v3", "ppo gymnasium_robotics:PointMaze_Medium-v3",
        "td3 gymnasium_robotics:AntMaze_UMaze-v5", "sac gymnasium_robotics:AdroitHandDoor-v1",
        "sac gymnasium_robotics:FetchReach-v4", "sac gymnasium_robotics:FrankaKitchen-v1",
    ),
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--families", nargs="+", choices=ENVIRONMENTS, default=list(ENVIRONMENTS), metavar="NAME",
        help=", ".join(ENVIRONMENTS),
    )  # fmt: skip
    families = parser.parse_args().families
    rows = [try_environment(family, text) for family in families for text in ENVIRONMENTS[family]]
    running = sum(row["runs"] for row in rows)
    print(json.dumps({
        "what": "public environments that train, and evaluate from the checkpoint, as they are",
        "result": f"{running} of {len(rows)} environments run", "goal": f"at least {GOAL}",
        "commands": [shown(["train", "ALGO", "ID", "..."]), "rl-training evaluate RUN --episodes 1"],
        "environments": rows, **provenance(),
    }, indent=2))  # fmt: skip
    return 0 if running >= GOAL or len(families) < len(ENVIRONMENTS) else 1


def try_environment(family: str, text: str) -> dict[str, Any]:
    """Trains and evaluates; the row has the error message of the command that failed."""
    algo, env_id, *options = shlex.split(text)
    began = time.monotonic()
    row: dict[str, Any] = {"family": family, "environment": env_id, "algorithm": algo, "runs": False}
    row |= {"options": options} if options else {}
    with tempfile.TemporaryDirectory(prefix="environments_") as folder:
        run = Path(folder) / "run"
        short = shlex.split(f"{OPTIONS[algo]} {EVERYWHERE}")
        _, spaces, error = call(["train", algo, env_id, *options, *short, "--set", f"output_dir={run}"])
        row["spaces"] = spaces
        if error is None:
            answer, _, error = call(["evaluate", str(run), "--episodes", "1", "--json"])
            row |= {} if answer is None else {"runs": True, "return": answer["return_mean"]}
    row |= {} if error is None else {"error": error}
    print(f"{'runs ' if row['runs'] else 'FAILS'} {algo:8} {env_id}: {error or row['spaces']}", file=sys.stderr)
    return {**row, "seconds": round(time.monotonic() - began, 1)}


def call(arguments: list[str]) -> tuple[dict[str, Any] | None, str, str | None]:
    """Returns the JSON answer, what the command says of the spaces, and its error."""
    try:
        ended = subprocess.run(
            [*COMMAND, *arguments], env=SINGLE_THREADED, capture_output=True, text=True, timeout=TIMEOUT
        )
    except subprocess.TimeoutExpired:
        return None, "", f"took longer than {TIMEOUT} s"
    spaces = next((line for line in ended.stderr.splitlines() if " in, " in line and " out" in line), "")
    if ended.returncode:
        return None, spaces, ended.stderr.strip().splitlines()[-1]
    return json.loads(ended.stdout), spaces.partition(": ")[2].partition(";")[0], None


if __name__ == "__main__":
    sys.exit(main())
