"""REDQ on Pendulum with small networks and fast rates, with SAC of the same settings and as many steps beside it.

python examples/redq_pendulum_reference.py --steps 750
"""

from __future__ import annotations

import argparse

from rl_training import REDQ, SAC

SHARED = {"learning_starts": 300, "learning_rate": 3e-3, "batch_size": 64, "hidden_sizes": [64, 64], "gamma": 0.95}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=750, help="steps of each learner in the environment")
    parser.add_argument("--output", default="runs/redq-pendulum-reference", help="where the two runs go")
    arguments = parser.parse_args()
    many_updates = {"num_critics": 5, "updates_per_collect": 8, "policy_delay": 4}
    for name, managed, own in (("sac", SAC, {}), ("redq", REDQ, many_updates)):
        agent = managed(
            "Pendulum-v1", total_timesteps=arguments.steps, output_dir=f"{arguments.output}/{name}", tau=0.02,
            **SHARED, **own,
        )  # fmt: skip
        print(f"{name}: return {agent.learn().evaluate(num_episodes=20)['return_mean']:.0f}")


if __name__ == "__main__":
    main()
