"""Seeds behind one option: a population where the lane knows members, processes elsewhere."""

from __future__ import annotations

import pytest

from rl_training.experiment.config import parse_config
from rl_training.experiment.manager import ExperimentManager
from rl_training.experiment.sweep import as_population, train_seeds

TINY = {"hidden_sizes": [8, 8], "batch_size": 16}
BC = {"algo": "bc", "env_id": "Pendulum-v1", "dataset": {"kind": "random", "rows": 200}, "total_timesteps": 20,
      "eval_interval": 10, "eval_episodes": 1, "algo_kwargs": TINY}  # fmt: skip
PPO = {"algo": "ppo", "env_id": "CartPole-v1", "total_timesteps": 64, "eval_episodes": 1,
       "algo_kwargs": {**TINY, "num_steps": 32}}  # fmt: skip


def configs(values, folder, seeds=(0, 1)):
    return ExperimentManager.setup({**values, "output_dir": str(folder)}).seed_configs(seeds)


@pytest.mark.parametrize(("values", "together"), [(BC, True), (PPO, False)])
def test_on_policy_seeds_and_early_stopping_ask_for_processes(values, together):
    assert as_population(parse_config(values)) is together
    assert not as_population(parse_config({**values, "early_stopping": {"patience": 1}}))


@pytest.mark.parametrize("values", [BC, PPO], ids=["population", "processes"])
def test_each_seed_has_a_finished_run_of_its_own(values, tmp_path):
    results = train_seeds(configs(values, tmp_path))
    assert [(r.run_dir.name, r.status, r.steps >= 20) for r in results] == [
        ("seed_0", "finished", True),
        ("seed_1", "finished", True),
    ]


def test_a_seed_added_later_leaves_the_finished_ones_alone(tmp_path):
    first = train_seeds(configs(BC, tmp_path))
    written = [(r.run_dir / "result.json").stat().st_mtime_ns for r in first]
    all_three = train_seeds(configs(BC, tmp_path, seeds=(0, 1, 2)))
    assert [(r.run_dir / "result.json").stat().st_mtime_ns for r in all_three[:2]] == written
    assert [r.status for r in all_three] == ["finished"] * 3
