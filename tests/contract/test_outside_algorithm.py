"""An algorithm outside the package, as CONTRIBUTING.md describes: config, loss, network, learner, and one call.

Linear Q-learning (Watkins, 1989): a linear Q-function with epsilon-greedy exploration and no target network.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import Field
from torch import Tensor, nn

import rl_training
from rl_training.algorithms import CATALOGUE, Learner, ReplayConfig
from rl_training.experiment.verify import compare_runs
from rl_training.runtime.callbacks.training import StopAtStep
from rl_training.types import Action, Batch, EnvSpec, Loss


class LinearQConfig(ReplayConfig):
    epsilon: float = Field(0.1, ge=0, le=1, description="probability of a uniformly random action")


def linear_q_loss(q: Tensor, next_q: Tensor, batch: Batch, gamma: float) -> Loss:
    """Mean of (Q(s, a) - r - gamma * (1 - done) * max Q(s', .))^2."""
    chosen = q.gather(-1, batch["actions"].unsqueeze(-1)).squeeze(-1)
    target = batch["rewards"] + gamma * (1 - batch["dones"]) * next_q.max(-1).values
    return Loss({"loss": (chosen - target.detach()).square().mean()}, {"q_value_mean": chosen.mean()})


class LinearQ(nn.Linear):
    @classmethod
    def build(cls, spec: EnvSpec, config: LinearQConfig) -> LinearQ:
        return cls(spec.obs_shape[0], spec.action_dim)


class LinearQLearningAlgorithm(Learner):
    name = "linear_q_learning"
    lane = "replay"
    config_type = LinearQConfig
    model_type = LinearQ
    action_kinds = ("discrete",)

    def loss(self, batch: Batch) -> Loss:
        return linear_q_loss(self.model(batch["obs"]), self.model(batch["next_obs"]), batch, self.config.gamma)

    def act(
        self, obs: Tensor, memory: Any = None, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Action:
        q = self.model(obs)
        if deterministic:
            return Action(q.argmax(-1))
        explores = torch.rand(len(obs), generator=generator) < self.config.epsilon
        return Action(torch.where(explores, torch.randint(q.shape[-1], (len(obs),), generator=generator), q.argmax(-1)))


@pytest.fixture
def managed() -> Iterator[type[rl_training.ManagedAlgorithm]]:
    yield rl_training.register_algorithm(LinearQLearningAlgorithm)
    del CATALOGUE["linear_q_learning"]


SMALL: dict[str, Any] = {"total_timesteps": 60, "learning_starts": 10, "batch_size": 8, "eval_episodes": 2}


def test_its_managed_class_trains_evaluates_predicts_and_loads(managed, tmp_path):
    agent = managed("CartPole-v1", output_dir=str(tmp_path / "run"), epsilon=0.2, **SMALL).learn()
    assert agent.result.updates == 50
    assert len(agent.evaluate(num_episodes=2)["returns"]) == 2
    loaded = managed.load(agent.save(tmp_path / "agent"))
    assert loaded.config.algo_kwargs["epsilon"] == 0.2
    obs = np.random.default_rng(0).normal(size=(5, 4))
    np.testing.assert_array_equal(loaded.predict(obs), agent.predict(obs))


def test_a_process_that_has_not_registered_it_says_how_to_open_its_run(managed, tmp_path, monkeypatch):
    managed("CartPole-v1", output_dir=str(tmp_path), **SMALL).learn()
    monkeypatch.delitem(CATALOGUE, "linear_q_learning")
    for use in (rl_training.evaluate_checkpoint, rl_training.resume_training):
        with pytest.raises(ValueError, match=r"'linear_q_learning' in this process.*register_algorithm.*module:Class"):
            use(tmp_path)
    CATALOGUE["linear_q_learning"] = LinearQLearningAlgorithm  # the fixture removes it


def test_it_resumes_byte_for_byte(managed, tmp_path):
    whole, halved = (managed("CartPole-v1", output_dir=str(tmp_path / name), **SMALL) for name in ("whole", "halved"))
    whole.learn()
    assert halved.learn(callbacks=[StopAtStep(33)]).result.status == "stopped"
    rl_training.resume_training(tmp_path / "halved")
    assert compare_runs(tmp_path / "whole", tmp_path / "halved") == []


def test_it_appears_in_the_registry_and_is_documented(managed):
    spec = rl_training.get_algorithm_spec("linear_q_learning")
    assert spec in rl_training.list_algorithm_specs()
    assert (spec.learner, spec.config_type, spec.lane) == (LinearQLearningAlgorithm, LinearQConfig, "replay")
    assert spec.summary.startswith("An algorithm outside the package")
    assert managed.__name__ == "LinearQLearning"
    assert "epsilon: probability of a uniformly random action (default 0.1)" in managed.__doc__
    with pytest.raises(ValueError, match="did you mean epsilon"):
        managed("CartPole-v1", epsilom=0.2)


def test_a_built_in_name_cannot_be_registered():
    class Other(LinearQLearningAlgorithm):
        name = "dqn"

    with pytest.raises(ValueError, match="'dqn', a built-in algorithm"):
        rl_training.register_algorithm(Other)
