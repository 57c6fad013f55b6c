"""Trains an agent to swing a pendulum up from the data of a random policy. `make demo` runs this."""

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
    parser.add_argument("--steps", type=int, help="updates (default: as in the packaged config)")
    parser.add_argument("--output", default="runs/demo", help="the run directory")
    parser.add_argument("--fresh", action="store_true", help="replace an existing run")
    arguments = parser.parse_args()
    budget = {} if arguments.steps is None else {"total_timesteps": arguments.steps}
    agent = IQL(load_config("iql/pendulum"), output_dir=arguments.output, **budget)
    print(f"Implicit Q-learning on {agent.config.env_id}: the data are 50,000 steps of a random policy.")
    start = time.monotonic()
    agent.learn(fresh=arguments.fresh, quiet=False)
    trained = agent.evaluate(num_episodes=20)
    random = evaluate(RandomPolicy(agent.agent.spec), agent.config.env_id, episodes=20, seed=0, deterministic=False)
    print(f"\nTrained in {time.monotonic() - start:.0f} s. Mean return of 20 episodes (the best possible is about 0):")
    print(f"  random policy (its data are learned from)  {random.summary()['return_mean']:8.0f}")
    print(f"  IQL                                        {trained['return_mean']:8.0f}")
    run = Path(arguments.output)
    print(f"\nrun         {run}")
    print(f"curve       {save_learning_curve(run)}")
    print(f"checkpoint  {agent.agent.path}")
    print(f"\nnext: .venv/bin/rl-training evaluate {run}    or    .venv/bin/rl-training train ppo/cartpole")


if __name__ == "__main__":
    main()
