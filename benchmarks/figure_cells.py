"""Cells of benchmarks/figures.py: configs to train with several seeds, each in minutes or hours on one CPU core."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

PENDULUM_REPLAY, CARTPOLE_REPLAY = "classic/pendulum_replay.h5", "classic/cartpole_replay.h5"
CARTPOLE_EXPERT = "experts/cartpole.npz"
FIVE_EPISODES = {"setting": "5 expert episodes", "dataset": None}
TEN_EPISODES = {"setting": "every 20th step of 10 expert episodes", "dataset": None}
HOPPER_EXPERT = "locomotion/hopper-expert.hdf5"


@dataclass(frozen=True)
class Cell:
    what: str
    train: str  # arguments of `rl-training train`
    goal: str
    published: str = ""
    data: str | None = None  # file below --data
    row: dict[str, Any] = field(default_factory=dict)  # fields of the row in the table that the command does not show


CELLS = {
    "iql_pendulum_replay": Cell(
        "IQL on d3rlpy's Pendulum replay, 20,000 updates", "iql/pendulum --steps 20000",
        goal="at least -175, and 30 above BC", data=PENDULUM_REPLAY,
    ),
    "bc_pendulum_replay": Cell(
        "BC on d3rlpy's Pendulum replay, 20,000 updates", "bc/pendulum --steps 20000",
        goal="", data=PENDULUM_REPLAY,
    ),
    "iql_cartpole_replay": Cell(
        "IQL on d3rlpy's CartPole replay, 5,000 updates", "iql/cartpole",
        goal="above BC, and within 5% of the best here", data=CARTPOLE_REPLAY,
    ),
    "cql_cartpole_replay": Cell(
        "CQL on d3rlpy's CartPole replay, 5,000 updates", "cql/cartpole",
        goal="", data=CARTPOLE_REPLAY,
    ),
    "bc_cartpole_replay": Cell(
        "BC on d3rlpy's CartPole replay, 5,000 updates", "bc/cartpole",
        goal="", data=CARTPOLE_REPLAY,
    ),
    "sac_pendulum": Cell(
        "SAC on Pendulum-v1, 20,000 steps", "sac/pendulum --steps 20000",
        goal="at least -170", published="-157 (RL Zoo)",
    ),
    "td3_pendulum": Cell(
        "TD3 on Pendulum-v1, 20,000 steps", "td3/pendulum --steps 20000",
        goal="at least -170", published="-152 (RL Zoo)",
    ),
    "redq_pendulum": Cell(
        "REDQ on Pendulum-v1, 1,500 steps", "redq/pendulum --steps 1500",
        goal="at least -170",
    ),
    "dqn_cartpole": Cell(
        "DQN on CartPole-v1, 50,000 steps", "dqn/cartpole --steps 50000",
        goal="at least 475", published="500 (RL Zoo)",
    ),
    "ppo_cartpole": Cell(
        "PPO on CartPole-v1, 100,000 steps", "ppo/cartpole --steps 100000",
        goal="at least 490", published="500 (RL Zoo)",
    ),
    "ppo_pendulum": Cell(
        "PPO on Pendulum-v1, 100,000 steps", "ppo/pendulum --steps 100000",
        goal="at least -200", published="-172 (RL Zoo)",
    ),
    "ppo_lunarlander": Cell(
        "PPO on LunarLander-v3, 1,000,000 steps", "ppo/lunarlander --steps 1000000",
        goal="at least 230", published="242 (RL Zoo, v2)",
    ),
    "ppo_halfcheetah": Cell(
        "PPO on HalfCheetah-v5, 1,000,000 steps", "ppo/halfcheetah --steps 1000000",
        goal="at least 4,500", published="5,819 (RL Zoo, v3)",
    ),
    "dqn_acrobot": Cell(
        "DQN on Acrobot-v1, 100,000 steps", "dqn/acrobot --steps 100000",
        goal="at least -90", published="-77 (RL Zoo)",
    ),
    "qr_dqn_acrobot": Cell(
        "QR-DQN on Acrobot-v1, 100,000 steps", "qr_dqn/acrobot --steps 100000",
        goal="at least -90", published="-69 (RL Zoo)",
    ),
    "mbpo_pendulum": Cell(
        "MBPO on Pendulum-v1, 4,000 steps", "mbpo/pendulum --steps 4000",
        goal="at least -250, and above SAC",
    ),
    "sac_pendulum_4k": Cell(
        "SAC on Pendulum-v1, 4,000 steps", "sac/pendulum --steps 4000",
        goal="",
    ),
    "gail_cartpole": Cell(
        "GAIL on fixed-horizon CartPole, 5 episodes, 300,000 steps", "gail/cartpole_fixed_horizon --steps 300000",
        goal="at least 0.9 of the 500 of those episodes", data=CARTPOLE_EXPERT, row=FIVE_EPISODES,
    ),
    "gail_cartpole_random_expert": Cell(
        "GAIL on fixed-horizon CartPole, a random expert, 300,000 steps",
        "gail/cartpole_fixed_horizon --steps 300000 --set expert_dataset_kind=random --set expert_dataset_size=2500",
        goal="under 100", row={"setting": "a random expert", "dataset": None},
    ),
    "bc_cartpole": Cell(
        "BC on fixed-horizon CartPole, the same 5 episodes", "bc/cartpole_fixed_horizon",
        goal="", data=CARTPOLE_EXPERT, row={**FIVE_EPISODES, "family": "imitation"},
    ),
    "gail_hopper": Cell(
        "GAIL on Hopper-v5, every 20th step of 10 expert episodes, 1,000,000 steps", "gail/hopper --steps 1000000",
        goal="at least 0.8 of the expert's 2,835, and above BC",
        published="3,615 (the paper, 11 episodes of an expert with 3,571)", data=HOPPER_EXPERT, row=TEN_EPISODES,
    ),
    "bc_hopper_expert": Cell(
        "BC on Hopper-v5, the same rows, 20,000 updates",
        "bc/hopper Hopper-v5 --steps 20000 --set dataset_episodes=10 --set dataset_stride=20",
        goal="", published="1,026 (the GAIL paper, 11 episodes)", data=HOPPER_EXPERT,
        row={**TEN_EPISODES, "family": "imitation"},
    ),
    "dreamer_catch": Cell(
        "Dreamer on Catch, 16x16 pixels, 5,000 steps", "dreamer/catch --steps 5000",
        goal="at least 0.8 within 15 minutes on 2 cores (random: -0.6)",
    ),
    "dreamer_cue_memory": Cell(
        "Dreamer on a cue shown six pictures before it is asked for, 2,400 steps", "dreamer/cue_memory --steps 2400",
        goal="at least 0.9",
    ),
}  # fmt: skip

# Packaged configs on the random transitions that they generate, within minutes.
RANDOM_DATA = (
    "bcq/cartpole", "xql/cartpole", "cql/pendulum", "cal_ql/pendulum", "td3_bc/pendulum", "rebrac/pendulum",
    "xql/pendulum", "awac/pendulum", "edac/pendulum", "fql/pendulum", "mopo/pendulum",
)  # fmt: skip
CELLS |= {
    f"{name.replace('/', '_')}_random": Cell(f"{name} on random transitions", name, "", row={"dataset": "random data"})
    for name in RANDOM_DATA
}
# Packaged configs online, from minutes to a day.
ONLINE = (
    "dreamer/signed_side", "tqc/pendulum", "crossq/pendulum", "qr_dqn/lunarlander", "ppo/lunarlander_continuous",
    "ppo/hopper", "ppo/walker2d",
    "sac/lunarlander", "td3/lunarlander", "redq/lunarlander", "redq/halfcheetah", "redq/walker2d",
)  # fmt: skip
CELLS |= {name.replace("/", "_"): Cell(name, name, "") for name in ONLINE}
CELLS["gail_cartpole_any_expert"] = Cell(
    "GAIL on CartPole, 5 episodes", "gail/cartpole", "", data=CARTPOLE_EXPERT, row=FIVE_EPISODES
)
