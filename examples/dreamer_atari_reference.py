"""Dreamer on Breakout, with DQN for as many steps beside it; both need the extra atari, and long runs a GPU.

python examples/dreamer_atari_reference.py --steps 50000
"""

from __future__ import annotations

import argparse

from rl_training import DQN, Dreamer, load_config

LONGEST = 108_000  # frames of a game, as scores are told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50_000, help="environment steps of each learner")
    parser.add_argument("--output", default="runs/dreamer-atari-reference", help="where the two runs go")
    parser.add_argument("--fresh", action="store_true", help="start over where a run is there already")
    arguments = parser.parse_args()
    frames = min(LONGEST, 100 * arguments.steps)  # a short try is scored on short games
    for name, managed in (("dqn", DQN), ("dreamer", Dreamer)):
        config = load_config(f"{name}/breakout_atari")
        games = {**config["env_kwargs"], "max_num_frames_per_episode": frames}
        output = f"{arguments.output}/{name}"
        options = {"env_kwargs": games, "total_timesteps": arguments.steps, "eval_interval": 0, "output_dir": output}
        agent = managed(config, **options).learn(fresh=arguments.fresh)
        print(f"{name}: return {agent.evaluate(num_episodes=5)['return_mean']:.1f}")


if __name__ == "__main__":
    main()
