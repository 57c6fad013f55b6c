"""FQF on CartPole, compared with DQN, each with its packaged config.

python examples/fqf_cartpole_reference.py --steps 50000
"""

from reference import make_parser, train_and_score

from rl_training import DQN, FQF, load_config

if __name__ == "__main__":
    arguments = make_parser(__file__, __doc__, steps=50_000).parse_args()
    train_and_score(DQN, load_config("dqn/cartpole"), arguments)
    train_and_score(FQF, load_config("fqf/cartpole"), arguments)
