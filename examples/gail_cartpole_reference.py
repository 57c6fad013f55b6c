"""GAIL on CartPole with a fixed horizon, compared with BC on the same five expert episodes.

python examples/gail_cartpole_reference.py --steps 200000
"""

from typing import Any

from reference import make_parser, train_and_score

from rl_training import BC, GAIL, PPO, load_config

MAX_BC_UPDATES = 5_000
EXPERT = {"num_steps": 256, "batch_size": 64, "epochs": 10, "gamma": 0.99, "gae_lambda": 0.95}


def main() -> None:
    parser = make_parser(__file__, __doc__, steps=200_000)
    parser.add_argument("--expert", help="file with expert episodes (default: train a PPO expert first)")
    arguments = parser.parse_args()
    dataset: str | dict[str, Any] = arguments.expert
    if arguments.expert is None:
        expert = {**load_config("ppo/cartpole"), "env_id": "FixedHorizonCartPole-v0"}
        train_and_score(PPO, expert, arguments, name="expert", episodes=10, **EXPERT)
        dataset = {"kind": "policy", "policy": str(arguments.output / "expert"), "rows": 8 * 500}
    options: dict[str, Any] = {"dataset": dataset, "episodes": 10}
    train_and_score(GAIL, load_config("gail/cartpole_fixed_horizon"), arguments, **options)
    updates = min(arguments.steps, MAX_BC_UPDATES)
    train_and_score(BC, load_config("bc/cartpole_fixed_horizon"), arguments, total_timesteps=updates, **options)


if __name__ == "__main__":
    main()
