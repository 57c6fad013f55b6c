"""The lane of an imitator: a discriminator, and the expert's rows that it learns from."""

from __future__ import annotations

from dataclasses import replace

from rl_training import streams
from rl_training.algorithms import GAILConfig, GAILDiscriminator, Learner
from rl_training.data import RolloutBuffer, TransitionDataset
from rl_training.data.datasets.imitation import ImitationBatches, add_absorbing_rows
from rl_training.experiment.config.train_config import TrainConfig
from rl_training.runtime.lanes import Actor, ImitationLane


def imitation_lane(
    config: TrainConfig, experts: TransitionDataset, learner: Learner, actor: Actor, rollout: RolloutBuffer,
    options: GAILConfig, *, compile: bool,
) -> ImitationLane:  # fmt: skip
    """A discriminator of its own, on the rows of these experts."""
    columns, spec = {name: experts.columns[name] for name in ("obs", "actions")}, experts.spec
    if options.absorbing_states:  # all of them, of thinned episodes too; so they count for less
        columns = add_absorbing_rows(columns, experts.terminals, weight=1 / config.dataset_stride)
        spec = replace(spec, obs_shape=columns["obs"].shape[1:])
    rows = ImitationBatches({name: column.to(actor.device) for name, column in columns.items()})
    rows.seed(streams.derive(config.seed, "experts"))
    with streams.fork(config.seed, "discriminator"):
        discriminator = GAILDiscriminator.build(spec, options.discriminator()).to(actor.device)
    return ImitationLane(learner, actor, rollout, options, discriminator=discriminator, rows=rows, compile=compile)
