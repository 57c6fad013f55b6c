"""Fully parameterized quantiles on CartPole, with DQN in its own packaged setting beside it.

python examples/fqf_cartpole_reference.py --steps 50000
"""

from __future__ import annotations

import argparse

from rl_training import DQN, FQF, load_config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50_000, help="environment steps of each learner")
    parser.add_argument("--output", default="runs/fqf-cartpole-reference", help="where the two runs go")
    parser.add_argument("--fresh", action="store_true", help="start over where a run is there already")
    arguments = parser.parse_args()
    for name, managed in (("dqn", DQN), ("fqf", FQF)):
        config = load_config(f"{name}/cartpole")
        agent = managed(config, total_timesteps=arguments.steps, output_dir=f"{arguments.output}/{name}")
        agent.learn(fresh=arguments.fresh)
        print(f"{name}: return {agent.evaluate(num_episodes=20)['return_mean']:.0f}")


if __name__ == "__main__":
    main()
