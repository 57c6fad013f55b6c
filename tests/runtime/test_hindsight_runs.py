"""Runs with hindsight experience replay: they resume byte for byte, alone and as a population, and report success."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rl_training import streams
from rl_training.algorithms import TD3Algorithm
from rl_training.algorithms.td3 import TD3Config
from rl_training.envs.pools.group import Episode
from rl_training.envs.pools.pool import EnvPool
from rl_training.experiment.agent import load_agent
from rl_training.experiment.config.train_config import ConfigError, parse_config
from rl_training.experiment.run import resume_run, run_population, run_training
from rl_training.experiment.verify import compare_runs
from rl_training.runtime.callbacks.training import StopAtStep
from rl_training.runtime.evaluation import Evaluation
from rl_training.runtime.lanes import LaneContext, ReplayLane

OPTIONS = {"batch_size": 8, "hidden_sizes": [8], "learning_starts": 30, "buffer_size": 151, "hindsight_goals": 2}
ALGORITHMS: dict[str, tuple[str, dict[str, Any]]] = {
    "sac": ("PointGoal-v0", {"hindsight": "future"}),
    "td3": ("PointGoal-v0", {"hindsight": "final", "action_noise": "ornstein_uhlenbeck"}),
    "dqn": ("BitFlip-v0", {"hindsight": "episode", "prioritized": True}),
    "crossq": ("PointGoal-v0", {"hindsight": "future"}),
    "tqc": ("PointGoal-v0", {"hindsight": "future"}),
    "redq": ("PointGoal-v0", {"hindsight": "future"}),
    "rainbow": ("BitFlip-v0", {"hindsight": "future", "n_step": 1}),
    "iqn": ("BitFlip-v0", {"hindsight": "future"}),
}
FEW = ("sac", "td3", "dqn")
ALL = [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in ALGORITHMS]


def configured(algo: str, output: Path, **changes: Any) -> Any:
    env_id, options = ALGORITHMS[algo]
    return parse_config({
        "algo": algo, "env_id": env_id, "num_envs": 3, "env_workers": 0, "total_timesteps": 360, "log": [],
        "eval_episodes": 3, "eval_interval": 180, "checkpoint_interval": 60, "output_dir": str(output),
        "algo_kwargs": {**OPTIONS, **options}, **changes,
    })  # fmt: skip


@pytest.mark.parametrize("algo", ALL)
def test_a_resumed_run_equals_one_without_interruption(algo, tmp_path):
    run_training(configured(algo, tmp_path / "whole"))
    assert run_training(configured(algo, tmp_path / "cut"), callbacks=[StopAtStep(210)]).status == "stopped"
    resume_run(tmp_path / "cut")
    assert compare_runs(tmp_path / "whole", tmp_path / "cut") == []


@pytest.mark.parametrize("algo", ["sac", *(pytest.param(name, marks=pytest.mark.slow) for name in FEW[1:])])
def test_a_resumed_population_equals_one_without_interruption(algo, tmp_path):
    whole, cut = (
        [configured(algo, tmp_path / f"{name}-{seed}", seed=seed) for seed in (0, 1)] for name in ("whole", "cut")
    )
    run_population(whole)
    run_population(cut, callbacks=[StopAtStep(210)])
    run_population(cut)
    for one, other in zip(whole, cut, strict=True):
        assert compare_runs(Path(one.output_dir), Path(other.output_dir)) == []


@pytest.mark.usefixtures("forked_workers")
def test_worker_processes_change_nothing(tmp_path):
    for workers in (0, 2):
        run_training(configured("sac", tmp_path / str(workers), env_workers=workers, eval_interval=0))
    one, other = (load_agent(tmp_path / name).learner.state_dict() for name in ("0", "2"))
    assert all(one[name].equal(other[name]) for name in one)


def test_evaluations_report_the_success_rate(tmp_path):
    last: Any = run_training(configured("sac", tmp_path / "run")).evaluation
    assert 0 <= last["success_rate"] <= 1
    assert '"eval_success_rate"' in (tmp_path / "run" / "metrics.jsonl").read_text()
    bits = run_training(configured("dqn", tmp_path / "bits", env_kwargs={"bits": 2}))
    evaluation = load_agent(bits.run_dir).evaluate(20, seed=1)
    ended = sum(length < 15 for length in evaluation["lengths"])  # episodes end at the goal
    assert evaluation["success_rate"] == ended / 20


def test_a_success_rate_is_that_of_all_episodes():
    episodes = [Episode(0, 1.0, 2), Episode(1, 1.0, 3)]
    assert Evaluation.of(episodes, [True, False]).summary()["success_rate"] == 0.5
    assert "success_rate" not in Evaluation.of(episodes, [True, None]).summary()


def test_the_options_are_those_of_the_buffer():
    pool, config = EnvPool("PointGoal-v0", 3), TD3Config(hindsight="final", hindsight_goals=2)
    learner = TD3Algorithm.build(pool.spec, config)
    lane = ReplayLane.build(LaneContext([learner], learner, pool.spec, config, 5, torch.device("cpu"), pool=pool))
    replay: Any = lane.replay
    assert (replay.strategy, replay.num_goals, replay.stride) == ("final", 2, 3)
    assert replay.goal_seed == streams.derive(5, "hindsight")


def test_no_success_rate_without_reports(tmp_path):
    options = {**OPTIONS, "hindsight_goals": 4}
    changes = {"env_id": "Pendulum-v1", "algo_kwargs": options, "total_timesteps": 60}
    last: Any = run_training(configured("sac", tmp_path / "run", **changes)).evaluation
    assert "success_rate" not in last


@pytest.mark.parametrize(
    ("algo", "changes", "message"),
    [
        ("ppo", {}, "hindsight: unknown key; it relabels the transitions of a replay buffer; use sac, td3, dqn"),
        ("iql", {}, "hindsight: unknown key; it relabels the transitions of a replay buffer"),
        ("dreamer", {}, "hindsight: unknown key; it relabels the transitions of a replay buffer"),
        ("sac", {"n_step": 3}, "n_step is 3, but with hindsight the steps of a return have different goals"),
        ("rainbow", {}, "n_step is 3, but with hindsight"),
        ("mbpo", {}, "hindsight: must be 'none' for mbpo, because hindsight needs whole episodes, and model "
         "rollouts are short; got 'future'"),
        ("mbpo", {"hindsight": None, "n_step": 3},
         "n_step: must be 1 for mbpo, because model rollouts have single steps only; got 3"),
        ("sac", {"hindsight": "past"}, "hindsight: must be 'none', 'future', 'final' or 'episode', got 'past'"),
        ("sac", {"hindsight": True}, "hindsight: must be 'none', 'future', 'final' or 'episode', got True"),
        ("sac", {"hindsight_goals": 0}, "hindsight_goals: must be greater than 0, got 0"),
        ("sac", {"n_sampled_goal": 4}, "unknown key; Stable-Baselines3's n_sampled_goal is hindsight_goals here"),
    ],
)  # fmt: skip
def test_configs_that_are_refused(algo, changes, message):
    with pytest.raises(ConfigError, match="algo_kwargs") as refused:
        parse_config({"algo": algo, "env_id": "PointGoal-v0", "algo_kwargs": {"hindsight": "future", **changes}})
    assert message in str(refused.value)


def test_goals_need_hindsight_but_runs_stored_without_it_load():
    config = {"algo": "sac", "env_id": "PointGoal-v0", "algo_kwargs": {"hindsight_goals": 8}}
    with pytest.raises(ConfigError, match="hindsight_goals is 8, but hindsight is none"):
        parse_config(config)
    with pytest.raises(ConfigError, match="but hindsight is always none; leave hindsight_goals out"):
        parse_config({**config, "algo": "mbpo"})
    stored = parse_config({**config, "algo_kwargs": {}}).algo_kwargs | {"hindsight_goals": 8}
    assert parse_config({**config, "algo_kwargs": stored}).algo_kwargs == stored


@pytest.mark.parametrize("algo", ["sac", "mbpo"])
def test_null_is_no_hindsight(algo):
    config = parse_config({"algo": algo, "env_id": "PointGoal-v0", "algo_kwargs": {"hindsight": None}})
    assert config.algo_kwargs["hindsight"] == "none"


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"env_id": "Pendulum-v1"}, "hindsight needs Dict observations with observation, achieved_goal, desired_goal"),
        (
            {"env_id": "Pendulum-v1", "env_backend": "device"},
            "env_backend: device has none; set env_backend to gymnasium",
        ),
    ],
)
def test_environments_that_are_refused(env, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        run_training(configured("sac", tmp_path / "run", **env))
