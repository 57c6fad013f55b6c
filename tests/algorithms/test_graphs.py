"""Captured updates are the eager ones, replayed; they need a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch._inductor import config as inductor

from rl_training.algorithms import CATALOGUE, DreamerAlgorithm, Learner, TD3Algorithm, Updater
from rl_training.algorithms.core.learner import Column
from rl_training.data import RecurrentReplayBuffer, ReplayBuffer
from rl_training.runtime.lanes.captured_call import CapturedCall
from rl_training.types import EnvSpec

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="captured updates need CUDA")
SPECS = {
    "box": EnvSpec((5,), "box", 2, action_shape=(2,), action_low=(-1.0, -1.0), action_high=(1.0, 1.0)),
    "discrete": EnvSpec((5,), "discrete", 3),
}
LEARNERS = [learner for learner in CATALOGUE.values() if learner.lane in ("offline", "replay")]
LEARNERS += [learner.discrete_type for learner in LEARNERS if learner.discrete_type is not None]


def replay(spec: EnvSpec, members: int | None, needs: Sequence[Column] = (), **options) -> ReplayBuffer:
    row = {"actions": torch.zeros(1, spec.action_dim)}
    extra = {column.name: column.layout(row) for column in needs}
    buffer = ReplayBuffer(64, spec, device="cuda", members=members, extra=extra, **options)
    generator = torch.Generator().manual_seed(0)
    lead = (50,) if members is None else (members, 50)
    actions = (
        torch.rand(*lead, spec.action_dim, generator=generator) * 1.8 - 0.9
        if spec.action_kind == "box"
        else torch.randint(spec.action_dim, lead, generator=generator)
    )
    obs, next_obs = torch.randn(2, *lead, 5, generator=generator)
    rows = {"obs": obs, "actions": actions, "rewards": torch.randn(*lead, generator=generator), "next_obs": next_obs}
    rows |= {"dones": torch.zeros(lead), "truncated": torch.zeros(lead)}
    rows |= {name: torch.ones(*lead, *shape) for name, (shape, _) in extra.items()}
    buffer.add({name: column.cuda() for name, column in rows.items()})
    buffer.seed(1)
    return buffer


def trained(
    learner: type[Learner], members: int, *, capture: bool, network: Any = None, **options
) -> dict[str, torch.Tensor]:
    spec = SPECS[learner.action_kinds[0]]
    torch.manual_seed(3)
    built = {"hidden_sizes": (16, 16), "batch_size": 8, "network": network}
    learners = [learner.build(spec, **built).cuda() for _ in range(members)]
    updater = Updater(learners, capture=capture)
    torch.cuda.manual_seed(7)
    source = replay(spec, None if members == 1 else members, learner.needs, **options)
    updater.run(source, 75)
    source.add({name: column[..., :1, :] if column.dim() > len(source.columns["rewards"].shape) else column[..., :1]
                for name, column in source.columns.items()})  # fmt: skip
    result = updater.run(source, 5)  # the buffer has grown, and captured sampling must see it
    assert updater.updates == 80
    assert all(value.isfinite().all() for value in result.metrics.values())
    return {name: value.detach().cpu() for name, value in updater.params.items()}


@pytest.mark.parametrize("members", [1, 3])
def test_captured_updates_look_ahead_and_set_priorities_as_eager_ones_do(members):
    options = {"n_step": 3, "prioritized": True}
    eager, captured = (trained(CATALOGUE["dqn"], members, capture=capture, **options) for capture in (False, True))
    assert max((value - captured[name]).abs().max().item() for name, value in eager.items()) < 1e-4


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: learner.__name__)
def test_captured_updates_equal_eager_ones(learner, members):
    eager, captured = (trained(learner, members, capture=capture) for capture in (False, True))
    furthest = {name: (value - captured[name]).abs().max().item() for name, value in eager.items()}
    assert max(furthest.values()) < 1e-4, furthest


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("name", ["td3", "td3_bc", "redq"])
def test_metrics_of_a_delayed_phase_outlive_the_updates_that_leave_it_out(name, members):
    learners = [CATALOGUE[name].build(SPECS["box"], hidden_sizes=(16, 16), batch_size=8).cuda() for _ in range(members)]
    updater, source = Updater(learners, capture=True), replay(SPECS["box"], None if members == 1 else members)
    kept: dict[str, Any] = {}
    for _ in range(91):
        metrics = updater.run(source, 1).metrics
        for metric, (tensor, value) in kept.items():
            assert metric in metrics or tensor.tolist() == value, metric
        kept |= {metric: (tensor, tensor.tolist()) for metric, tensor in metrics.items()}
    assert len(kept) > len(metrics)  # the last update has left out a phase


class Residual(nn.Module):
    role = "trunk"

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(inputs, 16), nn.LayerNorm(16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        return hidden + self.second(self.norm(hidden).relu())


@pytest.mark.parametrize("network", [Residual, {"layer_norm": True, "activation": "gelu"}], ids=["own", "layer norm"])
@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("name", ["redq", "dqn"])
def test_captured_updates_of_other_networks_equal_eager_ones(name, members, network):
    eager, captured = (trained(CATALOGUE[name], members, capture=each, network=network) for each in (False, True))
    assert max((value - captured[name]).abs().max().item() for name, value in eager.items()) < 1e-4


def dreamt(*, capture: bool, compile: bool = False, **options: Any) -> dict[str, torch.Tensor]:
    """Dreamer's losses after updates on windows of steps whose memories are written back as it learns, and how many of
    its weights have moved by now.

    It learns slowly: its optimizer takes whole steps by gradients that are only rounding, which no graph repeats.
    """
    spec = EnvSpec((3, 16, 16), "discrete", 3, obs_dtype="uint8")
    torch.manual_seed(3)
    options |= {"batch_size": 4, "window": 5, "horizon": 3}
    learner = DreamerAlgorithm.build(spec, learning_rate=1e-6, warm_up=0, **options).cuda()
    before = torch.cat([weights.detach().flatten() for weights in learner.model.parameters()])
    size = learner.model.size
    latents = {"deter": ((size.deter,), torch.float16), "stoch": ((size.latents,), torch.uint8)}
    replay = RecurrentReplayBuffer(64, spec, window=5, latents=latents, device="cuda")
    for step in range(30):
        rewards, ends = torch.randn(1, device="cuda"), torch.full((1,), float(step % 7 == 6), device="cuda")
        pictures = torch.randint(256, (2, 1, *spec.obs_shape), dtype=torch.uint8, device="cuda")
        row = dict(zip(("obs", "next_obs"), pictures, strict=True))
        row |= {
            "actions": torch.randint(3, (1,), device="cuda"),
            "rewards": rewards,
            "dones": ends,
            "truncated": 0 * ends,
        }
        kept = {name: torch.zeros(1, *shape, dtype=dtype, device="cuda") for name, (shape, dtype) in latents.items()}
        replay.add({**row, **kept})
    replay.seed(1)
    updater = Updater([learner], compile=compile, capture=capture)
    torch.cuda.manual_seed(7)
    result = updater.run(replay, 11)
    assert all(value.isfinite().all() for value in result.metrics.values())
    after = torch.cat([weights.detach().flatten() for weights in learner.model.parameters()])
    moved = ((after - before).abs() > 1e-6).float().mean()
    return {name: value.cpu() for name, value in {**result.metrics, "moved": moved}.items()}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(("compile", "size"), [(False, "tiny"), (True, "tiny"), (True, "xs")])
def test_captured_updates_of_a_world_model_equal_eager_ones(precision, compile, size):
    torch.compiler.reset()
    options = {"precision": precision, "size": size}
    with inductor.patch(fallback_random=True):  # the noise that is drawn without being compiled
        eager, captured = dreamt(capture=False, **options), dreamt(capture=True, compile=compile, **options)
    assert captured["moved"] > 0.5
    for name, value in eager.items():  # other rows or another noise would move several of them by more
        torch.testing.assert_close(captured[name], value, rtol=1e-2, atol=1e-3, msg=name)


class LateCapture(torch.cuda.CUDAGraph):
    """A graph whose capture stream is busy, as on a GPU that other processes use."""

    def capture_begin(self, *args: Any, **options: Any) -> None:
        torch.cuda._sleep(200_000_000)  # cycles, about 0.1 s
        super().capture_begin(*args, **options)


def test_the_first_replay_draws_its_own_random_numbers_on_a_busy_gpu(monkeypatch):
    expected = trained(TD3Algorithm, 1, capture=True)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", LateCapture)
    for name, value in trained(TD3Algorithm, 1, capture=True).items():
        assert torch.equal(value, expected[name]), name


def test_a_captured_call_draws_its_own_random_numbers_on_a_busy_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "CUDAGraph", LateCapture)
    generator = torch.Generator("cuda").manual_seed(0)
    call = CapturedCall(lambda: torch.rand(3, generator=generator, device="cuda"), generator)
    drawn = torch.stack([call().clone() for _ in range(8)])
    assert len(drawn.unique()) == 24
