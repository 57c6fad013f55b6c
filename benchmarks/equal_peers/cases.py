"""Which updates are compared: the settings of both sides, the noise of a loss and the order of optimizer steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

GOAL = 1e-5  # largest difference of a parameter after the first number of updates
AFTER_WARM_UP = 200_000  # updates, after which CrossQ corrects the statistics of a batch by the running ones
SAMPLES = 10  # CQL: actions of each kind


@dataclass(frozen=True)
class Draw:
    """Random numbers of one update, [rows, action_dim] or [samples, rows, action_dim]."""

    name: str
    samples: int = 0
    uniform: bool = False  # in [-1, 1], otherwise standard normal
    every: int = 1  # drawn at every second, third, ... update only


@dataclass(frozen=True)
class Case:
    what: str
    peer: str  # script and venv: sb3, corl or corl_jax
    algo: str
    options: dict[str, Any]
    order: str  # of the optimizer steps of one update
    discrete: bool = False
    masked: bool = False  # the last columns of the observations are a mask of valid actions
    draws: tuple[Draw, ...] = ()  # in the order in which the loss of rl_training draws them
    phases: tuple[str, ...] = ()  # optimizer steps of rl_training in another order than its own
    precisions: tuple[int, ...] = (32, 64)
    buffers: dict[str, float] = field(default_factory=dict)  # initial values, by the last part of their names
    peer_options: dict[str, Any] = field(default_factory=dict)  # for the peer alone
    changed: str = ""  # settings of the peer that differ from its defaults, so that both compute the same
    reason: str = ""  # why the parameters differ by more than GOAL


COMMON = {"learning_rate": 3e-4, "batch_size": 64, "gamma": 0.99, "hidden_sizes": [256, 256]}
ACTOR_CRITIC = {**COMMON, "tau": 0.005}
Q_LEARNING = {**COMMON, "learning_rate": 1e-3, "target_interval": 10, "tau": 1.0, "max_grad_norm": 1.0}
DELAYED = {"policy_delay": 2, "target_noise": 0.2, "target_noise_clip": 0.5}
PPO = {
    **COMMON, "hidden_sizes": [64, 64], "num_steps": 320, "epochs": 2, "gae_lambda": 0.95, "clip_range": 0.2,
    "value_weight": 0.5, "entropy_weight": 0.01, "max_grad_norm": 0.5,
}  # fmt: skip
RECURRENT = {**PPO, "network": {"memory": "lstm", "memory_size": 32}, "sequence_length": 64}
CQL = {
    **ACTOR_CRITIC, "hidden_sizes": [256, 256, 256], "actor_learning_rate": 3e-5, "cql_alpha": 10.0,
    "log_std_offset": -1.0, "num_cql_samples": SAMPLES,
}  # fmt: skip
IQL = {**ACTOR_CRITIC, "expectile": 0.7, "beta": 3.0}
TQC = {
    **ACTOR_CRITIC, "critic_hidden_sizes": [256, 256], "num_critics": 3, "num_quantiles": 25,
    "top_quantiles_to_drop_per_net": 2,
}  # fmt: skip
CROSSQ = {**COMMON, "learning_rate": 1e-3, "critic_hidden_sizes": [256, 256], "policy_delay": 3}
REBRAC = {
    **ACTOR_CRITIC, **DELAYED, "learning_rate": 1e-3, "hidden_sizes": [256, 256, 256], "actor_bc_coef": 0.01,
    "critic_bc_coef": 0.01,
}  # fmt: skip
EDAC = {**ACTOR_CRITIC, "hidden_sizes": [256, 256, 256], "num_critics": 5, "eta": 1.0}

ROUNDING = "rounding of float32, amplified by Adam where gradients are near zero"
RENORM = "r (x - mean) / sqrt(var + eps) + d as in the paper; sb3-contrib adds eps to var / r^2 (else 3e-02 apart)"
COPIED = "Q-network; the target network is copied after every 10th update"
DELAYED_ORDER = "critics; after every second critic step the actor, then the target networks"
ON_ROLLOUT = "policy and value together; each side computes the advantages of a rollout"
AT_ONCE = "all losses at the parameters before the update, then the target critics"
SAC_ORDER = "critics; actor by the new critics, and temperature; target critics"
SAC_DRAWS = (Draw("next_actions"), Draw("policy_actions"))
SAC_PHASES = ("critics", "policy", "targets")
EXACT_LOG = "log-probabilities with log(1 - a^2) instead of log(1 - a^2 + 1e-6)"
CROSSQ_ORDER = "critics; after every third critic step the actor by the new critics, and temperature"
BIASED = f"{EXACT_LOG}; variances divided by the number of rows, as in the authors' code"

CASES = {
    "dqn": Case("DQN", "sb3", "dqn", Q_LEARNING, COPIED, discrete=True),
    "qr_dqn": Case(
        "QR-DQN", "sb3", "qr_dqn", {**Q_LEARNING, "num_quantiles": 20, "adam_eps": 0.01 / 64}, COPIED, discrete=True
    ),
    "td3": Case("TD3", "sb3", "td3", {**ACTOR_CRITIC, **DELAYED}, DELAYED_ORDER, draws=(Draw("target_noise"),)),
    "ppo": Case("PPO (Box)", "sb3", "ppo", PPO, ON_ROLLOUT, precisions=(32,)),
    "ppo_discrete": Case("PPO (Discrete)", "sb3", "ppo", PPO, ON_ROLLOUT, precisions=(32,), discrete=True),
    "ppo_masked": Case(
        "PPO with action masks", "sb3", "ppo", PPO, ON_ROLLOUT, precisions=(32,), discrete=True, masked=True,
        peer_options={"class": "MaskablePPO"},
    ),
    "ppo_recurrent": Case(
        "PPO with LSTMs", "sb3", "ppo", RECURRENT, ON_ROLLOUT, precisions=(32,),
        peer_options={"class": "RecurrentPPO"}, changed="one trained bias per gate: bias_hh is 0",
    ),
    "sac": Case(
        "SAC", "sb3", "sac", ACTOR_CRITIC,
        "ours: all losses at the parameters before the update; SB3: critics first, then the actor by the new critics",
        draws=SAC_DRAWS, reason="order of steps",
    ),
    "sac_ordered": Case(
        "SAC (our steps in SB3's order)", "sb3", "sac", ACTOR_CRITIC,
        SAC_ORDER, draws=SAC_DRAWS, phases=SAC_PHASES, peer_options={"epsilon": 0.0}, reason=ROUNDING,
        changed=EXACT_LOG,
    ),
    "tqc": Case(
        "TQC (our steps in sb3-contrib's order)", "sb3", "tqc", TQC, SAC_ORDER, draws=SAC_DRAWS, phases=SAC_PHASES,
        peer_options={"epsilon": 0.0}, changed=EXACT_LOG, reason=ROUNDING,
    ),
    "crossq": Case(
        "CrossQ, and its running statistics", "sb3", "crossq", CROSSQ, CROSSQ_ORDER,
        draws=(Draw("next_actions"), Draw("policy_actions", every=3)), peer_options={"epsilon": 0.0}, changed=BIASED,
        reason=ROUNDING,
    ),
    "crossq_renorm": Case(
        "CrossQ after its first 100,000 updates", "sb3", "crossq", CROSSQ, CROSSQ_ORDER,
        draws=(Draw("next_actions"), Draw("policy_actions", every=3)), buffers={"count": AFTER_WARM_UP},
        peer_options={"epsilon": 0.0, "steps": AFTER_WARM_UP, "epsilon_of_paper": True}, changed=f"{BIASED}; {RENORM}",
        reason=ROUNDING,
    ),
    "cql": Case(
        "CQL", "corl", "cql", CQL, AT_ONCE, draws=(
            Draw("uniform_actions", SAMPLES, uniform=True), Draw("actions", SAMPLES), Draw("next_actions", SAMPLES),
            Draw("target_actions", 1), Draw("policy_actions"),
        ), changed="bc_steps=0", reason=ROUNDING,
    ),
    "iql": Case(
        "IQL", "corl", "iql", IQL, AT_ONCE,
        changed="epsilon 5e-9 for the critics' Adam, whose loss is halved there; constant learning rate",
    ),
    "awac": Case(
        "AWAC", "corl", "awac", {**ACTOR_CRITIC, "hidden_sizes": [256, 256, 256], "normalize_obs": False},
        "critics; actor by the new critics; target critics", draws=SAC_DRAWS, reason=ROUNDING,
    ),
    "edac": Case(
        "EDAC", "corl", "edac", EDAC,
        "ours: all losses at the parameters before the update; CORL: temperature, actor, critics, each by the new ones",
        draws=(Draw("next_actions"), Draw("policy_actions")), reason="order of steps",
    ),
    "edac_ordered": Case(
        "EDAC (our steps in CORL's order)", "corl", "edac", EDAC, "temperature; actor; critics; target critics",
        draws=(Draw("temperature_actions"), Draw("policy_actions"), Draw("next_actions")),
        phases=("temperature", "actor", "critics", "targets"), peer_options={"epsilon": 0.0}, changed=EXACT_LOG,
        reason=ROUNDING,
    ),
    "rebrac": Case(
        "ReBRAC", "corl_jax", "rebrac", REBRAC, DELAYED_ORDER, draws=(Draw("target_noise"),), reason=ROUNDING,
        changed="epsilon 1e-5 of layer norms, there 1e-6; target actor by the new actor, there by the one before; "
        "actor from the second update on, there from the first",
    ),
    "td3_bc": Case(
        "TD3+BC", "corl", "td3_bc", {**ACTOR_CRITIC, **DELAYED, "alpha": 2.5, "normalize_obs": False}, DELAYED_ORDER,
        draws=(Draw("target_noise"),),
    ),
}  # fmt: skip
