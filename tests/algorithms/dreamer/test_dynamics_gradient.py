"""Gradient of the actor by backpropagation through the world model, against derivatives worked out by hand."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from rl_training.algorithms import Updater
from rl_training.algorithms.dreamer import DreamerAlgorithm, ImaginedRollout
from rl_training.models.dreamer import DreamerModel
from rl_training.models.heads import Gaussian
from rl_training.models.rssm import Latent
from rl_training.types import Batch, EnvSpec

A, B, REWARD, VALUE, GAIN, STD = 0.9, 0.7, 1.5, 2.0, 0.4, 0.6
CONTINUE, GAMMA, LAMBDA, ENTROPY = 0.8, 0.95, 0.7, 0.3


class Scalar(NamedTuple):
    logits: Tensor

    def mean(self) -> Tensor:
        return self.logits

    def loss(self, values: Tensor) -> Tensor:
        return (self.logits - values.detach()).square()


class Times(nn.Module):
    """factor * s, where s is the first feature."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))

    def forward(self, features: Tensor) -> Tensor:
        return self.factor * features[..., :1]


class TimesHead(Times):
    def forward(self, features: Tensor) -> Scalar:  # type: ignore[override]
        return Scalar(super().forward(features).squeeze(-1))


class LinearPolicy(Times):
    """u = k * s + exp(l) * noise."""

    def __init__(self, factor: float, std: float) -> None:
        super().__init__(factor)
        self.log_std = nn.Parameter(torch.tensor(std).log())

    def forward(self, features: Tensor) -> Gaussian:  # type: ignore[override]
        mean = super().forward(features)
        return Gaussian(mean, self.log_std.expand_as(mean))


class LinearDynamics(nn.Module):
    """s' = a * s + b * u, without noise."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = (nn.Parameter(torch.tensor(value)) for value in (A, B))

    def noise(self, *rows: int, like: Tensor) -> Tensor:
        return torch.zeros(rows)

    def detached_weights(self) -> dict[str, Tensor]:
        return {name: weight.detach() for name, weight in self.named_parameters()}

    def predict(self, latent: Latent, action: Tensor, noise: Tensor) -> Latent:
        return Latent(self.a * latent.deter + self.b * action, latent.stoch)


class LinearWorld(DreamerModel):
    """r = REWARD * s on arrival, v = VALUE * s, and the logit of continuing is CONTINUE * s."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.obs_shape, self.action_dim, self.discrete = (1,), 1, False
        self.rssm, self.actor = LinearDynamics(), LinearPolicy(GAIN, STD)  # type: ignore[assignment]
        self.reward, self.critic = TimesHead(REWARD), TimesHead(VALUE)  # type: ignore[assignment]
        self.continuation = Times(CONTINUE)  # type: ignore[assignment]


@pytest.fixture
def imagined_by():
    """A learner in the linear world, and two steps imagined by it from four states, of which the last is terminal."""

    def learner_and_rollout(**options) -> tuple[DreamerAlgorithm, ImaginedRollout]:
        options = {"horizon": 2, "gamma": GAMMA, "return_lambda": LAMBDA, "entropy_weight": ENTROPY,
                   "discounted_continue": False, "actor_gradient": "dynamics", **options}  # fmt: skip
        learner = DreamerAlgorithm(LinearWorld(), **options)
        learner.return_high += 500.0  # a return scale of about 5 at the next update
        torch.manual_seed(3)
        start = Latent(torch.tensor([[1.0], [-0.5], [2.0], [1.5]]), torch.zeros(4, 1, 1))
        return learner, learner.imagine(start, torch.tensor([1.0, 1.0, 1.0, 0.0]))

    return learner_and_rollout


def gradient_by_hand(imagined: ImaginedRollout, scale: float, *, hard: bool) -> list[float]:
    """d loss / d (k, l), with loss = -mean of w_t * ((R_t - v_t) / scale + ENTROPY * entropy), by the chain rule."""
    gain = log_std = 0.0
    for row in range(4):
        s0, s1, s2 = (imagined.features[t, row, 0].item() for t in range(3))
        u0, u1 = (imagined.actions[t, row, 0].item() for t in range(2))
        p1, p2 = (1 / (1 + torch.tensor(-CONTINUE * s).exp().item()) for s in (s1, s2))
        c1, c2 = (GAMMA * (p > 0.5 if hard else p) for p in (p1, p2))
        r2 = REWARD * s2 + c2 * VALUE * s2  # return of state 1
        w0, w1 = (0.0, 0.0) if row == 3 else (1.0, c1)
        for du0, du1, direct in ((s0, s1, 0.0), (u0 - GAIN * s0, u1 - GAIN * s1, 1.0)):
            # The policy sees detached states, so du1 has no term in ds1. Clipping divides by max(1, |u|).
            ds1 = B * du0 / max(1, abs(u0))
            ds2 = A * ds1 + B * du1 / max(1, abs(u1))
            dc1, dc2 = (0.0 if hard else c * (1 - p) * CONTINUE * ds for c, p, ds in ((c1, p1, ds1), (c2, p2, ds2)))
            dr2 = (REWARD + c2 * VALUE) * ds2 + dc2 * VALUE * s2
            mixed, dmixed = (1 - LAMBDA) * VALUE * s1 + LAMBDA * r2, (1 - LAMBDA) * VALUE * ds1 + LAMBDA * dr2
            dr1 = REWARD * ds1 + dc1 * mixed + c1 * dmixed
            gained = w0 * dr1 / scale + w1 * (dr2 - VALUE * ds1) / scale + ENTROPY * (w0 + w1) * direct
            gain, log_std = (gain - gained / 8, log_std) if not direct else (gain, log_std - gained / 8)
    return [gain, log_std]


@pytest.mark.parametrize("hard", [False, True], ids=["probability", "hard_continue"])
def test_the_gradient_of_the_actor_is_the_analytic_one_in_a_linear_world(imagined_by, hard):
    learner, imagined = imagined_by(hard_continue=hard)
    assert imagined.actions.abs().max() > 1  # at least one action is clipped
    assert imagined.actions.abs().min() < 1
    loss, _ = learner.behaviour_loss(imagined)
    scale = loss.metrics["dreamer_return_scale"].item()
    assert scale > 4
    actor = learner.model.actor
    found = torch.autograd.grad(loss.terms["dreamer_actor_loss"], [actor.factor, actor.log_std])
    assert [each.item() for each in found] == pytest.approx(gradient_by_hand(imagined, scale, hard=hard), rel=1e-4)


@pytest.mark.parametrize("gradient", ["dynamics", "reinforce"])
def test_the_actor_loss_trains_the_actor_alone_and_the_critic_loss_the_critic(imagined_by, reached, gradient):
    learner, imagined = imagined_by(actor_gradient=gradient)
    terms = learner.behaviour_loss(imagined)[0].terms
    assert reached(terms["dreamer_actor_loss"], learner) == {"actor"}
    assert reached(terms["dreamer_critic_loss"], learner) == {"critic"}


def test_both_gradients_have_the_same_returns_and_critic_loss(imagined_by):
    results = []
    for gradient in ("dynamics", "reinforce"):
        learner, imagined = imagined_by(actor_gradient=gradient)
        loss, returns = learner.behaviour_loss(imagined)
        assert not returns.requires_grad
        results.append((returns, loss.terms["dreamer_critic_loss"]))
    assert results[0][0].equal(results[1][0])
    assert results[0][1].equal(results[1][1])


def test_updates_move_the_actor_to_higher_returns(imagined_by):
    learner, _ = imagined_by(entropy_weight=0.0, learning_rate=0.02, warm_up=0)
    start = Latent(torch.full((16, 1), 0.1), torch.zeros(16, 1, 1))
    updater = Updater([learner])
    updater.loss = lambda batch, phase: learner.behaviour_loss(learner.imagine(start, torch.ones(16)))[0]
    for _ in range(20):
        updater.step({}, ("behaviour",))
    assert learner.model.actor.factor > GAIN + 0.1


def test_discrete_actions_are_refused(small):
    with pytest.raises(ValueError, match="actor_gradient dynamics needs a Box action space, got Discrete"):
        small(EnvSpec((3,), "discrete", 3), actor_gradient="dynamics")


@pytest.mark.slow
def test_world_model_and_actor_together_learn_to_stay_at_the_best_place(small, windows):
    """x' = x + u / 2 within [-1, 1], seen as 3x; the reward on arrival is -3 x^2."""
    spec, draws = EnvSpec((1,), "box", 1), torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    learner = small(spec, learning_rate=1e-2, actor_learning_rate=3e-3, horizon=2, free_nats=0.0, gamma=0.9,
                    bins="symlog", actor_gradient="dynamics")  # fmt: skip

    def lived(rows: int) -> Batch:
        actions, none = torch.rand(rows, 5, 1, generator=draws) * 2 - 1, torch.zeros(rows, 5)
        places = [torch.rand(rows, 1, generator=draws) * 2 - 1]
        for action in actions[:, :4].unbind(1):
            places.append((places[-1] + action / 2).clamp(-1, 1))
        place = torch.stack(places, 1)
        batch = windows(spec, rows, 5) | {"is_first": torch.eye(5)[:1].expand(rows, 5), "is_last": none, "dones": none}
        batch |= {"actions": actions, "previous_actions": actions.roll(1, 1)}
        return batch | {"obs": 3 * place, "rewards": -3 * place.squeeze(-1).square()}

    for _ in range(160):
        learner.update(lived(32))
    right = torch.linspace(1.5, 3.0, 8).unsqueeze(-1)
    assert learner.act(right, deterministic=True).actions.mean() < -0.5
    assert learner.act(-right, deterministic=True).actions.mean() > 0.5
