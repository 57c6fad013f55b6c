"""MBPO on Pendulum, with SAC of the same networks and as many real steps beside it.

python examples/mbpo_pendulum_reference.py --steps 2000
"""

from __future__ import annotations

import argparse

from rl_training import MBPO, SAC, load_config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000, help="steps of each learner in the environment")
    parser.add_argument("--output", default="runs/mbpo-pendulum-reference", help="where the two runs go")
    parser.add_argument("--fresh", action="store_true", help="start over where a run is there already")
    arguments = parser.parse_args()
    config = load_config("mbpo/pendulum")
    shared = ("learning_starts", "learning_rate", "batch_size", "hidden_sizes", "gamma", "tau")
    options = {name: value for name, value in config["algo_kwargs"].items() if name in shared}
    beside = {**config, "algo": "sac", "algo_kwargs": options}
    for name, managed, chosen in (("sac", SAC, beside), ("mbpo", MBPO, config)):
        agent = managed(chosen, total_timesteps=arguments.steps, output_dir=f"{arguments.output}/{name}")
        agent.learn(fresh=arguments.fresh)
        print(f"{name}: return {agent.evaluate(num_episodes=20)['return_mean']:.0f}")


if __name__ == "__main__":
    main()
