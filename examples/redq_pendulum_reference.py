"""REDQ on Pendulum, compared with SAC with the same networks and as many environment steps.

python examples/redq_pendulum_reference.py --steps 750
"""

from reference import make_parser, train_and_score

from rl_training import REDQ, SAC, load_config

REDQ_ONLY = ("num_critics", "updates_per_collect", "policy_delay")

if __name__ == "__main__":
    arguments = make_parser(__file__, __doc__, steps=750).parse_args()
    redq = load_config("redq/pendulum")
    sac_options = {name: value for name, value in redq["algo_kwargs"].items() if name not in REDQ_ONLY}
    train_and_score(SAC, {**redq, "algo": "sac", "algo_kwargs": sac_options}, arguments)
    train_and_score(REDQ, redq, arguments)
