"""The model-based lane: when it fits, where rollouts start and end, what batches are made of, and exact resume."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import nn

from rl_training.experiment.assembly import assemble
from rl_training.experiment.config.train_config import ConfigError, parse_config
from rl_training.experiment.machine import choose
from rl_training.experiment.run import resume_run, run_training
from rl_training.experiment.seeds.sweep import as_population
from rl_training.experiment.verify import compare_runs
from rl_training.runtime.callbacks.progress import ShowProgress
from rl_training.runtime.engine import Callback
from rl_training.runtime.lanes import ModelBasedLane
from rl_training.runtime.state import TrainerState

TINY = {"batch_size": 16, "hidden_sizes": [8], "model_members": 3, "model_elites": 2, "model_hidden_sizes": [8],
        "model_max_epochs": 3, "rollout_batch_size": 12, "rollout_interval": 10, "rollout_schedule": [0, 0, 2, 2],
        "model_retention": 2}  # fmt: skip


def configured(algo: str = "mbpo", env_id: str = "Pendulum-v1", **options: Any) -> dict[str, Any]:
    acting = {"learning_starts": 20, "buffer_size": 100, "model_train_interval": 20, "updates_per_collect": 3}
    run = {"algo": algo, "env_id": env_id, "total_timesteps": 60, "eval_interval": 0}
    if algo == "mopo":
        return {**run, "dataset": {"kind": "random", "rows": 50}, "algo_kwargs": {**TINY, **options}}
    return {**run, "algo_kwargs": {**TINY, **acting, **options}}


@contextmanager
def lane_of(config: dict[str, Any]) -> Iterator[ModelBasedLane]:
    parsed = parse_config(config)
    state, (parts,) = assemble([parsed], choose(parsed), 60)
    assert isinstance(state.lane, ModelBasedLane)
    yield state.lane
    parts.close()


def until(lane: ModelBasedLane, step: int) -> ModelBasedLane:
    while lane.step < step or lane.fit.running:
        lane.collect(128)
    return lane


def test_the_model_is_fitted_when_random_steps_are_over_and_then_at_each_interval():
    with lane_of(configured()) as lane:
        began = set()
        while lane.step < 60:
            lane.collect(128)
            began.add(lane.fitted_at)
        assert sorted(began) == [-1, 20, 40]


def test_time_stands_still_while_the_model_is_fitted_and_no_update_is_owed():
    with lane_of(configured()) as lane:
        until(lane, 20)
        collected = [(lane.collect(128).doing, lane.step, lane.due()) for _ in range(3)]
        assert collected == [(f"fitting the model: epoch {number}", 20, 0) for number in (1, 2, 3)]
        assert lane.collect(128).num_env_steps == 1
        assert (lane.step, lane.due()) == (21, 3)


@pytest.mark.parametrize("options", [{"normalize_obs": True}, {"network": {"kind": "simba_v2", "hidden_sizes": [8]}}])
def test_normalisation_is_for_policy_and_critics_alone(options):
    with lane_of(configured(**options)) as lane:
        until(lane, 30)
        assert len(lane.imagined)
        assert lane.learner.normalizer.count == 30
        assert isinstance(lane.fit.dynamics.normalizer, nn.Identity)


def test_no_update_is_owed_before_there_are_rows_of_the_model():
    with lane_of(configured()) as lane:
        while lane.fitted_at < 0:
            assert lane.due() == 0
            lane.collect(128)


def test_a_collect_that_ends_after_learning_starts_makes_no_update_without_rows_of_the_model():
    with lane_of(configured(collect_steps=30)) as lane:
        lane.collect(128)
        assert (lane.step, len(lane.imagined), lane.due()) == (30, 0, 0)
        until(lane, 60)
        assert len(lane.imagined)
        assert lane.due() == 3


def test_rollouts_take_random_numbers_from_the_generator_of_the_lane_alone():
    with lane_of(configured()) as lane:
        until(lane, 20)
        generators, rows = (lane.generator, lane.real.source.generator), []  # of rollouts and of their first states
        before = [each.get_state() for each in generators]
        for seed in (0, 1):
            for generator, state in zip(generators, before, strict=True):
                generator.set_state(state)
            torch.manual_seed(seed)  # of the default generator
            lane.branch()
            rows.append(lane.imagined.rows(lane.imagined.added - 12, lane.imagined.added))
        assert all(column.equal(rows[1][name]) for name, column in rows[0].items())


def test_rollouts_start_from_states_that_were_visited_and_go_on_from_where_they_are():
    with lane_of(configured()) as lane:
        until(lane, 21)
        lived = {tuple(row) for row in lane.real.source.columns["obs"][:20].tolist()}
        first, second = lane.imagined.rows(0, 12), lane.imagined.rows(12, 24)
        assert {tuple(row) for row in first["obs"].tolist()} <= lived
        assert second["obs"].equal(first["next_obs"])


def test_rollouts_take_random_actions_of_the_policy():
    with lane_of(configured()) as lane:
        until(lane, 21)
        rows = lane.imagined.rows(0, 12)
        assert not rows["actions"].allclose(lane.learner.act(rows["obs"], deterministic=True).actions)


def test_rollouts_end_where_the_rule_says_and_never_at_a_time_limit():
    with lane_of(configured()) as lane:
        until(lane, 20)
        lane.fit.dynamics.rule = lambda obs: obs[:, 0] > lane.real.source.columns["obs"][:20, 0].median()
        until(lane, 21)
        rows = lane.imagined.rows(0, lane.imagined.added)
        assert 0 < rows["dones"][:12].sum() < 12
        going_on = rows["next_obs"][:12][rows["dones"][:12] == 0]
        assert rows["obs"][12:].equal(going_on)
        assert rows["truncated"].sum() == 0


def test_rollouts_stop_when_all_have_ended():
    with lane_of(configured()) as lane:
        until(lane, 20)
        lane.fit.dynamics.rule = lambda obs: torch.ones(len(obs), dtype=torch.bool)
        until(lane, 21)
        assert lane.imagined.added == 12


def test_numbers_that_are_none_are_dropped_and_counted():
    with lane_of(configured()) as lane:
        until(lane, 20)
        with torch.no_grad():
            lane.fit.networks["model.net.2.bias"].fill_(torch.inf)
        metrics = lane.branch()
        assert (metrics["model_rows_dropped"].item(), lane.imagined.added) == (12, 0)


def test_rows_of_the_last_rollouts_are_kept():
    with lane_of(configured()) as lane:
        until(lane, 60)
        assert lane.imagined.added > len(lane.imagined) == 2 * 2 * 12


def test_rollouts_grow_as_scheduled():
    with lane_of(configured(rollout_schedule=[20, 50, 1, 4])) as lane:
        lengths: dict[int, float] = {}
        while lane.step < 60:
            metrics = lane.collect(128).metrics
            lengths |= {lane.branched_at: metrics["rollout_length"].item()} if "rollout_length" in metrics else {}
        assert lengths == {20: 1, 30: 2, 40: 3, 50: 4}
        assert len(lane.imagined) == 2 * 4 * 12  # two rollouts of the newest length, the older of them shorter


@pytest.mark.parametrize(("ratio", "real"), [(0.0, 0), (0.25, 4), (1.0, 16)])
def test_batches_mix_real_rows_and_rows_of_the_model(ratio, real):
    with lane_of(configured(real_ratio=ratio)) as lane:
        until(lane, 21)
        lived = lane.real.source.columns["rewards"][: lane.step]
        rewards = lane.source.sample(16)["rewards"]
        assert torch.isin(rewards, lived).sum() == real


def test_a_task_without_a_known_rule_learns_when_it_ends():
    for env_id, known in (("Pendulum-v1", True), ("MountainCarContinuous-v0", False)):
        with lane_of(configured(env_id=env_id)) as lane:
            assert (lane.fit.dynamics.rule is not None) == known
    with lane_of(configured(termination="learned")) as lane:
        assert lane.fit.dynamics.rule is None


def test_mopo_fits_once_and_rolls_out_at_each_interval():
    with lane_of(configured("mopo")) as lane:
        branched = []
        while lane.step < 35:
            lane.collect(128)
            branched.append(lane.branched_at)
        assert lane.fitted_at == 0
        assert branched == [-1, -1, -1, 0, 10, 20, 30]
        assert lane.due() == 10


def test_a_collect_stops_where_the_next_rollouts_begin():
    with lane_of(configured("mopo")) as lane:
        while lane.step == 0:
            lane.collect(3)
        lane.collect(128)
        assert (lane.step, lane.due()) == (10, 7)


def test_mopo_stores_rewards_less_a_penalty():
    rewards = {}
    for coefficient in (0.0, 100.0):
        with lane_of(configured("mopo", penalty_coefficient=coefficient)) as lane:
            until(lane, 10)
            rewards[coefficient] = lane.imagined.rows(0, 12)["rewards"]
    assert (rewards[100.0] < rewards[0.0]).all()


def test_mopo_has_no_online_steps():
    with pytest.raises(ConfigError, match="mopo cannot be fine-tuned online; set online_steps to 0 or use mbpo"):
        run_training(parse_config({**configured("mopo"), "online_steps": 10}))


def test_seeds_run_as_processes():
    assert not as_population(parse_config(configured()))


class StopInAFit(Callback):
    """Asks to stop after the second pass of the fit at step 40."""

    def on_step_end(self, state: TrainerState) -> None:
        lane: Any = state.lane
        if lane.fit.running and (lane.fitted_at, lane.fit.epochs) == (40, 2):
            state.request_stop("in the middle of a fit")


def test_a_run_that_was_stopped_in_a_fit_goes_on_as_if_it_had_not_been(tmp_path):
    whole = run_training(parse_config({**configured(), "output_dir": str(tmp_path / "whole")}))
    halved = run_training(
        parse_config({**configured(), "output_dir": str(tmp_path / "halved")}), callbacks=[StopInAFit()]
    )
    assert (halved.status, halved.steps) == ("stopped", 40)
    assert resume_run(halved.run_dir).status == "finished"
    assert compare_runs(whole.run_dir, halved.run_dir) == []


def test_a_best_evaluation_is_saved_once_though_a_fit_follows(tmp_path):
    saves = []

    class CountSaves(Callback):
        def on_step_end(self, state: TrainerState) -> None:
            path = tmp_path / "run" / "checkpoints" / "step_000000020" / "manifest.json"
            saves.append(path.stat().st_mtime_ns if path.exists() else None)

    config = {**configured(), "eval_interval": 20, "eval_episodes": 1, "output_dir": str(tmp_path / "run")}
    run_training(parse_config({**config, "total_timesteps": 25, "checkpoint_interval": 100}), callbacks=[CountSaves()])
    assert len({save for save in saves if save is not None}) == 1


def test_a_fit_shows_how_far_it_is(tmp_path):
    shown = io.StringIO()
    progress = ShowProgress(Console(file=shown, width=200))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rl_training.runtime.callbacks.progress.LINE_SECONDS", 0.0)
        run_training(parse_config({**configured(), "output_dir": str(tmp_path)}), callbacks=[progress])
    assert "step 20 of 60" in shown.getvalue()
    assert "fitting the model: epoch 2" in shown.getvalue()
