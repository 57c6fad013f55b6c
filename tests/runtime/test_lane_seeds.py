"""Random numbers of the lanes: equal for equal seeds, different for different seeds, from the lane's own generator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from rl_training.data.writers import save_npz
from rl_training.experiment.assembly import assemble
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.machine import choose
from rl_training.runtime.recipes import roll_dataset

SMALL = {"hidden_sizes": [8], "batch_size": 16}
DREAMER = {"size": "tiny", "batch_size": 4, "window": 8}
GAIL = {**SMALL, "num_steps": 16, "discriminator_batch_size": 16}
MBPO = {**SMALL, "model_hidden_sizes": [8], "rollout_schedule": [0, 0, 1, 1]}
EXPERT = {"dataset": "expert.npz"}


@pytest.fixture(autouse=True)
def dataset(tmp_path, monkeypatch) -> None:
    """The same data for every seed, unlike those of `kind: random`."""
    monkeypatch.chdir(tmp_path)
    save_npz(roll_dataset("CartPole-v1", rows=64), "expert.npz")


@contextmanager
def lane_of(seed: int, algo: str, options: dict[str, Any], **changes: Any) -> Iterator[Any]:
    env_id = "Pendulum-v1" if algo == "mbpo" else "CartPole-v1"
    run = {"algo": algo, "env_id": env_id, "total_timesteps": 60, "eval_interval": 0, "device": "cpu"}
    parsed = parse_config({**run, "seed": seed, "algo_kwargs": options, **changes})
    state, (parts,) = assemble([parsed], choose(parsed), 60)
    yield state.lane
    parts.close()


def differ_by_seed(read: Any, *config: Any, **changes: Any) -> bool:
    """Whether seeds 0 and 1 differ; fails if seed 0 differs from itself."""
    found: list[torch.Tensor] = []
    for seed in (0, 0, 1):
        torch.manual_seed(len(found))  # of the default generator, which must not matter
        with lane_of(seed, *config, **changes) as lane:
            found.append(read(lane))
    assert found[0].equal(found[1])
    return not found[0].equal(found[2])


@pytest.mark.parametrize(
    ("algo", "options", "changes"),
    [
        ("dqn", SMALL, {}),
        ("ppo", {**SMALL, "num_steps": 16}, {}),
        ("bc", SMALL, EXPERT),
        ("dreamer", DREAMER, {}),
        ("gail", GAIL, EXPERT),
    ],
)
def test_each_seed_samples_its_own_batches(algo, options, changes):
    assert differ_by_seed(lambda lane: torch.rand(8, generator=lane.source.generator), algo, options, **changes)


def test_each_seed_has_its_own_discriminator_and_batches_of_the_expert():
    assert differ_by_seed(lambda lane: next(lane.discriminator.parameters()), "gail", GAIL, **EXPERT)
    assert differ_by_seed(lambda lane: lane.rows.expert_rows(8)["expert_obs"], "gail", GAIL, **EXPERT)


def test_each_seed_has_its_own_dynamics_model_and_bootstrap_of_its_rows():
    assert differ_by_seed(lambda lane: lane.fit.networks["model.net.0.weight"], "mbpo", MBPO)
    assert differ_by_seed(lambda lane: torch.rand(8, generator=lane.fit.rows.generator), "mbpo", MBPO)
