"""Option names of other libraries, and the names here: for the hints in error messages."""

from collections.abc import Mapping
from typing import Any

SB3, D3RLPY, CLEANRL = "Stable-Baselines3", "d3rlpy", "CleanRL"

# library -> its name of an option -> names here; the first one that the algorithm has is suggested
RENAMED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    SB3: {
        "n_steps": ("num_steps", "n_step"),
        "n_epochs": ("epochs",),
        "ent_coef": ("entropy_weight", "temperature"),
        "vf_coef": ("value_weight",),
        "train_freq": ("collect_steps",),
        "gradient_steps": ("updates_per_collect",),
        "target_update_interval": ("target_interval",),
        "exploration_initial_eps": ("epsilon_start",),
        "exploration_final_eps": ("epsilon_end",),
        "target_policy_noise": ("target_noise",),
        "n_quantiles": ("num_quantiles",),
        "n_critics": ("num_critics",),
        "n_envs": ("num_envs",),
        "n_timesteps": ("total_timesteps",),
        "num_timesteps": ("total_timesteps",),
        "eval_freq": ("eval_interval",),
        "n_eval_episodes": ("eval_episodes",),
        "save_freq": ("checkpoint_interval",),
        "ortho_init": ("orthogonal_init",),
        "net_arch": ("hidden_sizes",),
        "env": ("env_id",),
        "env_wrapper": ("env_wrappers",),
        "goal_selection_strategy": ("hindsight",),
        "n_sampled_goal": ("hindsight_goals",),
    },
    D3RLPY: {
        "critic_learning_rate": ("learning_rate",),
        "temp_learning_rate": ("learning_rate",),
        "conservative_weight": ("cql_alpha",),
        "n_action_samples": ("num_cql_samples",),
        "alpha_threshold": ("lagrange_threshold",),
        "soft_q_backup": ("backup_entropy",),
        "initial_temperature": ("temperature",),
        "weight_temp": ("beta",),
        "max_weight": ("max_advantage_weight",),
        "observation_scaler": ("normalize_obs",),
        "reward_scaler": ("rewards",),
        "target_smoothing_sigma": ("target_noise",),
        "target_smoothing_clip": ("target_noise_clip",),
        "update_actor_interval": ("policy_delay",),
        "n_greedy_quantiles": ("num_acting_quantiles",),
        "experiment_name": ("output_dir",),
        "use_gpu": ("device",),
    },
    CLEANRL: {
        "update_epochs": ("epochs",),
        "clip_coef": ("clip_range",),
        "target_network_frequency": ("target_interval",),
        "train_frequency": ("collect_steps",),
        "start_e": ("epsilon_start",),
        "end_e": ("epsilon_end",),
        "policy_frequency": ("policy_delay",),
        "policy_noise": ("target_noise",),
        "noise_clip": ("target_noise_clip",),
        "exploration_noise": ("action_noise_scale",),
        "autotune": ("tune_temperature",),
        "alpha": ("temperature",),
        "policy_lr": ("actor_learning_rate", "learning_rate"),
        "q_lr": ("learning_rate",),
        "n_atoms": ("num_atoms",),
        "exp_name": ("output_dir",),
        "cuda": ("device",),
        "capture_video": ("record_video_interval",),
        "track": ("log",),
    },
    "": {  # used by several
        "lr": ("learning_rate",),
        "discount": ("gamma",),
        "discount_factor": ("gamma",),
        "polyak": ("tau",),
        "hidden_dims": ("hidden_sizes",),
        "hidden_layers": ("hidden_sizes",),
        "hidden_units": ("hidden_sizes",),
        "replay_size": ("buffer_size",),
        "memory_size": ("buffer_size",),
        "entropy_coef": ("entropy_weight", "temperature"),
        "value_coef": ("value_weight",),
        "env_name": ("env_id",),
        "max_steps": ("total_timesteps",),
        "total_steps": ("total_timesteps",),
        "timesteps": ("total_timesteps",),
    },
}
SEVERAL = "`rl-training train --seeds 0-4` on the command line"
# Names without a direct counterpart: an option that the algorithm must have (or ""), and what to write instead.
EXPLAINED: Mapping[str, tuple[str, str]] = {
    "policy": ("", f"{SB3}'s policy name is not needed: the network is chosen from the spaces; hidden_sizes sets it"),
    "policy_kwargs": ("hidden_sizes", f"{SB3}'s policy_kwargs=dict(net_arch=[64, 64]) is hidden_sizes=[64, 64] here"),
    "activation_fn": ("network", f"{SB3}'s activation_fn is network={{'activation': 'relu'}} here"),
    "features_extractor_class": ("network", f"{SB3}'s features_extractor_class is network=YourClass here"),
    "lstm_hidden_size": (
        "sequence_length",
        "sb3-contrib's lstm_hidden_size=256 is network={'memory': 'lstm', 'memory_size': 256} here",
    ),
    "verbose": ("", f"{SB3}'s verbose=1 is learn(quiet=False) here; the command line shows progress without --quiet"),
    "tensorboard_log": ("", "TensorBoard files are written into the run directory if tensorboard is installed"),
    "clip_range_vf": ("clip_range", "the value loss is not clipped here; leave it out"),
    "clip_vloss": ("clip_range", "the value loss is not clipped here; leave it out"),
    "normalize_advantage": ("clip_range", "advantages are always normalised here; leave it out"),
    "norm_adv": ("clip_range", "advantages are always normalised here; leave it out"),
    "num_minibatches": ("epochs", f"{CLEANRL}'s num_minibatches is num_steps * num_envs / batch_size here"),
    "anneal_lr": ("learning_rate", "CleanRL's anneal_lr is schedules: {learning_rate: {kind: linear, end: 0}} here"),
    "optimize_memory_usage": ("buffer_size", "the replay buffer is compact already; leave it out"),
    "replay_buffer_class": (
        "buffer_size",
        f"the algorithm chooses its replay buffer; leave it out, or set hindsight=future for {SB3}'s HerReplayBuffer",
    ),
    "replay_buffer_kwargs": ("buffer_size", "options of the replay buffer are options of the algorithm here"),
    "custom_objects": ("", f"{SB3}'s custom_objects={{'learning_rate': 1e-4}} is load(path, learning_rate=1e-4) here"),
    "use_sde": ("", "state-dependent exploration is not available here; leave it out"),
    "sde_sample_freq": ("", "state-dependent exploration is not available here; leave it out"),
    "seeds": ("", f"train an agent for each seed, or {SEVERAL}"),
    "stats_window_size": ("", "logged returns are those since the last log entry, of log_interval steps; leave it out"),
}

# Names of algorithms in other libraries, in lower case and without separators, and what to use here.
_MEMORY, _MASKS = "ppo with network.memory=lstm", "ppo, which finds the action masks of an environment"
ALGORITHMS: Mapping[str, str] = {
    "recurrentppo": _MEMORY,
    "ppolstm": _MEMORY,
    "maskableppo": _MASKS,
    "ppomask": _MASKS,
    "her": "sac, td3, dqn or another algorithm with a replay buffer, with hindsight=future",
    "discretesac": "sac",
    "sacdiscrete": "sac",
    "doubledqn": "dqn with double=true",
    "ddqn": "dqn with double=true",
    "sacn": "edac with eta=0",
}

# Options of this library that only some algorithms have.
_REPLAY_ONLY = "it relabels the transitions of a replay buffer; use sac, td3, dqn or another algorithm with one"
OF_SOME: Mapping[str, str] = {"hindsight": _REPLAY_ONLY, "hindsight_goals": _REPLAY_ONLY}

INNER = ("net_arch", "activation_fn", "features_extractor_class", "lstm_hidden_size")  # options in `policy_kwargs`

# Arguments of `learn`, `predict` and `evaluate` in other libraries, and what to write here.
ARGUMENTS: Mapping[str, str] = {
    "callback": "callbacks=[…]",
    "progress_bar": "quiet=False",
    "verbose": "quiet=False",
    "reset_num_timesteps": "fresh=True to start over; learn() continues",
    "tb_log_name": "output_dir=… in the constructor",
    "log_interval": "log_interval=… in the constructor",
    "n_steps": "total_timesteps=…",
    "eval_env": "env= of evaluate(), or eval_interval=… in the constructor",
    "observation": "obs=…",
    "state": "memory=rl_training.Memory(), the same one at every step",
    "episode_start": "memory.forget() at the end of an episode",
    "action_masks": "the entry action_mask of a Dict observation",
    "n_eval_episodes": "num_episodes=…",
    "seeds": f"an agent for each seed, or {SEVERAL}",
}

# Attributes and methods of agents in other libraries, and what to write here.
ATTRIBUTES: Mapping[str, str] = {
    "set_env": "load(path, env=…)",
    "env": "env= of the constructor, load() and evaluate(); .config.env_id is its id",
    "policy": ".agent.learner.model for the networks",
    "num_timesteps": ".agent.step",
    "replay_buffer": "a callback, whose state.lane.replay is the replay buffer",
    "save_replay_buffer": "save(path), which includes the replay buffer",
    "load_replay_buffer": "load(path), which includes the replay buffer",
    "get_parameters": ".agent.learner.state_dict()",
    "set_parameters": "load(path)",
    "set_random_seed": "seed=… in the constructor",
    "set_logger": "log=['tensorboard'] in the constructor",
    "logger": "metrics(), or log=['tensorboard'] in the constructor",
    "fit": "learn(), with dataset=… in the constructor",
    "train": "learn()",
    "save_model": "save(path)",
    "save_policy": "export(path)",
}


def attribute_here(name: str) -> str:
    """A hint to append to an error message about an attribute of an agent; empty for unknown ones."""
    return f"; use {ATTRIBUTES[name]}" if name in ATTRIBUTES else ""


def argument_here(name: str) -> str:
    """A hint to append to an error message about an argument; empty for unknown ones."""
    return f"; use {ARGUMENTS[name]}" if name in ARGUMENTS else ""


def algorithm_here(name: str) -> str:
    """A hint to append to an error message about an algorithm; empty for unknown ones."""
    plain = name.lower().replace("-", "").replace("_", "")
    return f"; use {ALGORITHMS[plain]}" if plain in ALGORITHMS else ""


SCHEDULED = ("learning_rate", "clip_range")  # options that Stable-Baselines3 takes as functions


def schedule_here(name: str, value: Any) -> str:
    """A hint to append to an error message if the value of an option is a function; otherwise empty."""
    if name not in SCHEDULED or not callable(value):
        return ""
    return f"; write a number, and add schedules={{'{name}': {{'kind': 'linear', 'end': 0.0}}}}"


def name_here(word: str, known: Mapping[str, str], value: Any = None) -> str:
    """A hint to append to an error message if another library calls a known option `word`; otherwise empty."""
    if word == "ent_coef" and "tune_temperature" in known:
        return _entropy_coefficient_here(known, value)
    if word == "policy_kwargs" and isinstance(value, Mapping) and "network" in known:
        inner = [name_here(name, known) for name in INNER if name in value]
        if inner:
            return "".join(inner)
    for library, names in RENAMED.items():
        for own in names.get(word, ()):
            if own in known:
                name, comma, where = known[own].partition(",")
                return f"; {library}'s {word} is {name} here{comma}{where}" if library else f"; use {known[own]}"
    needed, sentence = EXPLAINED.get(word, ("", OF_SOME.get(word, "")))
    return f"; {sentence}" if sentence and (not needed or needed in known) else ""


def _entropy_coefficient_here(known: Mapping[str, str], value: Any) -> str:
    tuned, (auto, _, start) = known["tune_temperature"], str(value).partition("_")
    if auto != "auto":
        return f"; {SB3}'s ent_coef is {known['temperature']} here; it is constant there, so add {tuned}=False"
    first = f", {known['temperature']}={start}" if start else ""
    return f"; {SB3}'s ent_coef={value!r} is {tuned}=True{first} here"
