"""Default options against the values that the papers and the authors' code publish, written out here by hand."""

from __future__ import annotations

from typing import Any

import pytest

from rl_training.algorithms import CATALOGUE, FQEConfig
from rl_training.algorithms.dreamer import DreamerConfig

ADAM = {"learning_rate": 3e-4, "batch_size": 256, "gamma": 0.99}
SAC = {**ADAM, "tau": 0.005, "temperature": 1.0, "tune_temperature": True, "target_entropy": "auto", "n_step": 1}
IQL = {**ADAM, "expectile": 0.7, "beta": 3.0, "max_advantage_weight": 100.0, "tau": 0.005, "hidden_sizes": (256, 256)}
CQL = {**ADAM, "num_cql_samples": 10, "tau": 0.005, "actor_learning_rate": 1e-4,
       "hidden_sizes": (256, 256, 256), "backup_entropy": False, "lagrange_threshold": None}  # fmt: skip
TD3 = {**ADAM, "tau": 0.005, "policy_delay": 2, "target_noise": 0.2, "target_noise_clip": 0.5}
PPO = {"learning_rate": 3e-4, "gamma": 0.99, "gae_lambda": 0.95, "clip_range": 0.2, "value_weight": 0.5,
       "entropy_weight": 0.0, "epochs": 10, "num_steps": 2048, "batch_size": 64, "max_grad_norm": 0.5,
       "hidden_sizes": (64, 64), "activation": "tanh", "orthogonal_init": True, "log_std_init": 0.0}  # fmt: skip
DQN = {"gamma": 0.99, "tau": 1.0, "n_step": 1, "double": False, "dueling": False, "noisy": False, "prioritized": False,
       "priority_alpha": 0.6, "priority_beta": 0.4, "epsilon_start": 1.0, "epsilon_end": 0.05,
       "exploration_fraction": 0.1, "target_interval": 1_000, "adam_eps": 1e-8}  # fmt: skip
ATOMS = {"num_atoms": 51, "v_min": -10.0, "v_max": 10.0}
MODEL = {"model_members": 7, "model_elites": 5, "model_hidden_sizes": (200,) * 4, "model_learning_rate": 1e-3,
         "model_weight_decay": 2.5e-5, "real_ratio": 0.05, "model_holdout": 0.2, "model_max_holdout": 5_000,
         "model_patience": 5, "model_max_epochs": 200}  # fmt: skip

PUBLISHED: dict[str, dict[str, Any]] = {
    "awac": {**ADAM, "awac_lambda": 1.0, "max_advantage_weight": 100.0, "tau": 0.005, "hidden_sizes": (256, 256, 256),
             "normalize_obs": True, "actor_learning_rate": None},
    "bc": {**ADAM, "objective": "likelihood"},
    "bcq": {**ADAM, "threshold": 0.3, "logit_penalty": 0.01, "tau": 0.005, "hidden_sizes": (256, 256)},
    "iql": IQL,
    "xql": {**IQL, "loss_temperature": 2.0, "max_value_diff_exp": 7.0, "vanilla_value_loss": False},
    "cql": {**CQL, "cql_alpha": "auto", "max_target_backup": False},
    "cal_ql": {**CQL, "cql_alpha": 5.0, "max_target_backup": True},
    "td3_bc": {**TD3, "alpha": 2.5, "normalize_obs": True},
    "rebrac": {**TD3, "learning_rate": 1e-3, "batch_size": 1024, "hidden_sizes": (256, 256, 256), "actor_bc_coef": 0.01,
               "critic_bc_coef": 0.01, "actor_learning_rate": None, "normalize_obs": False},
    "edac": {**SAC, "hidden_sizes": (256, 256, 256), "num_critics": 10, "eta": 1.0, "actor_learning_rate": None,
             "normalize_obs": False},
    "fql": {**ADAM, "tau": 0.005, "hidden_sizes": (512,) * 4, "activation": "gelu", "alpha": 10.0, "flow_steps": 10,
            "q_aggregation": "mean", "normalize_q_loss": False, "normalize_obs": False},
    "sac": SAC,
    "td3": {**TD3, "action_noise": "gaussian", "action_noise_scale": 0.1, "learning_starts": 25_000},
    "redq": {**SAC, "num_critics": 10, "subset_size": 2, "updates_per_collect": 20, "policy_delay": 20,
             "learning_starts": 5_000},
    "tqc": {**SAC, "hidden_sizes": (256, 256), "critic_hidden_sizes": (512, 512, 512), "num_critics": 5,
            "num_quantiles": 25, "top_quantiles_to_drop_per_net": 2},
    "crossq": {**SAC, "learning_rate": 1e-3, "tau": 1.0, "policy_delay": 3, "learning_starts": 5_000,
               "hidden_sizes": (256, 256), "critic_hidden_sizes": (2048, 2048)},
    "dqn": DQN,
    "qr_dqn": {**DQN, "num_quantiles": 200, "kappa": 1.0},
    "iqn": {**DQN, "num_quantiles": 64, "num_acting_quantiles": 32, "num_cosines": 64, "kappa": 1.0},
    "fqf": {**DQN, "num_quantiles": 32, "num_cosines": 64, "fraction_learning_rate": 2.5e-9, "kappa": 1.0,
            "entropy_coefficient": 1e-3},
    "c51": {**DQN, **ATOMS},
    "rainbow": {**DQN, **ATOMS, "double": True, "dueling": True, "noisy": True, "prioritized": True,
                "priority_alpha": 0.5, "n_step": 3},
    "ppo": PPO,
    "pqn": {"learning_rate": 2.5e-4, "gamma": 0.99, "q_lambda": 0.65, "num_steps": 128, "batch_size": 128, "epochs": 4,
            "max_grad_norm": 10.0, "epsilon_start": 1.0, "epsilon_end": 0.05, "exploration_fraction": 0.1,
            "reward_scale": 1.0},
    "gail": {**PPO, "reward_form": "softplus", "discriminator_hidden_sizes": (100, 100), "discriminator_updates": 8,
             "discriminator_learning_rate": 3e-4, "discriminator_batch_size": 256, "gradient_penalty": 0.0,
             "spectral_norm": False, "absorbing_states": False},
    "mbpo": {**SAC, **MODEL, "updates_per_collect": 20, "rollout_batch_size": 100_000, "rollout_interval": 250,
             "rollout_schedule": (20_000, 150_000, 1, 1), "model_retention": 4, "model_train_interval": 250,
             "learning_starts": 5_000},
    "mopo": {**ADAM, **MODEL, "tau": 0.005, "penalty": "max_std", "penalty_coefficient": 1.0,
             "rollout_batch_size": 50_000, "rollout_interval": 1_000, "rollout_schedule": (0, 0, 5, 5),
             "model_retention": 5},
    "dreamer": {"gamma": 0.997, "tau": 0.02, "horizon": 15, "return_lambda": 0.95, "entropy_weight": 3e-4,
                "dynamics_weight": 1.0, "representation_weight": 0.1, "free_nats": 1.0, "replay_value_weight": 0.3,
                "actor_unimix": 0.01, "actor_scale": 0.01, "bins": "symexp", "discounted_continue": True,
                "optimizer": "laprop", "warm_up": 1_000, "batch_size": 16, "window": 64,
                "actor_gradient": "reinforce", "hard_continue": False, "architecture": "2024", "hidden_sizes": (),
                "size": "size12m", "recipe": "default", "train_ratio": 256.0, "learning_starts": 1_024,
                "learning_rate": pytest.approx(7.05e-5, rel=1e-3), "stored_latents": True},
}  # fmt: skip

USUAL: dict[str, Any] = {  # of the options that `PUBLISHED` leaves out
    "learning_rate": 3e-4, "batch_size": 256, "hidden_sizes": (256, 256), "critic_hidden_sizes": None,
    "actor_learning_rate": None, "max_grad_norm": None, "weight_decay": 0.0, "network": None, "precision": "float32",
    "n_step": 1, "buffer_size": 1_000_000, "learning_starts": 1_000, "collect_steps": 1, "updates_per_collect": 1,
    "normalize_obs": False, "normalize_rewards": False, "stacked_frames": None, "hindsight": "none",
    "hindsight_goals": 4, "action_noise": "none", "action_noise_scale": 0.1, "action_noise_theta": 0.15, "epsilon": 0.0,
    "temperature": 1.0, "tune_temperature": True, "target_entropy": "auto", "target_kl": None, "sequence_length": None,
    "discount_time": None, "time_unit": None, "cloning_updates": 0, "cql_alpha_online": None,
    "initialization": "default", "log_std_offset": None, "model_normalize_targets": False, "termination": "auto",
}  # fmt: skip


@pytest.mark.parametrize("name", CATALOGUE)
def test_defaults_are_the_published_values(name):
    config = CATALOGUE[name].config_type()
    assert {option: getattr(config, option) for option in PUBLISHED[name]} == PUBLISHED[name]


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_other_defaults_are_the_usual_ones(name):
    options = CATALOGUE[name].config_type.model_fields.keys() - PUBLISHED[name].keys()
    config = CATALOGUE[name].config_type()
    assert {option: getattr(config, option) for option in options} == {option: USUAL[option] for option in options}


def test_fqe_has_its_own_defaults():
    config = FQEConfig()
    assert (config.gamma, config.tau, config.hidden_sizes) == (0.99, 0.1, (64, 64))
    assert (config.batch_size, config.learning_rate) == (64, 1e-3)


@pytest.mark.parametrize(
    ("recipe", "published"),
    [
        ("2023", {"optimizer": "adam", "learning_rate": 1e-4, "actor_learning_rate": 3e-5, "max_grad_norm": 1000.0,
                  "dynamics_weight": 0.5, "representation_weight": 0.1, "replay_value_weight": 0.0, "bins": "symlog",
                  "discounted_continue": False, "actor_unimix": 0.01, "actor_scale": 1.0, "stored_latents": False}),
        ("2024", {"optimizer": "laprop", "learning_rate": 4e-5, "dynamics_weight": 1.0, "representation_weight": 0.1,
                  "replay_value_weight": 0.3, "bins": "symexp", "discounted_continue": True, "actor_unimix": 0.0}),
    ],
)  # fmt: skip
def test_a_recipe_of_dreamer_has_the_values_of_its_release(recipe, published):
    config = DreamerConfig(recipe=recipe)
    assert {option: getattr(config, option) for option in published} == published
