"""Two lines an algorithm: its managed class, and the function that trains it from a config."""

from functools import partial

from rl_training.api.managed import ManagedAlgorithm, train_as


class BC(ManagedAlgorithm):
    algorithm = "bc"


class CalQL(ManagedAlgorithm):
    algorithm = "cal_ql"


class CQL(ManagedAlgorithm):
    algorithm = "cql"


class DQN(ManagedAlgorithm):
    algorithm = "dqn"


class IQL(ManagedAlgorithm):
    algorithm = "iql"


class PPO(ManagedAlgorithm):
    algorithm = "ppo"


class SAC(ManagedAlgorithm):
    algorithm = "sac"


class TD3BC(ManagedAlgorithm):
    algorithm = "td3_bc"


class XQL(ManagedAlgorithm):
    algorithm = "xql"


train_bc = partial(train_as, "bc")
train_cal_ql = partial(train_as, "cal_ql")
train_cql = partial(train_as, "cql")
train_dqn = partial(train_as, "dqn")
train_iql = partial(train_as, "iql")
train_ppo = partial(train_as, "ppo")
train_sac = partial(train_as, "sac")
train_td3_bc = partial(train_as, "td3_bc")
train_xql = partial(train_as, "xql")
