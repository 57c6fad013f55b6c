"""A run from its config to its result: configs it refuses, warnings, and the files it writes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from rl_training.experiment.config.registry import build_learner, get_algorithm_spec
from rl_training.experiment.config.train_config import ConfigError, parse_config
from rl_training.experiment.run import resume_run, run_training
from rl_training.experiment.verify import compare_runs
from rl_training.runtime.callbacks.training import StopAtStep
from rl_training.runtime.engine import Callback
from rl_training.runtime.state import DivergedError
from rl_training.types import EnvSpec

BC: dict[str, Any] = {
    "algo": "bc", "env_id": "Pendulum-v1", "dataset": {"kind": "random", "rows": 200}, "total_timesteps": 20,
    "eval_interval": 10, "eval_episodes": 1, "algo_kwargs": {"hidden_sizes": [8], "batch_size": 8},
}  # fmt: skip
SAC: dict[str, Any] = {
    "algo": "sac", "env_id": "Pendulum-v1", "total_timesteps": 60, "eval_interval": 0,
    "algo_kwargs": {"hidden_sizes": [8], "batch_size": 8, "learning_starts": 20},
}  # fmt: skip


def run(values, tmp_path, warnings=None, **changes):
    config = parse_config({**values, "output_dir": str(tmp_path / "run"), **changes})
    return run_training(config, warn=(warnings.append if warnings is not None else print))


def logged(rows: int, path) -> str:
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(rows + 1, 3))
    np.savez(
        path, obs=obs[:-1], actions=rng.uniform(-1, 1, (rows, 1)), rewards=np.ones(rows), next_obs=obs[1:],
        dones=np.zeros(rows), truncated=np.arange(rows) == rows - 1,
    )  # fmt: skip
    return str(path)


def test_data_alone_is_enough_and_doubts_about_it_are_said(tmp_path):
    warnings: list[str] = []
    config = {**BC, "algo": "iql"}
    result = run(config, tmp_path, warnings, env_id=None, dataset=logged(100, tmp_path / "logs.npz"))
    assert (result.status, result.evaluation, result.best_checkpoint) == ("finished", None, None)
    assert any("reward" in sentence for sentence in warnings)  # they are constant


def test_fractions_that_run_together_are_reported_while_training_goes_on(tmp_path):
    warnings: list[str] = []
    options = {**SAC["algo_kwargs"], "fraction_learning_rate": 0.5, "entropy_coefficient": 0.0}
    result = run({**SAC, "algo": "fqf", "env_id": "CartPole-v1", "algo_kwargs": options}, tmp_path, warnings)
    assert result.status == "finished"
    assert len([sentence for sentence in warnings if "the proposed fractions have collapsed" in sentence]) == 1


@pytest.mark.parametrize(
    ("algo", "env_id", "options", "due"),
    [
        ("sac", "Pendulum-v1", {}, "sac starts learning after 1,000 steps (learning_starts)"),
        ("mbpo", "Pendulum-v1", {"learning_starts": 10}, "mbpo starts learning after 10 steps (learning_starts)"),
        ("dqn", "CartPole-v1", {"learning_starts": 10}, "dqn starts learning after 10 steps (learning_starts)"),
        ("dreamer", "CartPole-v1",
         {"size": "tiny", "learning_starts": 4, "batch_size": 4, "window": 8, "train_ratio": 0.5},
         "dreamer starts learning after 4 steps (learning_starts) and a whole window of 8, "
         "with an update every 64 steps (train_ratio)"),
    ],
)  # fmt: skip
def test_a_run_that_owed_no_update_says_so(tmp_path, algo, env_id, options, due):
    warnings: list[str] = []
    result = run({**SAC, "algo": algo, "algo_kwargs": options}, tmp_path, warnings, env_id=env_id, total_timesteps=10)
    assert result.updates == 0
    assert warnings == [
        f"nothing will be learnt in 10 steps: {due}; raise --steps, or lower learning_starts with --set"
    ]


def test_a_run_that_is_too_short_is_reported_before_it_starts(tmp_path):
    order: list[str] = []

    class Watch(Callback):
        def on_train_start(self, state):
            order.append("start")

    short = {**SAC, "algo_kwargs": {**SAC["algo_kwargs"], "learning_starts": 100}, "total_timesteps": 20}
    config = parse_config({**short, "output_dir": str(tmp_path / "run")})
    run_training(config, callbacks=[Watch()], warn=order.append)
    assert [each[:23] for each in order] == ["nothing will be learnt ", "start"]


def test_a_run_of_one_step_more_learns(tmp_path):
    """The warning is exact: with four environments, 9 steps are three collections, and the third is after step 10."""
    options = {**SAC["algo_kwargs"], "learning_starts": 10}
    for steps, updates in ((8, 0), (9, 1)):
        warnings: list[str] = []
        result = run(
            {**SAC, "algo_kwargs": options}, tmp_path / str(steps), warnings, num_envs=4, total_timesteps=steps
        )
        assert (result.updates > 0, warnings == []) == (updates > 0, updates > 0)


def test_a_dataset_that_has_changed_is_refused_on_resume(tmp_path):
    file = logged(100, tmp_path / "logs.npz")
    run(BC, tmp_path, env_id=None, dataset=file)
    logged(90, tmp_path / "logs.npz")
    with pytest.raises(ConfigError, match=r"the dataset or its rewards differ from those of .*run/checkpoints/step_"):
        resume_run(tmp_path / "run", steps=40)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"dataset": None}, "bc trains offline and needs a dataset"),
        ({"env_id": None, "early_stopping": {"patience": 1}}, "early_stopping needs evaluations; set env_id"),
        ({"schedules": {"beta": {}}}, "bc cannot schedule 'beta'; use one of learning_rate"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(changes, sentence, tmp_path):
    if "env_id" in changes:
        changes = {**changes, "dataset": logged(50, tmp_path / "logs.npz")}
    with pytest.raises(ConfigError, match=sentence):
        run(BC, tmp_path, **changes)


def test_an_action_space_of_another_kind_names_who_would_take_it_without_data(tmp_path):
    with pytest.raises(
        TypeError, match=r"td3 needs a Box action space, got Discrete; these accept it: c51, dqn, dreamer.*, sac"
    ):
        run({**SAC, "algo": "td3"}, tmp_path, env_id="CartPole-v1")


def test_images_are_refused_by_offline_algorithms_without_a_list_of_online_ones():
    spec = EnvSpec((3, 16, 16), "discrete", 2, "uint8")
    message = "FlattenObservation, or store float vectors in the data; no offline algorithm accepts it"
    with pytest.raises(TypeError, match=message):
        build_learner("bc", spec, get_algorithm_spec("bc").config_type())


def test_budgets_count_updates_and_passes_over_the_rows(tmp_path):
    result = run(BC, tmp_path, max_epochs=1, total_timesteps=1000)
    assert (result.updates, result.status) == (200 // 8, "finished")


def test_numbers_that_stop_being_finite_stop_the_run(tmp_path):
    broken = {**SAC, "algo_kwargs": {**SAC["algo_kwargs"], "learning_rate": 1e30}}
    with pytest.raises(DivergedError, match="NaN or infinite"):
        run(broken, tmp_path)


def test_resume_stops_at_an_earlier_step_and_the_run_still_ends_as_planned(tmp_path):
    stopped = run_training(parse_config({**SAC, "output_dir": str(tmp_path / "run")}), callbacks=[StopAtStep(25)])
    assert (stopped.steps, stopped.status) == (25, "stopped")
    further = resume_run(tmp_path / "run", steps=40)
    assert (further.steps, further.status, further.stop_reason) == (40, "stopped", "reached step 40")
    assert run(SAC, tmp_path).steps == 60
    assert compare_runs(tmp_path / "run", run(SAC, tmp_path / "whole").run_dir) == []


def test_a_run_that_goes_on_online_beyond_its_end_still_holds_whole_episodes(tmp_path):
    options = {**BC["algo_kwargs"], "num_cql_samples": 1}
    run(BC, tmp_path, algo="cal_ql", algo_kwargs=options, total_timesteps=2, online_steps=100, eval_interval=0)
    result = resume_run(tmp_path / "run", steps=2 + 205)  # the first episode of Pendulum has 200 steps
    assert (result.status, result.updates) == ("finished", 2 + 6)  # from the step on that ends it


def test_a_run_tells_of_its_beginnings(tmp_path):
    result = run(SAC, tmp_path)
    record = json.loads((result.run_dir / "run.json").read_text())
    assert (record["seed"], record["choices"]["device"], record["resume"]) == (0, "cpu", "snapshot")
    assert {"torch", "gymnasium", "python"} <= record["versions"].keys()
    assert len((result.run_dir / "metrics.jsonl").read_text().splitlines()) == 60


def test_evaluations_are_logged_as_flat_numbers_too(tmp_path):
    run(BC, tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    evaluations = [row for row in rows if "evaluation" in row]
    assert len(evaluations) == 2
    for row in evaluations:
        assert row["eval_return_mean"] == row["evaluation"]["return_mean"]
        assert row["eval_return_std"] == row["evaluation"]["return_std"]
        assert row["eval_length_mean"] == 200
    assert not any(key.startswith("eval_") for row in rows if "evaluation" not in row for key in row)
