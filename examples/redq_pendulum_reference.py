"""REDQ on Pendulum, with SAC of the same networks and as many steps beside it.

python examples/redq_pendulum_reference.py --steps 750
"""

from __future__ import annotations

import argparse

from rl_training import REDQ, SAC, load_config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=750, help="steps of each learner in the environment")
    parser.add_argument("--output", default="runs/redq-pendulum-reference", help="where the two runs go")
    parser.add_argument("--fresh", action="store_true", help="start over where a run is there already")
    arguments = parser.parse_args()
    config = load_config("redq/pendulum")
    many_updates = ("num_critics", "updates_per_collect", "policy_delay")
    shared = {name: value for name, value in config["algo_kwargs"].items() if name not in many_updates}
    beside = {**config, "algo": "sac", "algo_kwargs": shared}
    for name, managed, chosen in (("sac", SAC, beside), ("redq", REDQ, config)):
        agent = managed(chosen, total_timesteps=arguments.steps, output_dir=f"{arguments.output}/{name}")
        agent.learn(fresh=arguments.fresh)
        print(f"{name}: return {agent.evaluate(num_episodes=20)['return_mean']:.0f}")


if __name__ == "__main__":
    main()
