"""`learn` continues: more steps of a trained agent, and training after `load`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rl_training import BC, DQN, PPO, read_metrics, resume_training
from rl_training.experiment.config.train_config import ConfigError
from rl_training.experiment.manager import ExperimentManager
from rl_training.experiment.verify import compare_runs
from rl_training.runtime.callbacks.training import StopAtStep

TINY: dict[str, Any] = {
    "num_steps": 8, "batch_size": 8, "epochs": 1, "hidden_sizes": [8], "eval_episodes": 1, "eval_interval": 0,
    "log_interval": 16, "checkpoint_interval": 32, "keep_checkpoints": 9,
}  # fmt: skip


def agent(folder: Path, **options: Any) -> PPO:
    return PPO("CartPole-v1", output_dir=str(folder), **{**TINY, **options})


def steps(trained: PPO | DQN) -> int:
    return 0 if trained.result is None else trained.result.steps


def test_learn_sets_the_steps_of_a_new_agent_and_then_adds_to_them(tmp_path):
    trained = agent(tmp_path / "run").learn(total_timesteps=32)
    assert (steps(trained), trained.config.total_timesteps) == (32, 32)
    assert steps(trained.learn(total_timesteps=32)) == 64
    assert steps(trained.learn(32)) == 96
    assert not trained.learn().result.trained  # type: ignore[union-attr]
    assert steps(trained) == 96
    with pytest.raises(ValueError, match="total_timesteps must be at least 1, got -3"):
        trained.learn(-3)


def test_a_script_with_several_calls_can_be_repeated(tmp_path):
    for trains in (True, False):
        trained = agent(tmp_path / "run").learn(total_timesteps=32).learn(total_timesteps=32)
        assert steps(trained) == 64
        assert trained.result is not None
        assert trained.result.trained is trains


def test_more_steps_are_those_of_resume_training(tmp_path):
    agent(tmp_path / "learned").learn(total_timesteps=32).learn(total_timesteps=32)
    agent(tmp_path / "resumed", total_timesteps=32).learn()
    resume_training(tmp_path / "resumed", total_timesteps=64)
    assert compare_runs(tmp_path / "learned", tmp_path / "resumed") == []


def test_a_stopped_extension_is_finished_by_the_next_call(tmp_path):
    trained = agent(tmp_path / "run").learn(total_timesteps=32)
    trained.learn(total_timesteps=64, callbacks=[StopAtStep(48)])
    assert steps(trained) == 48
    assert steps(trained.learn()) == 96


def test_a_loaded_run_goes_on_in_its_directory(tmp_path):
    agent(tmp_path / "run").learn(total_timesteps=32)
    loaded = PPO.load(tmp_path / "run").learn(total_timesteps=32)
    assert (steps(loaded), loaded.result and loaded.result.run_dir) == (64, tmp_path / "run")
    agent(tmp_path / "other").learn(total_timesteps=32).learn(total_timesteps=32)
    assert compare_runs(tmp_path / "run", tmp_path / "other") == []


def test_a_run_that_was_moved_goes_on_where_it_is_now(tmp_path):
    agent(tmp_path / "run").learn(total_timesteps=32)
    (tmp_path / "run").rename(tmp_path / "moved")
    assert steps(PPO.load(tmp_path / "moved").learn(total_timesteps=32)) == 64
    assert not (tmp_path / "run").exists()


def test_an_older_checkpoint_of_a_run_needs_an_output_directory(tmp_path):
    agent(tmp_path / "run").learn(total_timesteps=64)
    older = tmp_path / "run" / "checkpoints" / "step_000000032"
    with pytest.raises(ValueError, match=r"step_000000032 is not the newest .* pass output_dir to load\(\)"):
        PPO.load(older).learn(total_timesteps=32)
    branched = PPO.load(older, output_dir=tmp_path / "branch").learn(total_timesteps=64)
    assert (steps(branched), branched.result and branched.result.run_dir) == (96, tmp_path / "branch")
    assert len(read_metrics(tmp_path / "run", table="list")) == 4  # as it was
    assert steps(branched.learn(total_timesteps=8)) == 104  # further calls continue the new run


def test_a_saved_agent_starts_a_new_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trained = PPO("CartPole-v1", **TINY).learn(total_timesteps=32)
    saved = trained.save(tmp_path / "saved")
    with pytest.raises(
        ConfigError, match=r"has already trained all 32 steps; learn\(total_timesteps=N\) trains N more"
    ):
        PPO.load(saved).learn()
    again = PPO.load(saved).learn(total_timesteps=32)
    assert (steps(again), again.result and again.result.run_dir) == (64, Path("runs/ppo-CartPole-v1-s0-2"))
    assert len(read_metrics("runs/ppo-CartPole-v1-s0", table="list")) == 2
    trained.learn(total_timesteps=32)
    newest = "checkpoints/step_000000064"
    theirs = (Path("runs/ppo-CartPole-v1-s0") / newest / "learner.safetensors").read_bytes()
    assert (Path("runs/ppo-CartPole-v1-s0-2") / newest / "learner.safetensors").read_bytes() == theirs


def test_a_saved_agent_with_a_replay_buffer_goes_on_exactly(tmp_path):
    options: dict[str, Any] = {"learning_starts": 8, "batch_size": 8, "hidden_sizes": [8], "eval_interval": 0}
    whole = DQN("CartPole-v1", output_dir=str(tmp_path / "run"), **options).learn(total_timesteps=40)
    saved = whole.save(tmp_path / "saved")
    DQN.load(saved, output_dir=tmp_path / "new").learn(total_timesteps=20)
    whole.learn(total_timesteps=20)
    end = "checkpoints/step_000000060/learner.safetensors"
    assert (tmp_path / "new" / end).read_bytes() == (tmp_path / "run" / end).read_bytes()


def test_an_agent_that_stopped_early_trains_on(tmp_path):
    stopped = agent(tmp_path / "run", total_timesteps=64, max_updates=4).learn()
    assert steps(stopped) == 32
    saved = stopped.save(tmp_path / "saved")
    assert steps(stopped.learn(total_timesteps=64)) > 32
    assert steps(PPO.load(saved, output_dir=tmp_path / "new").learn(total_timesteps=64)) > 32


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("callback", r"use callbacks=\[…\]"),
        ("progress_bar", "use quiet=False"),
        ("stepps", "no argument 'stepps'$"),
        ("learning_rate", r"give it to the constructor, or to load\(\) for a new run"),
        ("seed", "give it to the constructor, because a trained agent keeps its seed$"),
    ],
)
def test_arguments_of_other_libraries_are_answered(tmp_path, name, hint):
    with pytest.raises(TypeError, match=hint):
        agent(tmp_path / "run").learn(**{name: 1})  # type: ignore[arg-type]


def test_another_seed_is_refused_before_the_steps_are_counted(tmp_path):
    agent(tmp_path / "run").learn(total_timesteps=32)
    changed = PPO.load(tmp_path / "run", seed=3)
    with pytest.raises(ConfigError, match=r"seed cannot change from 0 to 3: .* or train a new agent with it$"):
        changed.learn()
    assert changed.learn(total_timesteps=16, fresh=True).config.seed == 3


def test_loading_one_of_several_seeds_names_the_others(tmp_path):
    options = {name: TINY[name] for name in ("hidden_sizes", "batch_size")}
    config = {"dataset": {"kind": "random", "rows": 64}, "total_timesteps": 4, "eval_interval": 0}
    manager = ExperimentManager.setup(
        {"algo": "bc", "env_id": "CartPole-v1", "output_dir": str(tmp_path / "seeds"), "algo_kwargs": options, **config}
    )
    first, last = (result.run_dir for result in manager.sweep([2, 10]))
    with pytest.raises(ValueError, match=rf"seeds holds runs of 2 seeds; use one of them: {first}, {last}$"):
        BC.load(tmp_path / "seeds", seed=10)
    with pytest.raises(ConfigError, match=rf"seed cannot change from 2 to 10: .* Leave out seed=10, or load {last}$"):
        BC.load(first, seed=10).learn(total_timesteps=2)


def test_metrics_are_a_table(tmp_path):
    trained = agent(tmp_path / "run", eval_interval=32).learn(total_timesteps=64)
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    rows = read_metrics(tmp_path / "run", table="list")
    assert {"step", "policy_loss", "episode_return"} <= set().union(*rows)
    frame = trained.metrics()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["step"].tolist() == [row["step"] for row in rows]
    assert frame["eval_return_mean"].notna().sum() == 2
    assert isinstance(read_metrics(tmp_path / "run", table="polars"), polars.DataFrame)
    assert trained.result is not None
    assert trained.result.read_metrics(table="list") == rows
    with pytest.raises(FileNotFoundError, match=r"no metrics\.jsonl in"):
        read_metrics(tmp_path)
    with pytest.raises(ValueError, match="a saved agent has no log"):
        PPO.load(trained.save(tmp_path / "saved")).metrics()


def test_the_metrics_of_seeds_have_a_column_for_the_seed(tmp_path):
    for seed in (2, 10):
        agent(tmp_path / "runs" / f"seed_{seed}", seed=seed).learn(total_timesteps=16)
    assert [row["seed"] for row in read_metrics(tmp_path / "runs", table="list")] == [2, 10]


def test_the_evaluations_of_older_logs_have_the_same_columns(tmp_path):
    row = '{"step": 1, "evaluation": {"return_mean": 2.0, "returns": [2.0]}}'
    (tmp_path / "metrics.jsonl").write_text(f"{row}\n")
    assert read_metrics(tmp_path, table="list") == [{"step": 1, "eval_return_mean": 2.0}]


def test_half_a_row_of_a_running_log_is_left_out(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"ste')
    assert read_metrics(tmp_path, table="list") == [{"step": 1}]


@pytest.mark.parametrize("steps", ["100", 1.5, True])
def test_the_number_of_steps_must_be_an_integer(tmp_path, steps):
    with pytest.raises(TypeError, match="total_timesteps must be an integer, got"):
        PPO("CartPole-v1", output_dir=str(tmp_path / "run")).learn(steps)
    assert not (tmp_path / "run").exists()
