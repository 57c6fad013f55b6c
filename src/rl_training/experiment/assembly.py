"""Builds the parts of a training run from its config: data or environments, learner, lane, updater, callbacks."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any

import torch

from rl_training import streams
from rl_training.algorithms import Learner
from rl_training.data import TransitionDataset
from rl_training.envs.creation.lending import LentEnv
from rl_training.envs.device.contract import TensorPool
from rl_training.envs.device.group import PoolGroup, grouped
from rl_training.envs.device.registry import make_pool
from rl_training.envs.pools.members import MemberPool, PopulationPool
from rl_training.envs.pools.pool import EnvPool
from rl_training.envs.pools.worker_choice import choose_workers
from rl_training.experiment.config.registry import build_learner, get_algorithm_spec
from rl_training.experiment.config.train_config import ConfigError, TrainConfig
from rl_training.experiment.datasets import RewardChange, load_run_dataset, with_returns
from rl_training.experiment.lanes import check_dataset_columns, check_online_columns, lane_of
from rl_training.experiment.machine import Choices
from rl_training.experiment.timing.choosing import NOT_TIMED, count_epoch_updates, measure_choices, new_updater
from rl_training.messages import Warn, print_warning
from rl_training.runtime.callbacks.logging import LogMetrics
from rl_training.runtime.callbacks.trackers.subject import Row
from rl_training.runtime.callbacks.training import EarlyStop, Evaluate, LogWarnings, MaxUpdates, Schedules
from rl_training.runtime.checkpoints.reading import Checkpoint
from rl_training.runtime.engine import Callback, overriding
from rl_training.runtime.evaluation import evaluate
from rl_training.runtime.lanes import FineTuning, LaneContext, TrainingLane
from rl_training.runtime.lanes.memory_limits import NotEnoughMemoryError
from rl_training.runtime.population import member_states
from rl_training.runtime.state import Lane, TrainerState
from rl_training.runtime.video import Video
from rl_training.types import HALTED, EnvSpec
from rl_training.waiting import Show

RunPool = EnvPool | MemberPool | TensorPool  # of one run
LanePool = EnvPool | PopulationPool | TensorPool | PoolGroup[Any]


@dataclass
class RunParts:
    """The parts of one run; `fingerprint` is the hash of its dataset as loaded."""

    learner: Learner
    spec: EnvSpec
    state: TrainerState
    choices: Choices
    member: int | None = None  # its index in a population
    dataset: TransitionDataset | None = None
    fingerprint: str | None = None
    pool: RunPool | None = None
    compilation: str = ""  # the reason for the choice of `compile: auto`

    def close(self) -> None:
        if self.pool is not None:
            self.pool.close()


def assemble(
    configs: Sequence[TrainConfig], choices: Choices, total: int, *, start: Checkpoint | None = None,
    measure: bool = False, show: Show | None = None, warn: Warn = print_warning,
) -> tuple[TrainerState, list[RunParts]]:  # fmt: skip
    """Returns the trainer state and the parts of each run; configs that differ in the seed alone form a population.

    `start` is the checkpoint to resume from. With `measure`, the choices that are left to timing are
    measured. `show` reports waits.
    """
    config, lane = configs[0], lane_of(configs[0])
    check_online_columns(config)
    options = config.options()
    dataset, change, fingerprint = load_run_dataset(config, start)
    with ExitStack() as opened:
        pool, pools = new_pools(configs, warn, start, choices, opened) if lane.acts else (None, ())
        spec = dataset.spec if dataset is not None and lane.offline else pools[0].spec
        learners: Sequence[Learner] = [new_learner(each, spec, options, choices) for each in configs]
        training = dataset
        if dataset is not None and lane.offline:
            dataset, training = _prepared(config, dataset, learners, choices.device, start, warn)
        compilation = NOT_TIMED
        if measure:
            choices, compilation = measure_choices(configs, learners, spec, choices, training, show=show, warn=warn)
        learners, updater = compilation.trained or (learners, new_updater(learners, choices))
        context = LaneContext(
            learners, updater.population or learners[0], spec, options, config.seed, torch.device(choices.device),
            compile=choices.compile, overlap=choices.overlap, pool=pool, dataset=training,
            dataset_stride=config.dataset_stride, env_kwargs=config.env_kwargs,
            env_id=None if config.env_wrappers else config.env_id,
            fine_tuning=_fine_tuning(config, change, total), total_timesteps=total,
        )  # fmt: skip
        state = TrainerState(updater, _build(lane, context), total)
        torch.manual_seed(streams.derive(config.seed, "updates"))  # from here on the default generator is the updates'
        members = [*enumerate(member_states(state))] if len(configs) > 1 else [(None, state)]
        opened.pop_all()
    return state, [
        RunParts(learner, spec, own, choices, number, dataset, fingerprint, pool, compilation.reason)
        for (number, own), learner, pool in zip_longest(members, learners, pools)
    ]


def _build(lane: type[TrainingLane], context: LaneContext) -> Lane:
    try:
        return lane.build(context)
    except NotEnoughMemoryError as error:
        raise ConfigError(str(error)) from None


@torch.no_grad()
def _prepared(
    config: TrainConfig, dataset: TransitionDataset, learners: Sequence[Learner], device: str,
    start: Checkpoint | None, warn: Warn,
) -> tuple[TransitionDataset, TransitionDataset]:  # fmt: skip
    """Returns the dataset of single steps, and the one to train on."""
    dataset = with_returns(config, dataset, learners[0], resumes=start is not None, warn=warn)
    prepared = [learner.prepare(dataset.columns) for learner in learners]
    check_dataset_columns(config, dataset, prepared[0])
    dataset = dataset.with_columns(**prepared[0])
    if (n_step := getattr(learners[0].config, "n_step", 1)) > 1:
        return dataset, dataset.with_n_step_returns(n_step, learners[0].config.gamma).to(device)
    moved = dataset.to(device)
    return moved, moved


def _fine_tuning(config: TrainConfig, change: RewardChange, total: int) -> FineTuning | None:
    if not config.online_steps:
        return None
    offline = config.total_timesteps
    return FineTuning(offline, total - offline, config.offline_ratio, config.updates_per_step, change.apply)


def new_learner(config: TrainConfig, spec: EnvSpec, options: Any, choices: Choices) -> Learner:
    with streams.fork(config.seed, "init"):
        return build_learner(config.algo, spec, options).to(choices.device)


def new_pools(
    configs: Sequence[TrainConfig], warn: Warn, start: Checkpoint | None, choices: Choices, opened: ExitStack
) -> tuple[LanePool, Sequence[RunPool]]:
    """Returns the pool of the lane and that of each run; `opened` closes them."""
    config, source = configs[0], configs[0].environment()
    seeds = [streams.derive(each.seed, "training") for each in configs]
    if source is None:
        raise ConfigError(f"{config.algo} trains online and needs an environment; set env_id, for example CartPole-v1")
    if config.env_backend == "device":
        make = partial(make_pool, source.env, source.kwargs, config.num_envs, device=choices.device)
        pools = [make(seed=seed) for seed in seeds]
        for each in pools:
            opened.callback(each.close)
        return grouped(pools), pools
    if start is None and config.dataset is None and takes_masks(config):
        source = source.with_masks()
    count, workers = config.num_envs * len(configs), config.env_workers
    if workers == "auto":
        workers = choose_workers(source, count)
    pool = EnvPool(
        source, count, seed=seeds, workers=min(workers, count),
        training=True, max_restarts=config.max_env_restarts, warn=warn,
        like=None if start is None else EnvSpec.from_json(start.info["spec"]),
    )  # fmt: skip
    opened.callback(pool.close)
    if config.action_range is not None and config.dataset is None and not pool.replaces_bounds:
        raise ConfigError(f"action_range is for infinite action bounds, and those of {source} are finite; remove it")
    for note in pool.notes:
        warn(note)
    if len(configs) == 1:
        return pool, [pool]
    population = PopulationPool(pool)
    return population, population.pools


def takes_masks(config: TrainConfig) -> bool:
    """Whether the algorithm masks invalid actions."""
    learner = get_algorithm_spec(config.algo).learner.for_actions("discrete")
    return getattr(learner.model_type, "takes_masks", False)


def new_callbacks(
    config: TrainConfig, parts: RunParts, *, user: Sequence[Callback], writers: Sequence[Callable[[Row], None]],
    warn: Warn,
) -> list[Callback]:  # fmt: skip
    """Returns the callbacks in the order in which they are notified; saving comes after them."""
    total = config.duration
    shown = config.env_workers not in (0, "auto") or config.env_backend == "device"  # the rows do not depend on `auto`
    pool = parts.pool if shown else None
    every = interval(config.log_interval, total, 100)
    callbacks: list[Callback] = [LogMetrics(every, *writers, member=parts.member, pool=pool)]
    callbacks.append(LogWarnings(parts.learner.warnings, warn))
    moving, defaults = _schedules(config, parts.learner)
    callbacks += [Schedules(moving, defaults)] if moving else []
    evaluation = _evaluation(config, parts, writers, warn)
    callbacks += [] if evaluation is None else [evaluation]
    for name in ("record_video_interval", "early_stopping"):
        if getattr(config, name) and evaluation is None:
            raise ConfigError(f"{name} needs evaluations; set env_id and an eval_interval above 0")
    if config.early_stopping is not None:
        callbacks.append(EarlyStop(config.early_stopping.patience, config.early_stopping.min_delta))
    budget = _budget(config, parts)
    callbacks += [*([] if budget is None else [MaxUpdates(budget)]), *user]
    _require_names(callbacks)
    return callbacks


def _require_names(callbacks: Sequence[Callback]) -> None:
    for unnamed in (each for each in overriding(callbacks, "state_dict") if not each.name):
        kind = type(unnamed).__name__
        raise ConfigError(f"callback {kind} has a state_dict, which is saved under its name; give {kind} a name")
    for callback, count in Counter(each.name for each in callbacks if each.name).items():
        if count > 1:
            raise ConfigError(
                f"{count} callbacks have the name {callback!r}, under which their state is saved; rename one"
            )


def _evaluation(
    config: TrainConfig, parts: RunParts, writers: Sequence[Callable[[Row], None]], warn: Warn
) -> Evaluate | None:
    every, source = interval(config.eval_interval, config.duration, 10), config.environment()
    if source is None or not every:
        return None
    if parts.pool is not None and isinstance(source.env, LentEnv) and source.is_single:
        raise ConfigError(source.env.refusal("is in training when it is evaluated") + ", or set eval_interval to 0")

    warned: list[str] = []

    def score(watch: Callable[[], None], video: Video | None = None) -> dict[str, Any]:
        return evaluate(
            parts.learner, source, episodes=config.eval_episodes, seed=streams.derive(config.seed, "selection"),
            deterministic=not config.eval_stochastic, device=parts.choices.device,
            max_steps=config.eval_max_steps, watch=watch, warn=warn, like=parts.spec, video=video,
            warned=warned,
        ).summary(config.env_id)  # fmt: skip

    def write(row: Row) -> None:
        for each in writers:
            each(row)

    return Evaluate(every, score, write)


def interval(given: int | None, total: int, parts: int) -> int:
    """Returns the steps between events: the given ones (0: never), or those of `parts` events in the whole run."""
    return max(1, total // parts) if given is None else given


def _schedules(config: TrainConfig, learner: Learner) -> tuple[dict[str, Any], dict[str, float]]:
    schedules = {**learner.schedules(), **config.schedules}
    numbers = {group.rate: group.learning_rate for group in learner.parameter_groups()}
    numbers |= {"learning_rate": learner.config.learning_rate}
    numbers |= {name: float(value) for name, value in learner.named_buffers(recurse=False) if name != HALTED}
    unknown = sorted(set(schedules) - set(numbers))
    if unknown:
        name = unknown[0]
        unset = name == "actor_learning_rate" and hasattr(learner.config, name)
        raise ConfigError(
            f"schedules: {config.algo} cannot schedule {name!r}; use one of {', '.join(sorted(numbers))}"
            + (f", or set algo_kwargs.{name} first" if unset else "")
        )
    # learning_rate sets every group, so it comes before schedules of single groups
    return dict(sorted(schedules.items(), key=lambda item: item[0] != "learning_rate")), numbers


def _budget(config: TrainConfig, parts: RunParts) -> int | None:
    budgets = [] if config.max_updates is None else [config.max_updates]
    if config.max_epochs is not None:
        if parts.dataset is None or parts.learner.needs_expert:
            raise ConfigError(
                f"max_epochs counts passes over a dataset, and {config.algo} trains online; use max_updates"
            )
        batch_size = parts.learner.config.batch_size
        budgets.append(count_epoch_updates(config.max_epochs, len(parts.dataset), batch_size))
    return min(budgets, default=None)
