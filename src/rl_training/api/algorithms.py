"""Two lines an algorithm: its managed class, and the function that trains it from a config."""

from functools import partial

from rl_training.api.managed import ManagedAlgorithm, train_as


class BC(ManagedAlgorithm):
    algorithm = "bc"


class C51(ManagedAlgorithm):
    algorithm = "c51"


class CalQL(ManagedAlgorithm):
    algorithm = "cal_ql"


class CQL(ManagedAlgorithm):
    algorithm = "cql"


class DQN(ManagedAlgorithm):
    algorithm = "dqn"


class Dreamer(ManagedAlgorithm):
    algorithm = "dreamer"


class FQF(ManagedAlgorithm):
    algorithm = "fqf"


class GAIL(ManagedAlgorithm):
    algorithm = "gail"


class IQL(ManagedAlgorithm):
    algorithm = "iql"


class IQN(ManagedAlgorithm):
    algorithm = "iqn"


class MBPO(ManagedAlgorithm):
    algorithm = "mbpo"


class MOPO(ManagedAlgorithm):
    algorithm = "mopo"


class PPO(ManagedAlgorithm):
    algorithm = "ppo"


class QRDQN(ManagedAlgorithm):
    algorithm = "qr_dqn"


class Rainbow(ManagedAlgorithm):
    algorithm = "rainbow"


class REDQ(ManagedAlgorithm):
    algorithm = "redq"


class SAC(ManagedAlgorithm):
    algorithm = "sac"


class TD3(ManagedAlgorithm):
    algorithm = "td3"


class TD3BC(ManagedAlgorithm):
    algorithm = "td3_bc"


class XQL(ManagedAlgorithm):
    algorithm = "xql"


train_bc = partial(train_as, "bc")
train_c51 = partial(train_as, "c51")
train_cal_ql = partial(train_as, "cal_ql")
train_cql = partial(train_as, "cql")
train_dqn = partial(train_as, "dqn")
train_dreamer = partial(train_as, "dreamer")
train_fqf = partial(train_as, "fqf")
train_gail = partial(train_as, "gail")
train_iql = partial(train_as, "iql")
train_iqn = partial(train_as, "iqn")
train_mbpo = partial(train_as, "mbpo")
train_mopo = partial(train_as, "mopo")
train_ppo = partial(train_as, "ppo")
train_qr_dqn = partial(train_as, "qr_dqn")
train_rainbow = partial(train_as, "rainbow")
train_redq = partial(train_as, "redq")
train_sac = partial(train_as, "sac")
train_td3 = partial(train_as, "td3")
train_td3_bc = partial(train_as, "td3_bc")
train_xql = partial(train_as, "xql")
