"""Mistakes in the methods of a learner: each error names the method and what it must return."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import rl_training
from rl_training.algorithms import CATALOGUE, DQNAlgorithm, PPOAlgorithm, SACAlgorithm, Updater
from rl_training.envs.creation.making import EnvFactory
from rl_training.envs.pools.pool import EnvPool
from rl_training.experiment.config import registry
from rl_training.runtime.evaluation import evaluate
from rl_training.runtime.lanes.acting import Actor
from rl_training.runtime.state import DivergedError
from rl_training.types import EnvSpec, Loss

GRADIENT = torch.ones((), requires_grad=True)


def test_a_target_network_of_a_missing_part_is_refused():
    class Mistaken(DQNAlgorithm):
        name, targets = "mistaken", ("critic",)

    with pytest.raises(TypeError, match=r"targets of mistaken has 'critic', but .* has no such part"):
        Mistaken.build(EnvSpec((4,), "discrete", 2))


def test_parameter_groups_of_another_kind_are_refused():
    class Grouped(DQNAlgorithm):
        def parameter_groups(self):
            return [{"params": self.model.parameters(), "lr": 1e-3}]

    with pytest.raises(TypeError, match=r"Grouped\.parameter_groups must return rl_training\.types\.ParameterGroup"):
        registry.check_policy(Grouped.build(EnvSpec((4,), "discrete", 2)))


def test_an_attribute_that_parameter_groups_lacks_is_named_by_an_update_too():
    class Grouped(DQNAlgorithm):
        def parameter_groups(self):
            return [self.config.rates]

    with pytest.raises(TypeError, match="no attribute 'rates'"):
        Grouped.build(EnvSpec((4,), "discrete", 2)).update({})


class Prepared(PPOAlgorithm):
    """PPO whose rollouts are prepared by a function that a test replaces."""

    name = "prepared"
    change = staticmethod(lambda columns: columns)

    def prepare(self, batch):
        columns = super().prepare(batch)
        values = self.model.values(columns["obs"].flatten(0, 1)).view_as(columns["returns"])
        return self.change({**columns, "returns": columns["returns"] + 0 * values})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda columns: None, r"Prepared\.prepare must return a dict of columns \[time, envs, \.\.\.\], got NoneType"),
        (
            lambda columns: {**columns, "returns": columns["returns"].flatten()},
            r"here \[8, 2\], but 'returns' is \[16\]",
        ),
    ],
)
def test_rollouts_that_are_prepared_otherwise_are_refused(change, message, monkeypatch, tmp_path):
    monkeypatch.setattr(Prepared, "change", staticmethod(change))
    with pytest.raises((TypeError, ValueError), match=message):
        train_prepared(tmp_path)


def test_rollouts_are_prepared_without_gradients(tmp_path):
    train_prepared(tmp_path)  # a column with gradients would be differentiated again in every epoch


def train_prepared(folder: Path) -> None:
    options: dict[str, Any] = {"num_envs": 2, "num_steps": 8, "batch_size": 16, "epochs": 2, "eval_interval": 0}
    managed = rl_training.register_algorithm(Prepared)
    try:
        managed("CartPole-v1", total_timesteps=32, output_dir=str(folder / "run"), **options).learn()
    finally:
        del CATALOGUE["prepared"]


class OwnTerm(SACAlgorithm):
    """SAC with a further loss term: NaN itself, or with a NaN gradient."""

    name = "own_term"
    term: Any

    def loss(self, batch):
        return super().loss(batch).plus({"own_loss": self.term(self.model.actor(batch["obs"]).mode())})


@pytest.mark.parametrize(
    ("term", "message"),
    [
        (lambda a: float("nan") * a.mean(), "in the last update, own_loss was NaN or infinite"),
        (lambda a: (0 * a).sum().sqrt(), "weights of actor are NaN or infinite: check the losses, .* NaN gradients"),
    ],
)
def test_nan_actions_are_reported_with_the_loss_or_the_weights(term, message, monkeypatch, tmp_path):
    monkeypatch.setattr(OwnTerm, "term", staticmethod(term), raising=False)
    monkeypatch.setitem(CATALOGUE, "own_term", OwnTerm)
    options = {"learning_starts": 4, "batch_size": 4, "hidden_sizes": [4]}
    run = {"total_timesteps": 50, "output_dir": str(tmp_path), "log_interval": 50, "algo_kwargs": options}
    with pytest.raises(DivergedError, match=f"actions are NaN or infinite; lower the learning rate; {message}.*; no "):
        rl_training.ManagedAlgorithm({"algo": "own_term", "env_id": "Pendulum-v1", **run}).learn()


@pytest.mark.parametrize("members", [1, 2])
def test_next_values_with_a_further_axis_are_refused(members):
    class Column(DQNAlgorithm):
        def loss(self, batch):
            values = self.model.q(batch["next_obs"]).amax(-1, keepdim=True)
            return Loss({"loss": self.td_target(batch, values).square().mean()})

    spec, lead = EnvSpec((4,), "discrete", 2), (members, 8) if members > 1 else (8,)
    batch = {name: torch.zeros(*lead, 4) for name in ("obs", "next_obs")}
    batch |= {name: torch.zeros(lead) for name in ("rewards", "dones", "truncated")}
    with pytest.raises(ValueError, match=r"Column: td_target needs next values of shape \[8\], got \[8, 1\]; remove"):
        Updater([Column.build(spec) for _ in range(members)]).update(batch)


def test_an_act_that_returns_a_tensor_is_refused():
    class Bare(DQNAlgorithm):
        def act(self, obs, *arguments, **options):
            return torch.zeros(len(obs), dtype=torch.int64)

    pool = EnvPool(EnvFactory("CartPole-v1"))
    actor = Actor(Bare.build(pool.spec), pool, torch.Generator(), torch.device("cpu"))
    message = r"Bare\.act must return rl_training\.types\.Action, such as Action\(actions\), got Tensor"
    with pytest.raises(TypeError, match=message):
        actor.choose()
    with pytest.raises(TypeError, match=message):
        evaluate(actor.policy, "CartPole-v1", episodes=1, seed=0)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (1.5, r"Bare\.loss must return rl_training\.types\.Loss, such as Loss\(.*\), got float"),
        (
            Loss({"loss": torch.ones(3)}),
            r"term 'loss' of Bare\.loss must be a tensor of one number, .* got shape \(3,\)",
        ),
        (Loss({"loss": 0.5}), r"term 'loss' of Bare\.loss must be a tensor of one number, .* got float"),  # type: ignore[dict-item]
        (Loss({"loss": GRADIENT}, {"q": 0.5}), r"metric 'q' of Bare\.loss must be a tensor, got float"),  # type: ignore[dict-item]
        (Loss({"loss": GRADIENT}, {"step": GRADIENT}), r"Bare\.loss returns 'step', the name of another column"),
        (Loss({"loss": torch.ones(())}), r"Bare\.loss has no gradient: its terms depend on no trained parameter"),
    ],
)
def test_a_loss_of_another_kind_is_refused(returned, message):
    class Bare(DQNAlgorithm):
        def loss(self, batch):
            return returned

    updater = Updater([Bare.build(EnvSpec((4,), "discrete", 2))])
    with pytest.raises((TypeError, ValueError), match=message):
        updater.update({})
