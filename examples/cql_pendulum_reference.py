"""Conservative Q-learning on random Pendulum rows, with BC of the same rows beside it.

python examples/cql_pendulum_reference.py --steps 5000
"""

from __future__ import annotations

import argparse

from rl_training import BC, CQL, load_config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5000, help="updates of each learner")
    parser.add_argument("--output", default="runs/cql-pendulum-reference", help="where the two runs go")
    parser.add_argument("--fresh", action="store_true", help="start over where a run is there already")
    arguments = parser.parse_args()
    for name, managed in (("bc", BC), ("cql", CQL)):
        config = load_config(f"{name}/pendulum")
        agent = managed(config, total_timesteps=arguments.steps, output_dir=f"{arguments.output}/{name}")
        agent.learn(fresh=arguments.fresh)
        print(f"{name}: return {agent.evaluate(num_episodes=20)['return_mean']:.0f}")


if __name__ == "__main__":
    main()
