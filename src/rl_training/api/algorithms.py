"""Two lines an algorithm: its managed class, and the function that trains it from a config."""

from functools import partial

from rl_training.api.managed import ManagedAlgorithm, train_as


class BC(ManagedAlgorithm):
    algorithm = "bc"


class DQN(ManagedAlgorithm):
    algorithm = "dqn"


class IQL(ManagedAlgorithm):
    algorithm = "iql"


class PPO(ManagedAlgorithm):
    algorithm = "ppo"


class SAC(ManagedAlgorithm):
    algorithm = "sac"


train_bc = partial(train_as, "bc")
train_dqn = partial(train_as, "dqn")
train_iql = partial(train_as, "iql")
train_ppo = partial(train_as, "ppo")
train_sac = partial(train_as, "sac")
