"""PQN: Q(lambda) returns by hand and by definition, its loss, layer norm in all layers, and epsilon-greedy actions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rl_training.algorithms import PQNAlgorithm
from rl_training.algorithms.pqn import q_lambda_returns
from rl_training.models import PQNModel
from rl_training.models.encoders import PixelLayerNorm
from rl_training.types import Batch, EnvSpec

ONE_NUMBER = EnvSpec((1,), "discrete", 2)
GRID = EnvSpec((3, 10, 10), "discrete", 4, obs_dtype="uint8")


def linear_q(spec: EnvSpec = ONE_NUMBER, weights: tuple[float, ...] = (1.0, -2.0), **options: Any) -> PQNAlgorithm:
    """Q(s, a) = weight_a * s, where s is the first number of the observation."""
    learner = PQNAlgorithm.build(spec, hidden_sizes=(), **options)
    (layer,) = learner.model.q.head.advantage.layers
    with torch.no_grad():
        layer.weight.zero_()
        layer.weight[:, 0] = torch.tensor(weights)
    return learner


def rollout(next_obs: list[float], dones: list[list[float]], truncated: list[list[float]]) -> Batch:
    """Rewards of 1; the columns of `dones` and `truncated` are environments."""
    ends = torch.tensor(dones)
    successors = torch.tensor(next_obs).view(-1, 1, 1).expand(*ends.shape, 1)
    return {
        "obs": torch.zeros(*ends.shape, 1), "next_obs": successors, "rewards": torch.ones_like(ends), "dones": ends,
        "truncated": torch.tensor(truncated), "actions": torch.zeros_like(ends).long(),
    }  # fmt: skip


def test_returns_by_hand_with_a_termination_and_a_truncation_inside_the_rollout():
    # Three environments of four steps: one runs on, one terminates and one is truncated at the second step.
    none, second = [0.0, 0.0, 0.0], ([0.0, 1.0, 0.0], [0.0, 0.0, 1.0])
    batch = rollout([2.0, 4.0, 6.0, 8.0], [none, second[0], none, none], [none, second[1], none, none])
    returns = linear_q(gamma=0.5, q_lambda=0.25).prepare(batch)["returns"]  # max_a Q(s', a) = s'
    last = 1 + 0.5 * 8  # 5: one step, because the rollout ends
    third = 1 + 0.5 * (0.75 * 6 + 0.25 * last)  # 3.875
    runs_on, terminated, truncated = 1 + 0.5 * (0.75 * 4 + 0.25 * third), 1.0, 1 + 0.5 * 4
    first = [1 + 0.5 * (0.75 * 2 + 0.25 * later) for later in (runs_on, terminated, truncated)]
    expected = [first, [runs_on, terminated, truncated], [third] * 3, [last] * 3]
    torch.testing.assert_close(returns, torch.tensor(expected))
    assert first == [2.123046875, 1.875, 2.125]


def test_the_last_step_bootstraps_unless_it_terminates():
    batch = rollout([3.0], [[0.0, 1.0, 0.0]], [[0.0, 0.0, 1.0]])
    assert linear_q(gamma=0.5, q_lambda=0.9).prepare(batch)["returns"].tolist() == [[2.5, 1.0, 2.5]]


def mixture_of_n_steps(batch: Batch, values: Tensor, gamma: float, decay: float) -> Tensor:
    """(1 - lambda) * sum of lambda^(n-1) * n-step return; the longest one has the rest of the weight."""
    steps, envs = values.shape
    result = torch.zeros(steps, envs)
    for env in range(envs):
        for start in range(steps):
            rewards = 0.0
            for n in range(1, steps - start + 1):
                at = start + n - 1
                rewards += gamma ** (n - 1) * batch["rewards"][at, env].item()
                done, cut = batch["dones"][at, env].item(), batch["truncated"][at, env].item()
                n_step = rewards + gamma**n * (1 - done) * values[at, env].item()
                is_longest = at == steps - 1 or done or cut
                result[start, env] += decay ** (n - 1) * (1.0 if is_longest else 1 - decay) * n_step
                if is_longest:
                    break
    return result


@pytest.mark.parametrize("decay", [0.0, 0.65, 1.0])
def test_returns_are_the_mixture_of_n_step_returns(decay):
    torch.manual_seed(0)
    ends = torch.rand(2, 12, 5)
    batch = {"rewards": torch.randn(12, 5), "dones": (ends[0] < 0.15).float(), "next_obs": torch.randn(12, 5, 1)}
    batch["truncated"] = (ends[1] < 0.15).float() * (1 - batch["dones"])
    values = batch["next_obs"][..., 0].abs()
    flags = batch["dones"], batch["truncated"]
    returns = q_lambda_returns(batch["rewards"], values, *flags, gamma=0.9, q_lambda=decay)
    torch.testing.assert_close(returns, mixture_of_n_steps(batch, values, 0.9, decay), rtol=1e-5, atol=1e-5)


def test_the_reward_scale_is_in_the_returns_only():
    batch = rollout([3.0], [[0.0]], [[0.0]])
    assert linear_q(gamma=0.5, reward_scale=0.25).prepare(batch)["returns"].item() == 0.25 + 0.5 * 3


def test_returns_are_over_the_valid_next_actions():
    spec = EnvSpec((4,), "discrete", 3, action_mask=1)
    learner = linear_q(spec, (1.0, 2.0, 9.0), gamma=0.5)
    steps = {name: torch.zeros(1, 2) for name in ("rewards", "dones", "truncated")}
    obs = torch.tensor([[[2.0, 1, 1, 0], [2.0, 1, 1, 1]]])
    prepared = learner.prepare({**steps, "obs": obs, "next_obs": obs, "actions": torch.zeros(1, 2).long()})
    assert prepared["returns"].tolist() == [[0.5 * 4, 0.5 * 18]]
    learner.epsilon.fill_(1.0)
    actions = learner.act(obs[0, :1].expand(500, -1), generator=torch.Generator().manual_seed(0)).actions
    assert sorted(actions.unique().tolist()) == [0, 1]
    assert learner.act(obs[0], deterministic=True).actions.tolist() == [1, 2]


def test_the_loss_is_half_of_the_mean_squared_error_of_the_taken_actions():
    learner = linear_q()
    batch = {"obs": torch.tensor([[3.0], [3.0]]), "actions": torch.tensor([0, 1]), "returns": torch.tensor([1.0, -1.0])}
    loss = learner.loss(batch)  # Q = 3 and -6
    assert loss.terms["loss"].item() == 0.5 * (2**2 + 5**2) / 2
    assert loss.metrics["q_value_mean"].item() == -1.5
    assert loss.metrics["target_q_mean"].item() == 0
    loss.total.backward()
    (layer,) = learner.model.q.head.advantage.layers
    assert layer.weight.grad.flatten().tolist() == [0.5 * 2 * 3, 0.5 * -5 * 3]


def test_targets_have_no_gradient_and_there_is_no_target_network():
    learner = linear_q()
    assert not learner.prepare(rollout([3.0], [[0.0]], [[0.0]]))["returns"].requires_grad
    assert learner.phases(0) == ("loss",)
    assert not list(learner.target.parameters())


def test_radam_minimises_with_clipped_gradients():
    (group,) = PQNAlgorithm.build(ONE_NUMBER, learning_rate=0.25).parameter_groups()
    assert (group.kind, group.learning_rate, group.max_grad_norm) == ("radam", 0.25, 10.0)


def test_actions_are_random_with_probability_epsilon():
    learner, obs = linear_q(epsilon_start=0.4), torch.ones(4000, 1)
    drawn = learner.act(obs, generator=torch.Generator().manual_seed(0)).actions.float()
    assert drawn.mean().item() == pytest.approx(0.4 / 2, abs=0.02)  # half of the random ones are greedy too
    assert learner.act(obs, deterministic=True).actions.sum() == 0
    schedule = PQNAlgorithm.build(ONE_NUMBER, epsilon_end=0.2, exploration_fraction=0.5).schedules()["epsilon"]
    assert [schedule.at(progress, 1.0) for progress in (0.0, 0.25, 0.5, 1.0)] == pytest.approx([1.0, 0.6, 0.2, 0.2])


def layers_of(model: PQNModel) -> list[type[nn.Module]]:
    kinds = (nn.Linear, nn.Conv2d, nn.LayerNorm, nn.ReLU)
    return [
        next(kind for kind in kinds if isinstance(each, kind)) for each in model.modules() if isinstance(each, kinds)
    ]


def test_every_hidden_layer_has_a_layer_norm():
    vectors = layers_of(PQNAlgorithm.build(ONE_NUMBER, hidden_sizes=(8, 8)).model)
    assert (vectors.count(nn.Linear), vectors.count(nn.LayerNorm), vectors.count(nn.ReLU)) == (3, 2, 2)
    images = PQNAlgorithm.build(GRID, hidden_sizes=(8,)).model
    assert layers_of(images)[:3] == [nn.Conv2d, nn.LayerNorm, nn.ReLU]
    assert layers_of(images).count(nn.LayerNorm) == 2
    plain = PQNAlgorithm.build(GRID, hidden_sizes=(8,), network={"layer_norm": False}).model
    assert layers_of(plain).count(nn.LayerNorm) == 0


def test_convolutions_are_normalised_over_the_channels_of_each_place():
    x = torch.tensor([1.0, 3.0]).view(1, 2, 1, 1) * torch.tensor([[1.0, 10.0]])  # two places, the second ten times
    out = PixelLayerNorm(2)(x)
    assert out.shape == x.shape
    torch.testing.assert_close(out[0, :, 0], torch.tensor([[-1.0, -1.0], [1.0, 1.0]]), atol=1e-4, rtol=0)


def test_weights_are_orthogonal_at_the_start():
    model = PQNAlgorithm.build(EnvSpec((16,), "discrete", 4), hidden_sizes=(16, 16)).model
    *hidden, last = [each.weight for each in model.modules() if isinstance(each, nn.Linear)]
    for weight, square in (*((each, 2.0) for each in hidden), (last, 1.0)):
        torch.testing.assert_close(weight @ weight.T, square * torch.eye(len(weight)), atol=1e-5, rtol=0)
