"""Acting with a memory: what is remembered, what of it is stored, and how many updates are owed for it."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rl_training.algorithms import SequenceConfig, Updater
from rl_training.data import RecurrentReplayBuffer
from rl_training.envs.pools.pool import EnvPool
from rl_training.runtime.evaluation import evaluate
from rl_training.runtime.lanes import Actor, SequenceLane
from rl_training.runtime.memory import Memory
from rl_training.runtime.policies import SometimesRandom
from rl_training.runtime.recipes import roll_dataset
from rl_training.types import Action, Batch, EnvSpec, Loss, ParameterGroup


class Steps(gym.Env[Any, Any]):
    """Shows how many steps the episode has had; each lasts three or, by its seed, five."""

    observation_space = gym.spaces.Box(0, 1e6, (1,), np.float32)
    action_space = gym.spaces.Discrete(7)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time, self.length = 0, int(self.np_random.choice([3, 5]))
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return np.full(1, self.time, np.float32), 1.0, self.time == self.length, False, {}


class Recall:
    """Counts the steps of the episode in its memory; what it does is that count plus what it did before, in 0..6."""

    def act(
        self, obs: Tensor, memory: Any = None, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Action:
        none = torch.zeros(len(obs))
        memory = memory or {"deter": none[:, None] - 1, "action": none.long(), "is_first": none + 1}
        first = memory["is_first"].bool()
        count = torch.where(first[:, None], 0, memory["deter"] + 1)
        before = torch.where(first, 0, memory["action"])
        actions = (count.squeeze(1).long() + before) % 7
        return Action(actions, {"deter": count, "action": actions, "is_first": none})


class Start(Recall):
    """Also seen as a learner: of each window it wants what it remembers to be 100 more than what is seen there."""

    def __init__(self) -> None:
        self.model = nn.Linear(1, 1)
        self.config = SimpleNamespace(batch_size=2)

    def __call__(self, batch: Batch, phase: str = "loss") -> Loss:
        return Loss({"loss": self.model(batch["start_deter"].float()).mean()}, rows={"deter": batch["obs"] + 100})

    def phases(self, update: int) -> tuple[str, ...]:
        return ("loss",)

    def parameter_groups(self) -> list[ParameterGroup]:
        return [ParameterGroup(1e-3)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)


def counted(memory: Memory) -> list[float]:
    """What Recall remembers."""
    return [] if memory.rows is None else memory.rows["deter"].flatten().tolist()


def lane_of(pool: EnvPool, **options: Any) -> SequenceLane:
    config = SequenceConfig(**{"batch_size": 2, "window": 4, "learning_starts": 0, **options})
    actor = Actor(Recall(), pool, torch.Generator(), torch.device("cpu"))
    latents = {"deter": ((1,), torch.float16)}
    return SequenceLane(actor, RecurrentReplayBuffer(
        60 * pool.num_envs, pool.spec, num_envs=pool.num_envs, window=4, latents=latents), config)  # fmt: skip


def test_what_is_remembered_is_of_the_running_episode_and_kept_with_what_was_seen():
    lane = lane_of(EnvPool(Steps, 3))
    for _ in range(30):
        lane.collect(1)
    for env, count in enumerate(lane.replay.counts):
        records = lane.replay.parts()[f"replay{env}"].rows(0, count)
        acted = records["is_last"] == 0
        assert int((~acted).sum()) > 3
        assert lane.replay.latents["deter"][env, :count][acted].equal(records["obs"][acted].half())
        steps = records["obs"][acted].squeeze(1)
        assert records["actions"][acted].tolist() == (steps * (steps + 1) / 2 % 7).tolist()  # 0 + 1 + … + n


@pytest.mark.parametrize("num_envs", [1, 16])
def test_as_many_steps_are_replayed_as_the_ratio_asks_for(num_envs):
    lane = lane_of(EnvPool(Steps, num_envs), train_ratio=3.0, learning_starts=96)
    owed = []
    while lane.step < 1200:
        result = lane.collect(1)
        owed.append(lane.due())
    assert sum(owed[: 96 // num_envs]) == 0
    assert max(owed) <= num_envs * 3 / 8 + 1  # an update replays 2 * 4 steps; the past is not made up for
    assert sum(owed) == pytest.approx((lane.step - 96) * 3 / 8, abs=1)
    assert float(result.metrics["train_ratio"]) == pytest.approx(3, abs=0.02)


def test_nothing_is_owed_before_there_is_a_window():
    lane = lane_of(EnvPool(Steps), train_ratio=100.0)
    owed = []
    for _ in range(4):
        lane.collect(1)
        owed.append(lane.due())
    # After three steps, or with the last observation of an episode of three, there are four records.
    assert (lane.began, owed) in [(3, [0, 0, 0, 12]), (4, [0, 0, 0, 0])]


def test_a_lane_goes_on_as_if_it_had_never_stopped():
    lane, resumed = (lane_of(EnvPool(Steps, 2, seed=1), train_ratio=3.0) for _ in range(2))
    for _ in range(17):
        lane.collect(1)
    for env, part in lane.replay.parts().items():
        resumed.replay.parts()[env].restore(part.rows(0, part.added), 0)
    assert resumed.load_state_dict(lane.state_dict()) == []
    for _ in range(20):
        lane.collect(1)
        resumed.collect(1)
        assert (resumed.step, resumed.due()) == (lane.step, lane.due())
        assert counted(resumed.actor.memory) == counted(lane.actor.memory)
        mine, theirs = lane.replay.sample(4), resumed.replay.sample(4)
        assert all(column.equal(theirs[name]) for name, column in mine.items())


class Clock(Steps):
    """Shows a number that no environment has shown before, so that no episode can be lived again."""

    ticks = itertools.count()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.array([next(self.ticks)], np.float32), 1.0, False, False, {}


def test_where_environments_start_anew_nothing_is_remembered():
    lane, resumed = lane_of(EnvPool(Clock)), lane_of(EnvPool(Clock))
    for _ in range(5):
        lane.collect(1)
    resumed.replay.parts()["replay0"].restore(lane.replay.parts()["replay0"].rows(0, 5), 0)
    assert len(resumed.load_state_dict(lane.state_dict())) == 1
    resumed.collect(1)
    records = resumed.replay.parts()["replay0"].rows(0, 6)
    assert records["is_last"].tolist() == [0, 0, 0, 0, 1, 0]
    assert records["is_first"].tolist() == [1, 0, 0, 0, 0, 1]
    assert resumed.replay.latents["deter"][0, :6, 0].tolist() == [0, 1, 2, 3, 4, 0]


def test_after_an_update_the_replay_keeps_what_the_learner_remembers_by_now():
    lane = lane_of(EnvPool(Steps))
    for _ in range(20):
        lane.collect(1)
    lane.replay.sample(20)  # the fresh ones
    Updater([Start()]).run(lane.replay, 30)
    count = lane.replay.counts[0]
    seen = lane.replay.columns["obs"][0, :count, 0]
    assert lane.replay.latents["deter"][0, :count, 0].tolist() == (seen + 100).tolist()


def replayed(device: str, *, capture: bool) -> tuple[dict[str, Any], Tensor]:
    """The draws' state and what is remembered, after updates between which the replay has grown."""
    learner, zero = Start(), torch.zeros(2, device=device)
    learner.model.to(device)
    spec, latents = EnvSpec((1,), "discrete", 2), {"deter": ((1,), torch.float16)}
    replay = RecurrentReplayBuffer(60, spec, num_envs=2, window=4, latents=latents, device=device)
    replay.seed(5)
    updater = Updater([learner], capture=capture)
    for step in range(50):
        obs = torch.full((2, 1), float(step), device=device)
        replay.add({"obs": obs, "actions": zero.long(), "rewards": zero, "next_obs": obs + 1, "dones": zero,
                    "truncated": zero, "deter": -obs})  # fmt: skip
        if step >= 10:
            updater.run(replay, 3)
    return replay.state_dict(), replay.latents["deter"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="captured updates need CUDA")
def test_captured_draws_see_the_replay_grow_and_serve_fresh_windows_once():
    (eager, mine), (captured, theirs) = (replayed("cuda", capture=capture) for capture in (False, True))
    assert mine.equal(theirs)
    assert all(captured[name].equal(eager[name]) for name in ("queued", "served", "generator"))


def test_fresh_windows_are_soon_learned_from():
    state, remembered = replayed("cpu", capture=False)
    assert int(state["queued"]) == int(state["served"]) == 2 * (50 // 4)
    assert remembered[:, :18].flatten().tolist() == [100.0 + step for step in range(30, 48)] * 2  # the newest of 30


class Answer:
    """Remembers on which side the cue was; with `forgetful`, nothing."""

    def __init__(self, *, forgetful: bool = False) -> None:
        self.forgetful = forgetful

    def act(
        self, obs: Tensor, memory: Any = None, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Action:
        seen = (obs[:, 0, 8, 12] > 0).long()
        none = torch.zeros(len(obs))
        memory = memory or {"side": seen, "is_first": none + 1}
        side = torch.where(memory["is_first"].bool(), seen, memory["side"])
        return Action(side, None if self.forgetful else {"side": side, "action": side, "is_first": none})


def test_evaluation_carries_the_memory_through_each_episode_and_no_further():
    assert evaluate(Answer(), "CueMemory-v0", episodes=40, seed=0).returns == [1.0] * 40  # 16 at a time
    assert abs(np.mean(evaluate(Answer(forgetful=True), "CueMemory-v0", episodes=200, seed=0).returns)) < 0.3


def test_datasets_are_rolled_with_a_memory():
    rows = roll_dataset("CueMemory-v0", rows=200, policy=Answer(), deterministic=True).columns
    assert rows["rewards"][rows["dones"] > 0].unique().tolist() == [1.0]


def test_random_actions_in_between_are_remembered_as_done():
    spec = EnvSpec((1,), "discrete", 7)
    chosen = SometimesRandom(Recall(), spec, 1.0).act(torch.zeros(50, 1), generator=torch.Generator().manual_seed(0))
    assert len(chosen.actions.unique()) == 7
    assert chosen.memory["action"].equal(chosen.actions)


def test_a_memory_is_of_as_many_environments_as_it_began_with():
    memory, policy = Memory(), Recall()
    for _ in range(3):
        memory.keep(policy.act(torch.zeros(2, 1), memory.of(2)))
    assert counted(memory) == [2, 2]
    memory.forget(np.array([False, True]))
    memory.keep(policy.act(torch.zeros(2, 1), memory.of(2)))
    assert counted(memory) == [3, 0]
    with pytest.raises(ValueError, match="this memory has 2 environments, got observations of 3; create a new one"):
        memory.of(3)
    memory.forget()
    assert memory.of(3) is None
