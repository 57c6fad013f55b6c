"""Adversarial imitation on CartPole with a fixed horizon, with cloning of the same five episodes beside it.

python examples/gail_cartpole_reference.py --steps 200000
"""

from __future__ import annotations

import argparse

from rl_training import BC, GAIL, PPO, load_config

ENV = "FixedHorizonCartPole-v0"
UPDATES = 5_000  # of cloning, at most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200_000, help="steps of the expert, and of its imitator")
    parser.add_argument("--expert", help="a file of episodes; without one, an expert is trained first")
    parser.add_argument("--output", default="runs/gail-cartpole-reference", help="where the runs go")
    parser.add_argument("--fresh", action="store_true", help="start over where a run is there already")
    arguments = parser.parse_args()
    dataset = arguments.expert or trained_expert(arguments.steps, f"{arguments.output}/expert", arguments.fresh)
    for name, managed, steps in (("gail", GAIL, arguments.steps), ("bc", BC, min(arguments.steps, UPDATES))):
        config = load_config(f"{name}/cartpole_fixed_horizon")
        output = f"{arguments.output}/{name}"
        agent = managed(config, dataset=dataset, total_timesteps=steps, output_dir=output).learn(fresh=arguments.fresh)
        print(f"{name}: return {agent.evaluate(num_episodes=10)['return_mean']:.0f}")


def trained_expert(steps: int, output: str, fresh: bool) -> dict[str, object]:
    """A recipe for eight episodes of a policy that learned from the environment's own rewards."""
    expert = PPO(
        load_config("ppo/cartpole"),
        env_id=ENV,
        total_timesteps=steps,
        output_dir=output,
        num_steps=256,
        batch_size=64,
        epochs=10,
        gamma=0.99,
        gae_lambda=0.95,
    )
    expert.learn(fresh=fresh)
    print(f"expert: {expert.evaluate(num_episodes=10)['return_mean']:.0f}")
    return {"kind": "policy", "policy": output, "rows": 8 * 500}


if __name__ == "__main__":
    main()
