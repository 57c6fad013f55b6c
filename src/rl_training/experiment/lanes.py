"""The lane of a config, the columns that its learner needs, and warnings about phases without updates."""

from rl_training.data import TransitionDataset
from rl_training.experiment.config.registry import get_algorithm_spec
from rl_training.experiment.config.train_config import ConfigError, TrainConfig
from rl_training.messages import Warn, many
from rl_training.runtime.lanes import LANES, FineTuneLane, TrainingLane, lane_class
from rl_training.runtime.state import TrainerState
from rl_training.types import Batch


def lane_of(config: TrainConfig) -> type[TrainingLane]:
    lane = lane_class(get_algorithm_spec(config.algo).learner)
    if not config.online_steps:
        return lane
    if not lane.with_online_steps:
        reason = (
            f"{config.algo} cannot be fine-tuned online; set online_steps to 0 or use mbpo"
            if lane.offline
            else f"{config.algo} has no offline phase for online_steps to follow; use total_timesteps"
        )
        raise ConfigError(reason)
    return LANES[lane.with_online_steps]


def check_online_columns(config: TrainConfig) -> None:
    """Refuses a run with environment steps if they cannot supply a declared column."""
    lane = lane_of(config)
    if not lane.acts:
        return
    for column in get_algorithm_spec(config.algo).learner.needs:
        if not column.online or column.name not in lane.supplies:
            raise ConfigError(
                f"{config.algo} needs the column {column.name!r}, which environment steps do not supply; "
                + ("set online_steps to 0" if lane.offline else "train it offline, on a dataset that has the column")
            )


def check_dataset_columns(config: TrainConfig, dataset: TransitionDataset, prepared: Batch) -> None:
    """Refuses a needed column that is missing or of another type, and a prepared one that online steps lack."""
    needs = {column.name: column for column in get_algorithm_spec(config.algo).learner.needs}
    columns = {**dataset.columns, **prepared}
    for name, column in needs.items():
        if name not in columns:
            raise ConfigError(
                f"{config.algo} needs the column {name!r}, which the dataset does not have; it has {', '.join(columns)}"
            )
        shape, dtype = column.layout(columns)
        if (tuple(columns[name].shape[1:]), columns[name].dtype) != (shape, dtype):
            raise ConfigError(
                f"{config.algo} needs the column {name!r} with rows of shape {shape} and {dtype}, "
                f"got {tuple(columns[name].shape[1:])} and {columns[name].dtype}"
            )
    undeclared = sorted(prepared.keys() - dataset.columns.keys() - needs.keys())
    if undeclared and config.online_steps:
        raise ConfigError(
            f"{config.algo} prepares the column {undeclared[0]!r} of its dataset, which environment steps do not "
            "supply; set online_steps to 0"
        )


def warn_of_no_updates(config: TrainConfig, state: TrainerState, steps: int | None, warn: Warn) -> bool:
    """Warns if a run of `steps` steps makes no update, or none in its online phase. None: the run has ended."""
    if isinstance(state.lane, FineTuneLane):
        warning = _no_online_updates(config.algo, state.lane, ended=steps is None)
    else:
        warning = "" if state.updates else _no_updates(config, steps)
    if warning:
        warn(warning)
    return bool(warning)


def _no_updates(config: TrainConfig, steps: int | None) -> str:
    options, lane = config.options(), lane_of(config)
    start = lane.first_update(options)
    if not start or (steps is not None and steps >= lane.steps_to_update(options, config.num_envs)):
        return ""
    short = "nothing was learnt" if steps is None else f"nothing will be learnt in {steps:,} steps"
    return f"{short}: {config.algo} starts learning {start}; raise --steps, or lower learning_starts with --set"


def _no_online_updates(algo: str, lane: FineTuneLane, *, ended: bool) -> str:
    if lane.has_batch:
        return ""
    needed = f"{algo} needs a batch of {lane.batch_size:,} online transitions first"
    fix = "raise online_steps, or lower batch_size with --set"
    if not ended:
        steps = many(lane.settings.online_steps, "step")
        return f"the online phase makes no updates in {steps}: {needed}; {fix}" if lane.is_too_short else ""
    taken, stored = lane.step - lane.settings.offline_steps, lane.replay.added
    if taken <= 0:
        return ""
    reason = "no episode ended, so no transition was stored; raise online_steps"
    if stored:
        reason = f"{needed}, and {stored:,} were stored; {fix}"
    return f"the online phase made no updates in {many(taken, 'step')}: {reason}"
