"""ReBRAC: its losses by hand, the actions that follow transitions, and its networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rl_training.algorithms import ReBRACAlgorithm, ReBRACConfig, Updater, rebrac_policy_loss
from rl_training.data.datasets.next_actions import with_next_actions
from rl_training.data.datasets.transition_dataset import TransitionDataset
from rl_training.experiment.config.train_config import ConfigError, parse_config
from rl_training.experiment.run import run_training
from rl_training.types import Batch, EnvSpec


@pytest.fixture
def rows(box, draw) -> Batch:
    """Three transitions: one continues, one terminates and one is truncated."""
    return {**draw(box, 3), "next_actions": torch.tensor([[0.5, -0.5], [0.9, 0.9], [0.1, 0.2]])}


def build(box: EnvSpec, **options: Any) -> ReBRACAlgorithm:
    learner = ReBRACAlgorithm.build(box, **{"hidden_sizes": (8,), "target_noise": 0.0, "gamma": 0.9, **options})
    with torch.no_grad():
        for parameter in (*learner.model.parameters(), *learner.target.parameters()):
            parameter.add_(0.3 * torch.randn_like(parameter))
    return learner


def test_the_policy_loss_by_hand():
    q, chosen, actions = torch.tensor([1.0, -3.0]), torch.tensor([[1.0, 0.5], [0.0, 0.0]]), torch.zeros(2, 2)
    loss = rebrac_policy_loss(q, chosen, actions, 0.2)
    assert loss.metrics["q_weight"].item() == 1 / 2  # the mean of |1| and |-3|
    assert loss.terms["actor_loss"].item() == -0.5 * (1 - 3) / 2
    assert loss.terms["bc_loss"].item() == pytest.approx(0.2 * (1 + 0.25) / 2)  # a sum over dimensions, a mean of rows


def test_no_gradient_passes_through_the_weight_of_q():
    q = torch.tensor([1.0, -3.0], requires_grad=True)
    (slope,) = torch.autograd.grad(rebrac_policy_loss(q, torch.zeros(2, 1), torch.zeros(2, 1), 0.2).total, q)
    assert slope.tolist() == [-0.25, -0.25]


def test_the_target_has_the_penalty_of_the_next_action_of_the_data(box, rows):
    learner = build(box, critic_bc_coef=0.3)
    with torch.no_grad():
        actions = learner.target["actor"](rows["next_obs"]).mode()
        q = learner.target["critic"](rows["next_obs"], actions)
    continues, terminates, runs_out = learner.target_q(rows).tolist()
    reward, distance = rows["rewards"].tolist(), actions[0] - rows["next_actions"][0]
    penalty = 0.3 * float(distance[0] ** 2 + distance[1] ** 2)
    assert continues == pytest.approx(reward[0] + 0.9 * (float(min(q[:, 0])) - penalty), abs=1e-5)
    assert terminates == reward[1]
    assert runs_out == pytest.approx(reward[2] + 0.9 * float(min(q[:, 2])), abs=1e-5)


def test_the_penalty_is_of_the_smoothed_action(box, rows):
    learner = build(box, target_noise=10.0, target_noise_clip=0.5, critic_bc_coef=0.3)
    torch.manual_seed(3)
    found = learner.target_q(rows)[0].item()
    torch.manual_seed(3)
    with torch.no_grad():
        noise = (10 * torch.randn(3, 2)).clamp(-0.5, 0.5)
        actions = (learner.target["actor"](rows["next_obs"]).mode() + noise).clamp(-1, 1)
        next_q = learner.target["critic"](rows["next_obs"], actions)[:, 0].min()
    penalty = 0.3 * (actions[0] - rows["next_actions"][0]).square().sum()
    assert found == pytest.approx((rows["rewards"][0] + 0.9 * (next_q - penalty)).item(), abs=1e-5)


def test_the_critic_loss_is_summed_over_both_critics(box, rows):
    learner = build(box)
    q, y = learner.model.critic(rows["obs"], rows["actions"]), learner.target_q(rows)
    expected = (q[0] - y).square().mean() + (q[1] - y).square().mean()
    torch.testing.assert_close(learner.critic_loss(rows).terms["critic_loss"], expected)


def test_the_actor_maximises_the_smaller_critic(box, rows):
    learner = build(box, actor_bc_coef=0.4)
    loss = learner.actor_loss(rows)
    actions = learner.model.actor(rows["obs"]).mode()
    q = torch.minimum(*learner.model.critic(rows["obs"], actions))
    torch.testing.assert_close(loss.terms["actor_loss"], -q.mean() / q.abs().mean())
    torch.testing.assert_close(loss.terms["bc_loss"], 0.4 * (actions - rows["actions"]).square().sum(1).mean())


def test_each_loss_trains_its_own_network_alone(box, rows, reached):
    learner = build(box)
    assert reached(learner.critic_loss(rows).total, learner) == {"critic"}
    for term in learner.actor_loss(rows).terms.values():
        assert reached(term, learner) == {"actor"}


def test_critics_have_layer_norm_behind_each_activation_and_small_outputs(box):
    model = ReBRACAlgorithm.build(box).model
    kinds = [type(layer).__name__ for layer in model.critic.net]
    assert kinds == ["EnsembleLinear", "ReLU", "EnsembleLayerNorm"] * 3 + ["EnsembleLinear"]
    assert [type(layer).__name__ for layer in model.actor.net] == ["Linear", "ReLU"] * 3 + ["Linear"]
    for net, bound in ((model.actor.net, 1e-3), (model.critic.net, 3e-3)):
        linear = [layer for layer in net if "Linear" in type(layer).__name__]
        assert all((layer.bias == 0.1).all() for layer in linear[:-1])
        for parameter in (linear[-1].weight, linear[-1].bias):
            assert 0 < parameter.abs().max() <= bound
        assert linear[0].weight.abs().max() > 0.3  # PyTorch's own, in +-1/sqrt(inputs)


def test_actor_and_critics_may_have_their_own_learning_rates(box):
    learner = ReBRACAlgorithm.build(box, learning_rate=5e-5, actor_learning_rate=3e-4)
    actor, critics = Updater([learner]).groups
    assert (actor[0].learning_rate, critics[0].learning_rate) == (3e-4, 5e-5)
    assert all(name.startswith("model.actor.") for name in actor[1])


def test_a_batch_without_next_actions_is_refused(box, draw):
    with pytest.raises(ValueError, match=r"rebrac needs the column next_actions, and this batch has none\. Add"):
        build(box).critic_loss(draw(box, 3))


def test_next_actions_are_those_of_the_next_row_and_ends_are_marked():
    flags = torch.tensor([0.0, 1.0, 0.0, 0.0])
    columns = {
        "obs": torch.zeros(4, 1),
        "actions": torch.tensor([[0.1], [0.2], [0.3], [0.4]]),
        "next_obs": torch.ones(4, 1),
    }
    plain = TransitionDataset({**columns, "rewards": flags, "dones": flags, "truncated": torch.zeros(4)})
    found = with_next_actions(plain).columns
    # The last row of an episode repeats its own action, and never has the first one of the next episode.
    assert found["next_actions"].flatten().tolist() == pytest.approx([0.2, 0.2, 0.4, 0.4])
    assert found["truncated"].tolist() == [0, 0, 0, 1]  # the recording ends there


def config(folder: Path, **changes: Any) -> Any:
    small = {"hidden_sizes": [8], "batch_size": 8}
    run = {"algo": "rebrac", "env_id": "Pendulum-v1", "dataset": {"kind": "random", "rows": 200}, "total_timesteps": 4,
           "eval_interval": 0, "output_dir": str(folder), "algo_kwargs": small}  # fmt: skip
    return parse_config({**run, **changes})


def test_rows_left_out_between_two_transitions_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="rebrac needs next actions, which a dataset_stride above 1 makes impossible"):
        run_training(config(tmp_path / "run", dataset_stride=2))


@pytest.mark.parametrize("option", ["actor_bc_coef", "critic_bc_coef"])
def test_a_negative_penalty_is_refused(option):
    with pytest.raises(ValueError, match=option):
        ReBRACConfig(**{option: -0.1})
