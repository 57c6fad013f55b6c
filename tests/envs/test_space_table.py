"""Every tick of the table in docs/guide/spaces.md: a random environment trains, resumes, evaluates and predicts."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rl_training.algorithms import CATALOGUE, Learner
from rl_training.data.spaces import entry
from rl_training.envs.creation.making import spec_of
from rl_training.experiment.agent import load_agent
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.run import resume_run, run_training
from rl_training.experiment.verify import compare_runs
from rl_training.runtime.callbacks.training import StopAtStep

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "spaces.md"
FLOAT, INTEGER, BYTES = np.float32, np.int64, np.uint8
VECTOR, NUMBER = spaces.Box(-1, 1, (3,), FLOAT), spaces.Discrete(4, start=2)
CHW, HWC = spaces.Box(0, 255, (1, 8, 8), BYTES), spaces.Box(0, 255, (8, 8, 3), BYTES)
OBSERVATIONS: dict[str, list[spaces.Space[Any]]] = {
    "Box of floats": [VECTOR, spaces.Box(-np.inf, np.inf, (2, 2), np.float64), spaces.Box(-1, 1, (), np.float16)],
    "Box of integers or booleans": [
        spaces.Box(-9, 9, (2,), INTEGER), spaces.Box(0, 1, (2, 3), np.bool_), spaces.Box(0, 255, (4,), BYTES),
    ],
    "Discrete": [spaces.Discrete(5), spaces.Discrete(3, start=-1)],
    "MultiDiscrete": [spaces.MultiDiscrete([2, 3], start=[0, 5]), spaces.MultiDiscrete(np.array([[2, 2], [3, 1]]))],
    "MultiBinary": [spaces.MultiBinary(3), spaces.MultiBinary((2, 2))],
    "Dict or Tuple without images": [
        spaces.Dict(b=VECTOR, a=NUMBER, word=spaces.Text(3)), spaces.Tuple([NUMBER, spaces.MultiBinary(2), VECTOR]),
        spaces.Dict(x=spaces.Tuple([VECTOR, spaces.Dict(y=NUMBER)])),
    ],
    "image: Box of uint8": [
        CHW, HWC, spaces.Box(0, 255, (9, 8), BYTES), spaces.Box(0, 255, (2, 8, 8, 1), BYTES),
        spaces.Box(0, 255, (40, 36, 3), BYTES),
    ],
    "Dict or Tuple with images": [
        spaces.Dict(eye=CHW, pace=VECTOR), spaces.Dict(eye=HWC, way=NUMBER, left=CHW), spaces.Tuple([HWC, CHW]),
        spaces.Dict(arm=spaces.Dict(eye=HWC, mask=spaces.MultiBinary(2)), word=spaces.Text(3)),
    ],
}  # fmt: skip
ACTIONS: dict[str, list[spaces.Space[Any]]] = {
    "Box of floats, bounded": [spaces.Box(-2, 3, (2,), FLOAT), spaces.Box(0, 1, (2, 2), np.float64)],
    "Box of floats, unbounded": [
        spaces.Box(-np.inf, np.inf, (2,), FLOAT),
        spaces.Box(np.array([-np.inf, 0.5], FLOAT), np.array([3, np.inf], FLOAT)),
    ],
    "Dict or Tuple of float Boxes": [spaces.Dict(b=spaces.Box(-1, 1, (2,)), a=spaces.Box(0, 5, (1,), np.float64))],
    "Discrete": [spaces.Discrete(3), NUMBER, spaces.Dict(only=NUMBER), spaces.MultiBinary(1)],
    "MultiDiscrete": [spaces.MultiDiscrete([2, 3]), spaces.MultiDiscrete(np.array([[2, 3], [4, 2]]))],
    "MultiBinary": [spaces.MultiBinary(3), spaces.MultiBinary((2, 2))],
    "Box of integers": [spaces.Box(-1, 2, (2,), np.int32)],
    "Dict or Tuple of choices": [
        spaces.Dict(b=NUMBER, a=spaces.MultiBinary(2)), spaces.Tuple([NUMBER, spaces.MultiDiscrete([3, 2])]),
        spaces.Dict(x=spaces.Tuple([NUMBER, spaces.Dict(y=spaces.Box(0, 3, (1,), np.int8))])),
    ],
}  # fmt: skip
SPACES = {f"observations {row}": each for row, each in OBSERVATIONS.items()}
SPACES |= {f"actions {row}": each for row, each in ACTIONS.items()}
RUNS: dict[str, dict[str, Any]] = {
    "offline": {"dataset": {"kind": "random", "rows": 100}},
    "replay": {"num_envs": 2},
    "sequence": {"num_envs": 2},
    "rollout": {"num_envs": 2},
}
OPTIONS: dict[str, Any] = {  # that an algorithm may have
    "batch_size": 8, "hidden_sizes": [8], "horizon": 3, "model_elites": 1, "model_hidden_sizes": [8],
    "model_members": 2, "num_critics": 3, "num_quantiles": 4, "size": "tiny", "buffer_size": 150, "epochs": 1,
    "learning_starts": 16, "model_max_epochs": 1, "model_train_interval": 32, "num_steps": 8, "rollout_batch_size": 16,
    "train_ratio": 8, "rollout_interval": 16, "rollout_schedule": [0, 30, 1, 2], "updates_per_collect": 1, "window": 6,
}  # fmt: skip


class Random(gym.Env[Any, Any]):
    """Observations are sampled from their space; the reward depends on the action, which must be in its space."""

    def __init__(self, row: str, number: int) -> None:
        space = copy.deepcopy(SPACES[row][number])
        is_observed = row.startswith("observations")
        self.observation_space = space if is_observed else copy.deepcopy(VECTOR)
        self.action_space = spaces.Discrete(3) if is_observed else space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        assert action in self.action_space, f"{action!r} is not in {self.action_space}"
        done = bool(self.np_random.integers(9) == 0)
        return self.observation_space.sample(), float(len(repr(action)) % 3), done, False, {}


class RandomBox(Random):
    """The same with Box actions, for algorithms that need them."""

    def __init__(self, row: str, number: int) -> None:
        super().__init__(row, number)
        self.action_space = spaces.Box(-1, 1, (2,), FLOAT)


gym.register("SpaceTable-v0", lambda **options: Random(**options), max_episode_steps=20)
gym.register("SpaceTableBox-v0", lambda **options: RandomBox(**options), max_episode_steps=20)


def table() -> dict[str, dict[str, bool]]:
    """The ticks of the page: row -> algorithm -> whether it is supported."""
    found: dict[str, dict[str, bool]] = {}
    kind, names = "", list[list[str]]()
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] in ("observations", "actions"):
            kind, names = cells[0], [re.findall("`(\\w+)`", cell) for cell in cells[1:]]
        elif len(cells) == len(names) + 1 and f"{kind} {cells[0]}" in SPACES:
            marks = zip(names, cells[1:], strict=True)
            found[f"{kind} {cells[0]}"] = {name: mark == "✓" for group, mark in marks for name in group}
    return found


TABLE = table()
TICKS = [  # the spaces of a row take turns
    (row, turn % len(SPACES[row]), name)
    for row, algorithms in TABLE.items()
    for turn, name in enumerate(name for name, ticked in algorithms.items() if ticked)
]
FAMILIES = ("ppo", "dqn", "cql", "sac", "iqn", "bc", "td3")


def few_ticks() -> list[tuple[str, int, str]]:
    """The first and the last space of every row; the algorithms take turns."""
    chosen = [("observations Dict or Tuple with images", 1, "dreamer")]
    for turn, (row, each) in enumerate(SPACES.items()):
        fitting = [name for name in FAMILIES if TABLE[row][name]]
        chosen += [(row, number, fitting[(turn + number) % len(fitting)]) for number in sorted({0, len(each) - 1})]
    return chosen


def config(row: str, number: int, learner: type[Learner], output: Path, steps: int, **changes: Any) -> Any:
    is_box = row.startswith("observations") and "discrete" not in learner.action_kinds
    expert = {"dataset": {"kind": "random", "rows": 60}} if learner.needs_expert else {}
    options = {name: value for name, value in OPTIONS.items() if name in learner.config_type.model_fields}
    return parse_config({
        "algo": learner.name, "env_id": f"SpaceTable{'Box' * is_box}-v0", "env_kwargs": {"row": row, "number": number},
        "eval_episodes": 1, "eval_interval": steps // 2, "checkpoint_interval": steps // 3, "total_timesteps": steps,
        "output_dir": str(output), **RUNS[learner.lane], **expert, "algo_kwargs": options, **changes,
    })  # fmt: skip


def check_tick(row: str, number: int, name: str, folder: Path, steps: int) -> None:
    learner = CATALOGUE[name]
    whole = run_training(config(row, number, learner, folder / "whole", steps), warn=lambda text: None)
    warnings: list[str] = []
    stop = StopAtStep(steps // 2 + 2)
    run_training(config(row, number, learner, folder / "halved", steps), callbacks=[stop], warn=lambda text: None)
    resume_run(folder / "halved", warn=warnings.append)
    assert [warning for warning in warnings if "approximate" in warning] == []
    assert compare_runs(whole.run_dir, folder / "halved") == []
    agent = load_agent(whole.run_dir)
    assert len(agent.evaluate(2)["returns"]) == 2
    env = Random(row, number) if agent.config.env_id == "SpaceTable-v0" else RandomBox(row, number)
    env.reset(seed=0)
    several = [env.observation_space.sample() for _ in range(4)]
    actions = [agent.predict(obs) for obs in several]
    for action in actions:
        assert action in env.action_space
    together = agent.predict(several)
    for index, action in enumerate(actions):
        alone, other = (spaces.flatten(env.action_space, each) for each in (action, entry(together, index)))
        assert np.allclose(np.asarray(alone), np.asarray(other), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("row", "number", "name"), few_ticks())
def test_a_space_trains_resumes_evaluates_and_predicts(row, number, name, tmp_path):
    check_tick(row, number, name, tmp_path, steps=48)


@pytest.mark.slow
@pytest.mark.parametrize(("row", "number", "name"), TICKS)
def test_every_tick_trains_resumes_evaluates_and_predicts(row, number, name, tmp_path):
    check_tick(row, number, name, tmp_path, steps=200)


def test_the_table_lists_every_algorithm_and_the_spaces_it_accepts():
    assert TABLE.keys() == SPACES.keys()
    for row, algorithms in TABLE.items():
        assert algorithms.keys() == CATALOGUE.keys()
        for name, ticked in algorithms.items():
            learner = CATALOGUE[name]
            is_box = row.startswith("observations") and "discrete" not in learner.action_kinds
            for number in range(len(SPACES[row])):
                spec = spec_of(f"SpaceTable{'Box' * is_box}-v0", {"row": row, "number": number})
                if ticked:
                    learner.check_spec(spec)
                else:
                    with pytest.raises(TypeError, match=rf"{name} needs"):
                        learner.check_spec(spec)
