"""Offline, then online: the rows of a batch, and the returns-to-go of online rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from rl_training.data import ReplayBuffer, TransitionDataset
from rl_training.data.replay.mixed_replay import MixedReplay
from rl_training.envs.pools.pool import EnvPool
from rl_training.experiment.assembly import assemble
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.machine import choose
from rl_training.experiment.run import run_training
from rl_training.runtime.engine import Callback
from rl_training.runtime.lanes import Actor, FineTuneLane, FineTuning
from rl_training.types import Action, EnvSpec

SPEC = EnvSpec((1,), "discrete", 2)


def dataset(rows: int = 10, **columns: Any) -> TransitionDataset:
    zeros = torch.zeros(rows)
    return TransitionDataset(
        {"obs": torch.full((rows, 1), -1.0), "actions": zeros.long(), "rewards": zeros, "next_obs": zeros[:, None],
         "dones": zeros, "truncated": zeros, **columns}, spec=SPEC,
    )  # fmt: skip


def replay(**extra: Any) -> ReplayBuffer:
    return ReplayBuffer(100, SPEC, extra=extra)


class Countdown(gym.Env[Any, Any]):
    """Pays 1, 2, 3 and ends: by a terminal state in even episodes, by the clock in odd ones."""

    observation_space = gym.spaces.Box(-10, 10, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    episode, cuts = -1, True

    def reset(self, **options: Any) -> Any:
        super().reset(**options)
        self.time, self.episode = 0, self.episode + 1
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        over = self.time == 3
        cut = self.cuts and self.episode % 2 == 1
        return np.full(1, self.time, np.float32), float(self.time), over and not cut, over and cut, {}


class Mortal(Countdown):
    """What it does depends on its present episode alone, so that it can be brought back by playing that again."""

    cuts = False


class Still:
    def act(self, obs: torch.Tensor, memory: Any = None, **options: Any) -> Action:
        return Action(torch.zeros(len(obs), dtype=torch.int64))


def lane(
    data: TransitionDataset, rows: ReplayBuffer, *, env: Any = Countdown, num_envs: int = 1, batch_size: int = 2,
    **options: Any,
) -> FineTuneLane:  # fmt: skip
    chosen = {"offline_steps": 5, "online_steps": 100, "offline_ratio": 0.5, "updates_per_step": 1, **options}
    settings = FineTuning(**chosen, rewards=lambda rewards: 2 * rewards)
    actor = Actor(Still(), EnvPool(env, num_envs), torch.Generator(), torch.device("cpu"))
    return FineTuneLane(data, actor, rows, settings, batch_size=batch_size, gamma=0.5)


@pytest.mark.parametrize(("ratio", "old"), [(0.0, 0), (0.25, 2), (0.3, 2), (0.35, 3), (0.5, 4), (1.0, 8)])
def test_the_ratio_is_the_share_of_rows_from_the_dataset(ratio: float, old: int) -> None:
    rows = replay()
    rows.add({**dataset(3).columns, "obs": torch.ones(3, 1)})
    batch = MixedReplay(dataset(), rows, ratio).sample(8)
    assert int((batch["obs"] == -1).sum()) == old
    assert len(batch["obs"]) == 8


def test_only_columns_that_both_have_are_handed_out() -> None:
    rows = replay()
    rows.add(dataset(3).columns)
    batch = MixedReplay(dataset(extra=torch.zeros(10)), rows, 0.5).sample(4)
    assert "extra" not in batch


def test_updates_come_first_and_never_run_past_the_offline_steps() -> None:
    tuned = lane(dataset(), replay())
    assert (tuned.collect(3).num_env_steps, tuned.due(), tuned.step, tuned.source) == (0, 3, 3, tuned.mixed.dataset)
    tuned.collect(128)
    assert (tuned.due(), tuned.step) == (2, 5)
    assert (tuned.collect(128).num_env_steps, tuned.step, tuned.source) == (1, 6, tuned.mixed)


def test_online_batches_hold_the_ratio_of_rows_from_the_dataset() -> None:
    tuned = lane(dataset(), replay(), offline_steps=0, offline_ratio=0.25)
    tuned.collect(1)
    assert (tuned.source.sample(8)["obs"] == -1).sum() == 2


def test_the_lane_is_built_with_the_batch_size_and_discount_of_the_options(tmp_path: Path) -> None:
    options = {"batch_size": 32, "hidden_sizes": [8], "gamma": 0.5}
    config = parse_config({
        "algo": "cal_ql", "env_id": "Pendulum-v1", "dataset": {"kind": "random", "rows": 200}, "total_timesteps": 10,
        "online_steps": 10, "eval_interval": 0, "algo_kwargs": options, "output_dir": str(tmp_path),
    })  # fmt: skip
    state, (parts,) = assemble([config], choose(config), 20)
    assert isinstance(state.lane, FineTuneLane)
    assert (state.lane.batch_size, state.lane.gamma) == (32, 0.5)
    parts.close()


def test_updates_wait_for_a_batch_of_lived_rows() -> None:
    tuned = lane(dataset(), replay(), offline_steps=0, batch_size=3, updates_per_step=2)
    due = [tuned.collect(1) and tuned.due() for _ in range(4)]
    assert due == [0, 0, 2, 2]


def test_updates_are_counted_by_the_steps_of_all_environments() -> None:
    tuned = lane(dataset(), replay(), num_envs=3, offline_steps=0, updates_per_step=2)
    tuned.collect(1)
    assert tuned.due() == 2 * 3


def test_lived_rewards_are_treated_as_the_datasets_were() -> None:
    tuned = lane(dataset(), replay(), offline_steps=0)
    for _ in range(3):
        tuned.collect(1)
    assert tuned.replay.rows(0, 3)["rewards"].tolist() == [2.0, 4.0, 6.0]


def test_rows_wait_for_their_episode_which_tells_their_return() -> None:
    rows = replay(returns_to_go=((), torch.float32))
    tuned = lane(dataset(returns_to_go=torch.zeros(10)), rows, offline_steps=0)
    added = [tuned.collect(1) and rows.added for _ in range(6)]
    assert added == [0, 0, 3, 3, 3, 6]
    # Rewards 2, 4, 6 at a discount of a half. Cut, the future pays (6 + 4/2 + 2/4) / (1 - 1/8) = 68/7 at the end.
    future = 68 / 7
    expected = [2 + 2 + 1.5, 4 + 3, 6, 5.5 + future / 8, 7 + future / 4, 6 + future / 2]
    assert rows.rows(0, 6)["returns_to_go"].tolist() == pytest.approx(expected)


def test_next_actions_are_stored_when_the_episode_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    actions = iter([1, 0, 1, 1])
    monkeypatch.setattr(Still, "act", lambda *_, **__: Action(torch.tensor([next(actions)])))
    rows = replay(next_actions=((), torch.int64))
    tuned = lane(dataset(next_actions=torch.zeros(10).long()), rows, offline_steps=0)
    assert [tuned.collect(1) and rows.added for _ in range(3)] == [0, 0, 3]
    assert rows.rows(0, 3)["next_actions"].tolist()[:2] == [0, 1]


def test_waiting_rows_survive_a_save() -> None:
    data, column = dataset(returns_to_go=torch.zeros(10)), {"returns_to_go": ((), torch.float32)}
    before, after = (lane(data, replay(**column), env=Mortal, offline_steps=0) for _ in range(2))
    for _ in range(2):
        before.collect(1)
    assert after.load_state_dict(before.state_dict()) == []
    for each in (before, after):
        each.collect(1)
    for name, rows in before.replay.rows(0, 3).items():
        assert torch.equal(rows, after.replay.rows(0, 3)[name])


def test_an_episode_that_a_reset_cuts_is_not_stored() -> None:
    data, column = dataset(returns_to_go=torch.zeros(10)), {"returns_to_go": ((), torch.float32)}
    before, after = (lane(data, replay(**column), env=Mortal, offline_steps=0) for _ in range(2))
    for _ in range(2):
        before.collect(1)
    state = before.state_dict()
    state["actor"]["envs"]["envs"]["0"]["kind"] = "of another kind"
    assert after.load_state_dict(state)
    for _ in range(3):
        after.collect(1)
    assert after.replay.rows(0, after.replay.added)["rewards"].tolist() == [2.0, 4.0, 6.0]


def events_of_a_run(path: Path, **changes: Any) -> tuple[int, list[str]]:
    """The online updates of a run with ten offline ones, and its warnings before and after "start"."""
    events: list[str] = []

    class Watch(Callback):
        def on_train_start(self, state: Any) -> None:
            events.append("start")

    config = {
        "algo": "td3_bc", "env_id": "Pendulum-v1", "dataset": {"kind": "random", "rows": 200}, "eval_interval": 0,
        "total_timesteps": 10, "algo_kwargs": {"hidden_sizes": [8], "batch_size": 32}, "output_dir": str(path),
    }  # fmt: skip
    result = run_training(parse_config({**config, **changes}), callbacks=[Watch()], warn=events.append)
    return result.updates - 10, events


@pytest.mark.parametrize(
    ("online_steps", "num_envs", "updates"), [(31, 1, 0), (32, 1, 1), (28, 4, 0), (29, 4, 4)],
)  # fmt: skip
def test_an_online_phase_that_is_too_short_for_a_batch_is_reported_before_it_starts(
    tmp_path: Path, online_steps: int, num_envs: int, updates: int
) -> None:
    found, events = events_of_a_run(tmp_path / "run", online_steps=online_steps, num_envs=num_envs)
    warning = (
        f"the online phase makes no updates in {online_steps} steps: td3_bc needs a batch of 32 online transitions "
        "first; raise online_steps, or lower batch_size with --set"
    )
    assert (found, events) == (updates, ["start"] if updates else [warning, "start"])


@pytest.mark.parametrize(
    ("episode", "warnings"),
    [
        (10, []),
        (40, []),
        (30, ["the online phase made no updates in 40 steps: cal_ql needs a batch of 32 online transitions first, and "
              "30 were stored; raise online_steps, or lower batch_size with --set"]),
        (200, ["the online phase made no updates in 40 steps: no episode ended, so no transition was stored; "
               "raise online_steps"]),
    ],
)  # fmt: skip
def test_an_online_phase_whose_episodes_were_too_long_for_a_batch_is_reported(
    tmp_path: Path, episode: int, warnings: list[str]
) -> None:
    kwargs = {"max_episode_steps": episode}
    updates, events = events_of_a_run(tmp_path / "run", algo="cal_ql", online_steps=40, env_kwargs=kwargs)
    assert (updates > 0, [each for each in events if "online phase" in each]) == (not warnings, warnings)
    assert not warnings or events[-2:] == ["start", *warnings]


def test_an_online_phase_that_a_budget_of_updates_leaves_out_is_not_reported(tmp_path: Path) -> None:
    assert events_of_a_run(tmp_path / "run", online_steps=40, max_updates=10) == (0, ["start"])
