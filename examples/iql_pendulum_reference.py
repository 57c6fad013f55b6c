"""IQL on transitions of a random policy in Pendulum, compared with BC on the same data.

python examples/iql_pendulum_reference.py --steps 5000
"""

from reference import make_parser, train_and_score

from rl_training import BC, IQL, load_config

if __name__ == "__main__":
    arguments = make_parser(__file__, __doc__, steps=5_000).parse_args()
    train_and_score(BC, load_config("bc/pendulum"), arguments)
    train_and_score(IQL, load_config("iql/pendulum"), arguments)
