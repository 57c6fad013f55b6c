"""Prints one line at the start of training: environment, algorithm, device, seeds and steps."""

from collections.abc import Collection, Sequence
from math import prod

import torch
import typer

from rl_training.envs.atari import is_atari
from rl_training.envs.creation.making import spec_of
from rl_training.experiment.config.dataset_config import DatasetRecipe
from rl_training.experiment.config.registry import get_algorithm_spec
from rl_training.experiment.config.train_config import TrainConfig
from rl_training.experiment.lanes import lane_of
from rl_training.experiment.seeds.sweep import as_population
from rl_training.messages import many
from rl_training.runtime.engine import Callback
from rl_training.runtime.state import TrainerState


class Introduction(Callback):
    """Prints the line on stderr when training starts, after every check of the config.

    `chosen` are the options of the algorithm that the user set.
    """

    def __init__(self, config: TrainConfig, *, seeds: Sequence[int] = (), chosen: Collection[str] = ()) -> None:
        self.config, self.seeds, self.chosen = config, seeds or [config.seed], chosen

    def on_train_start(self, state: TrainerState) -> None:
        config, offline = self.config, get_algorithm_spec(self.config.algo).lane == "offline"
        several, total = len(self.seeds) > 1, state.total_timesteps
        source = f"from {data(config)}" if offline else f"in {many(config.num_envs, 'environment')}"
        if not offline and config.dataset is not None:
            source += f" with {data(config)}"
        words = [f"{config.algo} {source}", str(state.updater.device), many(torch.get_num_threads(), "thread")]
        workers = getattr(getattr(getattr(state.lane, "actor", None), "pool", None), "workers", 0)
        words += [many(workers, "environment worker")] if workers else []
        together = state.updater.members  # finished seeds, and those that train later, are not among them
        part = f"{together} of " if several and as_population(config) and together < len(self.seeds) else ""
        words.append(f"{part}seed{'s' * several} {', '.join(map(str, self.seeds))}")
        words.append((length(config, total) if offline else many(total, "step")) + " each" * several)
        words += [f"resumed at {state.global_step:,}"] if state.global_step else []
        subject = "" if config.env_id is None else f"{config.env_id}: {spaces(config)}; "
        typer.echo(subject + ", ".join(words), err=True)
        is_chosen = state.global_step > 0 or "updates_per_collect" in self.chosen
        updates = None if is_chosen else fewer_updates(config)
        for note in filter(None, (updates, more_steps(config, total), atari_returns(config))):
            typer.echo(note, err=True)
        if config.env_id is None:
            typer.echo(
                "no environment, so there are no evaluations during training; afterwards "
                "`rl-training evaluate RUN --ope DATA` estimates the return from data",
                err=True,
            )


def fewer_updates(config: TrainConfig) -> str | None:
    """Describes the updates per step, for algorithms that have fewer of them with more environments."""
    options, lane = config.options(), lane_of(config)
    many_steps = 1_000_000 * config.num_envs
    usual, now = (lane.count_updates(options, many_steps, number) for number in (1, config.num_envs))
    if now >= usual:
        return None
    per_collect = getattr(options, "updates_per_collect", 1)
    return (
        f"{config.num_envs} environments: one update in {many_steps / now:g} environment steps, as in "
        f"Stable-Baselines3, instead of one in {many_steps / usual:g} with a single environment; "
        f"updates_per_collect={config.num_envs * per_collect} keeps the ratio"
    )


def atari_returns(config: TrainConfig) -> str | None:
    """Explains why the returns of training are lower than those of evaluations."""
    options = config.env_kwargs
    if config.env_id is None or not is_atari(config.env_id) or not options.get("preprocess", True):
        return None
    rules = {"terminal_on_life_loss": "end with each life", "clip_rewards": "have clipped rewards"}
    active = [rule for name, rule in rules.items() if options.get(name, True)]
    if not active:
        return None
    return f"training episodes {' and '.join(active)}; evaluations are whole games with raw rewards"


def more_steps(config: TrainConfig, total: int) -> str | None:
    """Reports whole rollouts that exceed the steps of the run by a tenth or more."""
    options = config.options()
    if not hasattr(options, "num_steps"):
        return None
    rollout = options.num_steps * config.num_envs
    taken = -(-total // rollout) * rollout
    if taken < 1.1 * total:
        return None
    return f"a rollout of {rollout:,} steps (num_steps * num_envs) is not cut: the run takes {taken:,} steps"


def length(config: TrainConfig, total: int) -> str:
    """The length of an offline run: updates, and online steps if any."""
    if not config.online_steps:
        return many(total, "update")
    return f"{many(config.total_timesteps, 'update')}, then {many(total - config.total_timesteps, 'step')} online"


def spaces(config: TrainConfig) -> str:
    """Inputs and outputs of the policy: `4 numbers in, one of 2 actions out`."""
    source = config.environment()
    if source is None:
        return ""
    spec = spec_of(source)
    parts = [(part.shape, part.dtype) for part in spec.obs_parts] or [(spec.obs_shape, spec.obs_dtype)]
    obs = " and ".join(
        f"{'x'.join(map(str, shape))} {'pixels' if dtype == 'uint8' else 'numbers'}"
        if len(shape) > 1 or dtype == "uint8"
        else many(prod(shape), "number")
        for shape, dtype in parts
    )
    actions = {
        "box": many(spec.action_dim, "number"),
        "discrete": f"one of {spec.action_dim} actions",
        "multi_discrete": f"{many(spec.action_dim, 'choice')}, of {' and '.join(map(str, spec.action_sizes))} actions,",
    }
    return f"{obs} in, {actions[spec.action_kind]} out"


def data(config: TrainConfig) -> str:
    parts = config.dataset if isinstance(config.dataset, tuple) else (config.dataset,)
    return " and ".join(
        f"{many(part.rows, 'row')} of a {part.kind} policy"
        if isinstance(part, DatasetRecipe)
        else str(getattr(part, "source", part))
        for part in parts
    )
