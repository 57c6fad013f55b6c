"""What `make demo` runs: an agent that learns to swing a pendulum up from random data alone."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from rl_training import IQL, load_config
from rl_training.reporting.plots import save_learning_curve
from rl_training.runtime.evaluation import evaluate
from rl_training.runtime.policies import RandomPolicy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, help="updates (the packaged config's number if left out)")
    parser.add_argument("--output", default="runs/demo", help="the run directory")
    parser.add_argument("--fresh", action="store_true", help="start over where a run is there already")
    arguments = parser.parse_args()
    budget = {} if arguments.steps is None else {"total_timesteps": arguments.steps}
    agent = IQL(load_config("iql/pendulum"), output_dir=arguments.output, **budget)
    print(f"Implicit Q-learning on {agent.config.env_id}: the data are 50,000 steps of a policy that acts at random.")
    began = time.monotonic()
    agent.learn(fresh=arguments.fresh, quiet=False)
    learned = agent.evaluate(num_episodes=20)
    random = evaluate(RandomPolicy(agent.agent.spec), agent.config.env_id, episodes=20, seed=0, deterministic=False)
    print(f"\nTrained in {time.monotonic() - began:.0f} s. Mean return of 20 episodes (0 is perfect):")
    print(f"  random policy, which made the data  {random.summary()['return_mean']:8.0f}")
    print(f"  what IQL learned from it            {learned['return_mean']:8.0f}")
    run = Path(arguments.output)
    print(f"\nrun         {run}")
    print(f"curve       {save_learning_curve(run)}")
    print(f"checkpoint  {agent.agent.path}")
    print(f"\nnext: .venv/bin/rl-training evaluate {run}    or    .venv/bin/rl-training train ppo/cartpole")


if __name__ == "__main__":
    main()
