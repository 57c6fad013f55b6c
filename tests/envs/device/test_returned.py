"""The tensors that a `TensorEnv` returns are checked: shapes, dtypes, the form of its state, and NaN values."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rl_training.envs.checks.checker import check_env
from rl_training.envs.device.base import Outcome, State, TensorEnv
from rl_training.envs.device.pool import DevicePool
from rl_training.envs.device.single import SingleEnv
from rl_training.envs.pools.group import EnvError
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.run import run_training
from rl_training.types import EnvSpec


class Walk(TensorEnv):
    """Walks by steps of 0.4 from one of five places."""

    spec = EnvSpec((1,), "discrete", 2)
    time_limit = 50

    def initial(self, draws):
        return {"x": draws.integers(1, below=5)[..., 0].float()}

    def step(self, state, actions, draws):
        x = state["x"] + 0.4 * (2 * actions - 1)
        return Outcome({"x": x}, (x >= 6).float() - 0.01, x >= 6)

    def observe(self, state):
        return state["x"].unsqueeze(-1) / 10


class Lost(Walk):
    """Pays NaN from the place 2 on."""

    def step(self, state, actions, draws):
        outcome = super().step(state, actions, draws)
        return outcome._replace(rewards=torch.where(outcome.state["x"] > 2, torch.nan, outcome.rewards))


def changed(**changes: Any) -> TensorEnv:
    """A walk whose step, observations or first state differ."""

    class Changed(Walk):
        def initial(self, draws):
            return changes.get("initial", lambda state: state)(super().initial(draws))

        def step(self, state, actions, draws):
            outcome = super().step({"x": state["x"]}, actions, draws)
            return outcome._replace(
                **{name: change(outcome) for name, change in changes.items() if name in Outcome._fields}
            )

        def observe(self, state):
            return changes.get("obs", lambda obs: obs)(super().observe(state))

    return Changed()


def whole(state: State) -> State:
    return {"x": state["x"].long()}


def with_goal(state: State) -> State:
    return {**state, "goal": state["x"]}


STATE = r"step returned another form of state than initial: "
MISTAKES = [
    ({"initial": whole}, rf"{STATE}'x' is float32 \[\d\], not int64 \[\d\]; return the same names, dtypes and shapes"),
    ({"initial": with_goal}, rf"{STATE}'goal' is absent, not float32"),
    ({"state": lambda step: with_goal(step.state)}, rf"{STATE}'goal' is float32 \[\d\], not absent"),
    ({"state": lambda step: {"x": step.state["x"][:, None]}}, rf"{STATE}'x' is float32 \[\d, 1\], not float32 \[\d\]"),
    ({"rewards": lambda step: step.rewards[:, None]}, r"step returned rewards of shape \(\d, 1\), expected \(\d,\)"),
    ({"terminated": lambda step: step.terminated.float()}, "step returned terminated of dtype float32; return bool"),
    ({"rewards": lambda step: torch.full_like(step.rewards, torch.inf)}, "step or reset returned a NaN or infinite"),
    ({"obs": lambda obs: obs.double()}, "observe returned observations of dtype float64, but its spec has float32"),
    ({"obs": lambda obs: obs[:, 0]}, r"observe returned observations of shape \(\d,\), expected \(\d, 1\)"),
]


def step_once(env: DevicePool | SingleEnv, action: Any) -> None:
    env.reset()
    env.step(action)


@pytest.mark.parametrize(("changes", "message"), MISTAKES)
def test_wrong_values_end_training_with_one_sentence(changes, message):
    pool = DevicePool(changed(**changes), 4)
    with pytest.raises(EnvError, match=rf"^Changed\.{message}"):
        step_once(pool, torch.ones(4, dtype=torch.long))


@pytest.mark.parametrize(("changes", "message"), [each for each in MISTAKES if "infinite" not in each[1]])
def test_the_same_values_end_an_evaluation(changes, message):
    with pytest.raises(EnvError, match=rf"^Changed\.{message}"):
        step_once(SingleEnv(changed(**changes)), 1)


def test_env_check_names_the_dtype_of_observations():
    found = check_env(lambda: SingleEnv(changed(obs=lambda obs: obs.double())))
    assert any("observe returned observations of dtype float64" in str(each) for each in found.mistakes)


@pytest.mark.parametrize(
    "changes",
    [
        {"rewards": lambda step: torch.full_like(step.rewards, torch.nan)},
        {"obs": lambda obs: torch.where(obs == obs[0], torch.nan, obs)},
    ],
)
def test_nan_values_that_steps_on_a_gpu_return_are_found_by_the_log(changes):
    pool = DevicePool(changed(**changes), 4)
    pool.reads_values = False
    pool._require_finite = lambda *values: None  # type: ignore[method-assign]
    step_once(pool, torch.ones(4, dtype=torch.long))
    del pool._require_finite
    with pytest.raises(EnvError, match=r"^Changed\.step or reset returned a NaN or infinite observation or reward"):
        pool.take_finished()


def test_large_finite_values_are_accepted():
    pool = DevicePool(changed(obs=lambda obs: torch.full_like(obs, 3e38)), 4)
    step_once(pool, torch.ones(4, dtype=torch.long))
    assert pool.obs.tolist() == [[pytest.approx(3e38)]] * 4


@pytest.mark.parametrize("steps_look", [True, False])  # False: as on a GPU, where only the log does
def test_nan_values_name_the_environment_and_not_the_learning_rate(steps_look, tmp_path, monkeypatch):
    new = DevicePool.__init__

    def new_pool(pool: DevicePool, *args: Any, **options: Any) -> None:
        new(pool, *args, **options)
        pool.reads_values = steps_look

    monkeypatch.setattr(DevicePool, "__init__", new_pool)
    config = {
        "algo": "ppo", "env_id": f"{__name__}:Lost", "env_backend": "device", "num_envs": 4, "total_timesteps": 256,
        "eval_interval": 0, "log_interval": 64, "output_dir": str(tmp_path),
        "algo_kwargs": {"num_steps": 16, "batch_size": 64, "hidden_sizes": [8]},
    }  # fmt: skip
    with pytest.raises(EnvError, match=r"^Lost\.step or reset returned a NaN or infinite observation or reward"):
        run_training(parse_config(config))
