"""MBPO on Pendulum, compared with SAC with the same networks and as many environment steps.

python examples/mbpo_pendulum_reference.py --steps 2000
"""

from reference import make_parser, train_and_score

from rl_training import MBPO, SAC, load_config

SHARED = ("learning_starts", "learning_rate", "batch_size", "hidden_sizes", "gamma", "tau")

if __name__ == "__main__":
    arguments = make_parser(__file__, __doc__, steps=2_000).parse_args()
    mbpo = load_config("mbpo/pendulum")
    options = {name: value for name, value in mbpo["algo_kwargs"].items() if name in SHARED}
    train_and_score(SAC, {**mbpo, "algo": "sac", "algo_kwargs": options}, arguments)
    train_and_score(MBPO, mbpo, arguments)
