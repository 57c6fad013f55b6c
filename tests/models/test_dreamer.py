"""Dreamer's networks: their sizes, how they begin, and that acting and training see the same."""

from __future__ import annotations

import math

import pytest
import torch

from rl_training.models.dreamer import SIZES, BoundedNormalPolicy, DreamerModel, Size, UnimixPolicy
from rl_training.models.rssm import Latent
from rl_training.types import EnvSpec

SMALL = Size(deter=16, hidden=8, latents=4, classes=4, depth=2, units=8)
PIXELS = EnvSpec((1, 16, 16), "discrete", 3, obs_dtype="uint8")
VECTORS = EnvSpec((5,), "box", 2)


def features_of(model: DreamerModel, rows: int = 500) -> torch.Tensor:
    stoch = torch.nn.functional.one_hot(torch.randint(model.size.classes, (rows, model.size.latents)))
    return Latent(torch.randn(rows, model.size.deter), stoch.expand(-1, -1, model.size.classes).float()).features


@pytest.mark.parametrize(
    ("name", "shape", "millions"),
    [("tiny", (1, 16, 16), 0.4), ("nano", (1, 64, 64), 1.1), ("size1m", (3, 64, 64), 0.7), ("mini", (3, 64, 64), 2.7),
     ("size12m", (3, 64, 64), 10.5), ("size25m", (3, 64, 64), 23.5), ("size200m", (3, 64, 64), 166),
     ("xs", (3, 64, 64), 8), ("s", (3, 64, 64), 17.8), ("m", (3, 64, 64), 35.4)],
)  # fmt: skip
def test_sizes_have_the_parameters_they_are_known_by(name, shape, millions):
    with torch.device("meta"):
        model = DreamerModel(EnvSpec(shape, "discrete", 6, obs_dtype="uint8"), SIZES[name])
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count / 1e6 == pytest.approx(millions, rel=0.01 if millions > 10 else 0.1)


def test_in_the_beginning_rewards_and_values_are_exactly_zero_and_nothing_is_certain():
    torch.manual_seed(0)
    model = DreamerModel(PIXELS, SMALL)
    features = features_of(model)
    assert model.reward(features).mean().eq(0).all()
    assert model.critic(features).mean().eq(0).all()
    assert model.actor(features).entropy().mean().item() == pytest.approx(math.log(3), rel=0.01)
    assert 0.3 < model.continuation(features).sigmoid().mean() < 0.7


def test_bytes_are_scaled_and_vectors_pressed_wherever_they_come_in():
    assert DreamerModel(PIXELS, SMALL).scaled(torch.tensor([0, 51, 255], dtype=torch.uint8)).tolist() == (
        pytest.approx([0, 0.2, 1])
    )
    vectors = DreamerModel(VECTORS, SMALL).scaled(torch.tensor([-(math.e**2 - 1), 0.0]))
    assert vectors.tolist() == pytest.approx([-2, 0])


def test_pictures_with_their_channels_last_are_refused():
    with pytest.raises(ValueError, match=r"images must be \[channels, height, width\].*got \(96, 96, 3\)"):
        DreamerModel(EnvSpec((96, 96, 3), "discrete", 3, obs_dtype="uint8"), SMALL)


def test_actions_are_one_hot_or_within_their_bounds():
    assert DreamerModel(PIXELS, SMALL).encoded(torch.tensor([2, 0])).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert DreamerModel(VECTORS, SMALL).encoded(torch.tensor([[0.5, -3.0]])).tolist() == [[0.5, -1.0]]


def test_clipped_actions_keep_a_gradient_divided_by_their_size():
    actions = torch.tensor([[0.5, -4.0]], requires_grad=True)
    DreamerModel(VECTORS, SMALL).encoded(actions).sum().backward()
    assert actions.grad is not None
    assert actions.grad.tolist() == [[1.0, 0.25]]


def test_no_action_is_ever_given_up():
    certain = UnimixPolicy(torch.nn.Identity(), 0.05)(torch.tensor([[1000.0, 0.0]]))
    assert certain.log_prob(torch.tensor([1])).exp().item() == pytest.approx(0.025)
    assert certain.log_prob(torch.tensor([0])).exp().item() == pytest.approx(0.975)
    assert certain._replace(logits=certain.logits.expand(20_000, 2)).sample().float().mean() == pytest.approx(
        0.025, abs=0.005
    )


def test_the_deviation_of_box_actions_stays_between_a_tenth_and_one():
    net = torch.nn.Identity()
    policy = BoundedNormalPolicy(net)(torch.tensor([[0.5, -100.0], [0.5, 100.0], [0.5, -2.0]]))
    assert policy.log_std.exp().flatten().tolist() == pytest.approx([0.1, 1.0, 0.55])
    assert policy.mean.flatten().tolist() == pytest.approx([math.tanh(0.5)] * 3)


@pytest.mark.parametrize("spec", [PIXELS, VECTORS], ids=["pixels", "vectors"])
def test_a_dream_begins_with_its_start_and_goes_by_the_actions_it_tells(spec):
    model = DreamerModel(spec, SMALL)
    start = Latent(torch.randn(6, 16), torch.eye(4).expand(6, 4, 4).clone())
    latents, actions = model.imagine(start, 3)
    assert latents.deter.shape == (4, 6, 16)
    assert latents.stoch.sum(-1).eq(1).all()
    assert latents.deter[0].equal(start.deter)
    for t in range(3):
        before = Latent(latents.deter[t], latents.stoch[t])
        assert torch.allclose(model.rssm.predict(before, model.encoded(actions[t]), None).deter, latents.deter[t + 1])


def test_states_ahead_follow_given_actions_and_decode_to_observations():
    model = DreamerModel(PIXELS, SMALL)
    start = Latent(torch.randn(2, 16), torch.zeros(2, 4, 4))
    ahead = model.predict(start, torch.tensor([[0, 1, 2], [2, 2, 0]]))
    assert model.decode(ahead).shape == (2, 3, 1, 16, 16)
    assert torch.allclose(ahead.deter[:, 0], model.rssm.predict(start, torch.eye(3)[[0, 2]], None).deter)


def test_states_ahead_are_samples_of_the_prior():
    model, rows = DreamerModel(PIXELS, SMALL), 4000
    start, action = Latent(torch.randn(1, 16), torch.zeros(1, 4, 4)), torch.eye(3)[[0]]
    start = Latent(*(each.expand(rows, *each.shape[1:]) for each in start))
    ahead = model.predict(start, torch.zeros(rows, 1).long())
    logits = model.rssm.prior(model.rssm.predict(start, action.expand(rows, -1), None).deter)[0].view(4, 4)
    expected = 0.99 * logits.softmax(-1) + 0.01 / 4  # with 1 % of a uniform distribution
    assert torch.allclose(ahead.stoch[:, 0].mean(0), expected, atol=0.03)


def test_reward_and_critic_share_the_kind_of_bins():
    for symlog_bins in (False, True):
        model = DreamerModel(EnvSpec((3,), "box", 2), SIZES["nano"], symlog_bins=symlog_bins)
        assert (model.reward.squashed, model.critic.squashed) == (symlog_bins, symlog_bins)
