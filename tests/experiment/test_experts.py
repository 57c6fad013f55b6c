"""The expert that a config names: the same data as any learner's, in the words of imitation too, and thinned."""

from __future__ import annotations

import pytest
import torch

from rl_training.data.writers import save_npz
from rl_training.experiment.assembly import assemble
from rl_training.experiment.config.messages import ConfigError
from rl_training.experiment.config.train_config import apply_overrides, parse_config
from rl_training.experiment.datasets import load_dataset
from rl_training.experiment.machine import choose
from rl_training.experiment.run import resume_run, run_training
from rl_training.experiment.verify import compare_runs
from rl_training.runtime.callbacks.training import StopAtStep
from rl_training.runtime.lanes import ImitationLane
from rl_training.runtime.recipes import roll_dataset

GAIL = {"algo": "gail", "env_id": "CartPole-v1", "num_envs": 2, "total_timesteps": 16, "eval_interval": 0}
SMALL = {"num_steps": 8, "batch_size": 16}


@pytest.mark.parametrize(
    ("options", "dataset"),
    [
        ({"kind": "npz", "path": "mine.npz"}, "mine.npz"),
        ({"path": "mine.csv"}, "mine.csv"),
        ({"kind": "hdf5", "path": "mine.h5"}, "mine.h5"),
        ({"kind": "minari", "id": "mujoco/hopper/expert-v0"}, "mujoco/hopper/expert-v0"),
        ({"id": "mujoco/hopper/expert-v0"}, "mujoco/hopper/expert-v0"),
        ({"kind": "random", "size": 500}, {"kind": "random", "rows": 500}),
        ({"kind": "policy", "path": "runs/a", "size": 9}, {"kind": "policy", "policy": "runs/a", "rows": 9}),
    ],
    ids=str,
)
def test_experts_are_a_dataset_in_other_words(options, dataset):
    named = {f"expert_dataset_{key}": value for key, value in options.items()}
    assert parse_config({**GAIL, "algo_kwargs": named}) == parse_config({**GAIL, "dataset": dataset})
    overrides = [f"{key}={value}" for key, value in named.items()]
    assert parse_config(apply_overrides(GAIL, overrides)) == parse_config({**GAIL, "dataset": dataset})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "pickle"}, "expert_dataset_kind: must be one of random, policy, minari.*got 'pickle'"),
        ({"kind": "npz"}, "expert_dataset_path is required for expert_dataset_kind: npz"),
        ({"kind": "minari"}, "expert_dataset_id is required"),
        ({"kind": "random"}, "expert_dataset_size is required"),
        ({"kind": "policy", "size": 9}, "expert_dataset_path is required"),
        ({"kind": "npz", "path": "mine.csv"}, r"must end in \.npz, got 'mine.csv'"),
        ({"kind": "npz", "path": "mine.npz", "size": 9}, "expert_dataset_size is not used with"),
        ({"kind": "random", "path": "mine.npz", "size": 9}, "expert_dataset_path is not used with"),
        ({"path": "mine.npz", "id": "a/b-v0"}, "expert_dataset_kind: must be one of"),
        ({"size": 9}, "expert_dataset_kind: must be one of"),
    ],
    ids=str,
)
def test_missing_or_contradictory_expert_options_are_reported(options, words):
    named = {f"expert_dataset_{key}": value for key, value in options.items()}
    with pytest.raises(ConfigError, match=words):
        parse_config({**GAIL, "algo_kwargs": named})


def test_experts_named_twice_are_refused():
    with pytest.raises(ConfigError, match=r"dataset and algo_kwargs.expert_dataset_\* are both given"):
        parse_config({**GAIL, "dataset": "a.npz", "algo_kwargs": {"expert_dataset_path": "b.npz"}})


def test_gail_without_an_expert_asks_for_one(tmp_path):
    with pytest.raises(ConfigError, match="gail needs an expert's dataset; give --dataset FILE or a recipe"):
        run_training(parse_config({**GAIL, "output_dir": str(tmp_path / "run")}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rewards": {"scale": 2.0}}, "takes no reward transform of a dataset"),
        ({"online_steps": 5}, "use total_timesteps"),
        ({"max_epochs": 5}, "use max_updates"),
        ({"dataset": [{"kind": "random", "rows": 50, "weight": 1}]}, "leave out the weights"),
    ],
    ids=str,
)
def test_what_means_nothing_to_an_imitator_is_refused(changes, words, tmp_path):
    dataset = {"kind": "random", "rows": 50}
    with pytest.raises(ConfigError, match=words):
        run_training(
            parse_config(
                {**GAIL, "dataset": dataset, "algo_kwargs": SMALL, "output_dir": str(tmp_path / "run"), **changes}
            )
        )


def test_a_random_expert_is_reported_as_a_smoke_test(tmp_path):
    printed: list[str] = []
    dataset = {"kind": "random", "rows": 50}
    config = parse_config({**GAIL, "dataset": dataset, "algo_kwargs": SMALL, "output_dir": str(tmp_path / "run")})
    result = run_training(config, warn=printed.append)
    assert printed == ["the expert's dataset comes from a random policy; use this run for testing only"]
    assert {"gail_discriminator_loss", "gail_expert_accuracy", "gail_policy_accuracy"} <= result.metrics.keys()


def test_an_expert_of_another_task_is_refused(tmp_path):
    save_npz(roll_dataset("Pendulum-v1", rows=20), tmp_path / "pendulum.npz")
    config = parse_config({**GAIL, "dataset": str(tmp_path / "pendulum.npz"), "output_dir": str(tmp_path / "run")})
    with pytest.raises((TypeError, ValueError), match=r"pendulum\.npz"):
        run_training(config)


@pytest.fixture
def short_episodes(tmp_path) -> str:
    """Eight of seven steps each."""
    dataset = roll_dataset("Pendulum-v1", rows=50)
    ends = dataset.episode_ends.nonzero().squeeze(1)
    assert ends[:5].tolist() == [6, 13, 20, 27, 34]
    save_npz(dataset, tmp_path / "short.npz")
    return str(tmp_path / "short.npz")


def test_the_first_episodes_and_every_third_of_their_rows_are_taken(short_episodes):
    base = {"algo": "bc", "env_id": "Pendulum-v1", "dataset": short_episodes}
    whole = load_dataset(parse_config(base))[0]
    part = load_dataset(parse_config({**base, "dataset_episodes": 2, "dataset_stride": 3}))[0]
    rows = [0, 3, 6, 7, 10, 13]  # of two episodes, 0..6 and 7..13
    assert part.columns["obs"].equal(whole.columns["obs"][rows])
    assert part.columns["next_obs"].equal(whole.columns["next_obs"][rows])
    assert part.episode_offsets.tolist() == [0, 3]


def test_more_episodes_than_there_are_are_refused(short_episodes):
    config = parse_config({"algo": "bc", "env_id": "Pendulum-v1", "dataset": short_episodes, "dataset_episodes": 60})
    with pytest.raises(ConfigError, match="dataset_episodes must be at most 8, as its source has, got 60"):
        load_dataset(config)


def test_returns_are_not_summed_over_gaps(short_episodes, tmp_path):
    base = {
        "env_id": "Pendulum-v1",
        "dataset": short_episodes,
        "dataset_stride": 3,
        "output_dir": str(tmp_path / "run"),
    }
    with pytest.raises(ConfigError, match="dataset_stride"):
        run_training(parse_config({"algo": "cal_ql", **base}))
    with pytest.raises(ConfigError, match="dataset_stride"):
        parse_config({"algo": "iql", **base, "rewards": {"normalize": "return_range"}})


@pytest.mark.parametrize(
    ("algo", "options", "is_reported"),
    [("gail", SMALL, False), ("bc", {"hidden_sizes": [8]}, False), ("iql", {"hidden_sizes": [8]}, True)],
)
def test_constant_rewards_are_reported_if_the_algorithm_reads_rewards(tmp_path, algo, options, is_reported):
    save_npz(roll_dataset("CartPole-v1", rows=400), tmp_path / "rows.npz")
    config = {
        **GAIL, "algo": algo, "algo_kwargs": options, "dataset": str(tmp_path / "rows.npz"),
        "dataset_columns": {"rewards": "0"}, "output_dir": str(tmp_path / "run"),
    }  # fmt: skip
    printed: list[str] = []
    run_training(parse_config(config), warn=printed.append)
    assert ["every reward is 0" in each for each in printed] == [True] * is_reported


@pytest.mark.parametrize("options", [{"absorbing_states": True}, {"gradient_penalty": 1.0}], ids=str)
def test_a_run_with_every_part_resumes_as_if_it_had_never_stopped(options, tmp_path):
    save_npz(roll_dataset("CartPole-v1", rows=400), tmp_path / "experts.npz")
    shared = {**GAIL, "dataset": str(tmp_path / "experts.npz"), "dataset_episodes": 6, "dataset_stride": 5,
              "total_timesteps": 96, "algo_kwargs": {**SMALL, **options}}  # fmt: skip
    whole = run_training(parse_config({**shared, "output_dir": str(tmp_path / "whole")}))
    halved = run_training(parse_config({**shared, "output_dir": str(tmp_path / "halved")}), callbacks=[StopAtStep(48)])
    assert (halved.status, halved.steps) == ("stopped", 48)
    printed: list[str] = []
    resume_run(halved.run_dir, warn=printed.append)
    assert printed == []
    assert compare_runs(whole.run_dir, halved.run_dir) == []


def test_the_absorbing_rows_of_thinned_episodes_count_for_less(tmp_path):
    save_npz(roll_dataset("CartPole-v1", rows=400), tmp_path / "experts.npz")
    config = parse_config({**GAIL, "dataset": str(tmp_path / "experts.npz"), "dataset_stride": 5,
                           "algo_kwargs": {**SMALL, "absorbing_states": True}})  # fmt: skip
    state, (parts,) = assemble([config], choose(config), 16)
    parts.close()
    assert isinstance(state.lane, ImitationLane)
    experts = state.lane.rows.experts
    absorbing = experts["obs"][:, -1] == 1
    assert 0 < absorbing.sum() < len(absorbing)
    torch.testing.assert_close(experts["weights"], torch.where(absorbing, 0.2, 1.0))


def test_the_ends_of_thinned_episodes_are_still_counted():
    whole = roll_dataset("CartPole-v1", rows=400)
    thin = whole.subsample(stride=100)
    assert thin.terminals == whole.columns["dones"].sum() > thin.columns["dones"].sum()
    assert thin.with_reward_transform(scale=2.0).terminals == thin.terminals
