"""Starts a run from the checkpoint of another run, with options that may differ from those of that run."""

from collections.abc import Sequence

from torch import Tensor

from rl_training import streams
from rl_training.algorithms.core.learner import Learner
from rl_training.algorithms.core.updater import Updater
from rl_training.experiment.config.differences import MAY_CHANGE, config_differences
from rl_training.experiment.config.messages import ConfigError, shown
from rl_training.experiment.config.registry import build_learner
from rl_training.experiment.config.train_config import TrainConfig, parse_config
from rl_training.experiment.datasets import check_phases
from rl_training.experiment.result import is_run
from rl_training.experiment.trust import learner_modules, modules_of, require_trusted
from rl_training.messages import many
from rl_training.runtime.callbacks.saving import restore_trainer
from rl_training.runtime.callbacks.training import EarlyStop
from rl_training.runtime.checkpoints.reading import Checkpoint
from rl_training.runtime.checkpoints.replay_segments import ReplaySegments
from rl_training.runtime.engine import Callback
from rl_training.runtime.state import TrainerState
from rl_training.types import EnvSpec

BUDGET = ("total_timesteps", "online_steps")


def restore_elsewhere(
    config: TrainConfig, spec: EnvSpec, state: TrainerState, callbacks: Sequence[Callback], checkpoint: Checkpoint,
    segments: ReplaySegments,
) -> list[str]:  # fmt: skip
    """Restores a checkpoint of another run, then sets what the options of this run decide; returns the warnings."""
    saved = checkpoint.info["config"]
    if saved["algo"] != config.algo:
        raise ConfigError(f"{checkpoint.path} is a checkpoint of {saved['algo']}, but the config has {config.algo}")
    require_trusted(learner_modules(saved), modules_of(config), checkpoint.path)
    before = parse_config(saved)
    changed = {k: v for k, v in config_differences(before, config).items() if k not in (*MAY_CHANGE, *BUDGET)}
    require_same_seed(checkpoint, config)
    _require_same_environments(checkpoint, before, config)
    saved_segments = segments
    check_phases(config)
    if config.online_steps and not before.online_steps:
        if checkpoint.step > config.total_timesteps:
            raise ConfigError(
                f"{checkpoint.path} has more offline steps than total_timesteps; set it to {checkpoint.step}"
            )
        saved_segments = ReplaySegments({})  # the replay buffer is empty at first
    try:
        kept = [each for each in callbacks if not isinstance(each, EarlyStop)]
        if changed:
            _fit_numbers(checkpoint, before, config, spec)
        warnings = restore_trainer(state, kept, checkpoint, saved_segments)
        saved_segments.require_complete(checkpoint)
    except (ValueError, KeyError) as error:
        if not changed:
            raise
        named = ", ".join(f"{key.removeprefix('algo_kwargs.')} ({shown(old)})" for key, (old, _) in changed.items())
        reason = f"it has no {error}" if isinstance(error, KeyError) else error
        raise ConfigError(
            f"the checkpoint {checkpoint.path} does not fit the changed options: {reason}; "
            f"keep the old value of {named}, or train a new agent"
        ) from error
    state.evaluation = state.best = None  # the best checkpoint is in the other run
    if changed:
        _apply(state.updater, checkpoint.step, before, config, spec)
    return warnings


def require_same_seed(checkpoint: Checkpoint, config: TrainConfig) -> None:
    """Raises ConfigError if the seed has changed; names the agent of that seed if it was trained beside this one."""
    before, run = checkpoint.info["config"]["seed"], checkpoint.path.parent.parent
    if config.seed == before:
        return
    other = run.parent / f"seed_{config.seed}"
    advice = f"load {other}" if run.name == f"seed_{before}" and is_run(other) else "train a new agent with it"
    raise ConfigError(
        f"seed cannot change from {before} to {config.seed}: training from {checkpoint.path} continues the random "
        f"numbers of seed {before}. Leave out seed={config.seed}, or {advice}"
    )


def _require_same_environments(checkpoint: Checkpoint, before: TrainConfig, now: TrainConfig) -> None:
    """Raises ConfigError if the number of environments with running episodes has changed."""
    if now.num_envs != before.num_envs and "actor" in checkpoint.group("lane"):
        raise ConfigError(
            f"num_envs is {now.num_envs}, but {checkpoint.path} has the running episodes of "
            f"{many(before.num_envs, 'environment')}; keep num_envs {before.num_envs}, or train a new agent"
        )


def _fit_numbers(checkpoint: Checkpoint, before: TrainConfig, now: TrainConfig, spec: EnvSpec) -> None:
    """Changes the checkpoint's single numbers, such as `cql_weight`, to those that the learner of the options now has.

    New ones have their initial values.
    """
    saved = checkpoint.state["learner"]["buffers"]
    old, new = (dict(_initial(config, spec, checkpoint.step).named_buffers(recurse=False)) for config in (before, now))
    for name in old.keys() - new.keys():
        saved.pop(name, None)
    saved.update({name: value for name, value in new.items() if name not in old and not value.dim()})


def _apply(updater: Updater, step: int, before: TrainConfig, now: TrainConfig, spec: EnvSpec) -> None:
    """Sets learning rates, and single numbers of the learner, such as `clip_range`, that their options start anew.

    A number belongs to an option that has changed if the options before and now give it other initial values.
    """
    old, new = (_numbers(_initial(config, spec, step)) for config in (before, now))
    unscheduled = {name for name, schedule in before.schedules.items() if now.schedules.get(name) != schedule}
    held = {**updater.params, **updater.buffers}
    for name, value in new.items():
        if name in unscheduled or (name in old and old[name] != value):
            held[name].detach().fill_(value)
    updater.reset_rates()


def _initial(config: TrainConfig, spec: EnvSpec, step: int) -> Learner:
    """Returns a new learner, in the phase that the run has reached."""
    with streams.fork(0, "load"):
        learner = build_learner(config.algo, spec, config.options())
    if config.online_steps and step > config.total_timesteps:
        learner.start_online()
    return learner


def _numbers(learner: Learner) -> dict[str, float]:
    tensors: list[tuple[str, Tensor]] = [*learner.named_parameters(), *learner.named_buffers()]
    return {name: tensor.item() for name, tensor in tensors if not tensor.dim()}
