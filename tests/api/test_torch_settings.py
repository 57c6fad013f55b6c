"""Training leaves PyTorch's threads and random numbers as they were."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from rl_training import DQN, Callback, resume_training, train_dqn
from rl_training.experiment.manager import ExperimentManager

TINY: dict[str, Any] = {"total_timesteps": 16, "hidden_sizes": [8], "learning_starts": 4, "batch_size": 4,
                        "eval_interval": 0}  # fmt: skip


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.manual_seed(3)
    yield
    torch.set_num_threads(before)


def settings() -> tuple[int, list[int]]:
    return torch.get_num_threads(), torch.get_rng_state().tolist()


def agent(folder: Any, **options: Any) -> DQN:
    return DQN("CartPole-v1", output_dir=str(folder), **{**TINY, **options})


def test_learn_restores_threads_and_random_numbers(tmp_path):
    before = settings()
    trained = agent(tmp_path / "run").learn()
    assert settings() == before
    trained.learn(8)
    assert settings() == before
    trained.evaluate(1)
    assert torch.get_num_threads() == 2


def test_other_ways_to_train_restore_them_too(tmp_path):
    before = settings()
    config = agent(tmp_path / "run").config
    train_dqn(config)
    resume_training(tmp_path / "run", total_timesteps=24)
    ExperimentManager(agent(tmp_path / "managed").config).train()
    ExperimentManager(agent(tmp_path / "seeds").config).sweep([0, 1])
    assert settings() == before


class Seen(Callback):
    def __init__(self) -> None:
        self.threads: set[int] = set()

    def on_step_end(self, state: Any) -> None:
        self.threads.add(torch.get_num_threads())


class Fails(Callback):
    def on_step_end(self, state: Any) -> None:
        raise RuntimeError


def test_a_run_that_fails_restores_them(tmp_path):
    before = settings()
    with pytest.raises(RuntimeError):
        agent(tmp_path / "run").learn(callbacks=Fails())
    assert settings() == before


def test_a_training_inside_a_callback_does_not_change_the_outer_one(tmp_path):
    class Nested(Callback):
        def on_step_end(self, state: Any) -> None:
            if state.global_step == 8:
                agent(tmp_path / "inner", seed=5).learn(fresh=True)

    plain = agent(tmp_path / "plain").learn()
    nested = agent(tmp_path / "nested").learn(callbacks=Nested())
    pairs = zip(plain.agent.learner.parameters(), nested.agent.learner.parameters(), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)


def test_the_agent_acts_and_is_evaluated_with_the_threads_of_the_training(tmp_path, monkeypatch):
    seen = Seen()
    trained = agent(tmp_path / "run", threads=1).learn(callbacks=seen)
    assert seen.threads == {1}
    act, used = trained.agent.learner.act, set[int]()

    def watched(*arguments: Any, **options: Any) -> Any:
        used.add(torch.get_num_threads())
        return act(*arguments, **options)

    monkeypatch.setattr(trained.agent.learner, "act", watched)
    trained.predict([0.0] * 4)
    trained.evaluate(1)
    assert used == {1}
