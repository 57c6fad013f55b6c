"""Small spaces and small batches for every learner."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rl_training.algorithms import Learner, Updater
from rl_training.types import Batch, EnvSpec


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def box() -> EnvSpec:
    return EnvSpec((3,), "box", 2, action_shape=(2,), action_low=(-1.0, -1.0), action_high=(1.0, 1.0))


@pytest.fixture
def discrete() -> EnvSpec:
    return EnvSpec((3,), "discrete", 4)


@pytest.fixture
def draw() -> Callable[..., Batch]:
    """Random transitions that fit a spec; a third of the rows terminate, another third are truncated."""

    def rows(spec: EnvSpec, *shape: int, seed: int = 0) -> Batch:
        generator = torch.Generator().manual_seed(seed)
        normal = torch.randn(3, *shape, *spec.obs_shape, generator=generator)
        if spec.action_kind == "box":
            actions = torch.rand(*shape, spec.action_dim, generator=generator) * 2 - 1
        else:
            actions = torch.randint(spec.action_dim, shape, generator=generator)
        ends = torch.arange(shape[-1]).expand(shape) % 3
        return {
            "obs": normal[0],
            "actions": actions,
            "rewards": normal[2, ..., 0],
            "next_obs": normal[1],
            "dones": (ends == 1).float(),
            "truncated": (ends == 2).float(),
        }

    return rows


@pytest.fixture
def learner_and_batches(box, discrete, draw) -> Callable[[type[Learner]], tuple[Learner, list[Batch]]]:
    """A small learner of any lane but the sequence lane, and eight batches for it."""

    def build(kind: type[Learner]) -> tuple[Learner, list[Batch]]:
        spec = box if "box" in kind.action_kinds else discrete
        learner = kind.build(spec, hidden_sizes=(8, 8))
        batches = [draw(spec, 6, seed=seed) for seed in range(8)]
        for batch in batches:
            if kind.name in ("ppo", "gail"):
                batch |= {"raw_actions": batch["actions"], "log_probs": -torch.ones(6)}
                batch |= {"advantages": batch["rewards"], "returns": batch["rewards"]}
            if kind.name == "pqn":
                batch["returns"] = batch["rewards"]
            batch |= {column.name: torch.rand(6, *column.layout(batch)[0]) for column in kind.needs}
        return learner, batches

    return build


@pytest.fixture
def reached() -> Callable[[Tensor, Learner], set[str]]:
    """The parts of a learner that a term's gradient reaches: "critic", "target.critic", "log_alpha", ..."""

    def parts(term: Tensor, learner: Learner) -> set[str]:
        trained = {name: parameter for name, parameter in learner.named_parameters() if parameter.requires_grad}
        gradients = torch.autograd.grad(term, list(trained.values()), allow_unused=True, retain_graph=True)
        hit = [name for name, gradient in zip(trained, gradients, strict=True) if gradient is not None]
        return {name.removeprefix("model.").split(".")[0] for name in hit}

    return parts


@pytest.fixture
def changed_parts() -> Callable[[Learner, Batch, int], list[set[str]]]:
    """The parts of a learner that each of several updates changes: "model.critic", "target.actor", ..."""

    def parts(learner: Learner, rows: Batch, updates: int) -> list[set[str]]:
        updater, changed = Updater([learner]), []
        for _ in range(updates):
            before = copy.deepcopy(learner.state_dict())
            updater.update(rows)
            names = [name for name, value in learner.state_dict().items() if not value.equal(before[name])]
            changed.append({name.split(".net")[0] for name in names})
        return changed

    return parts


@pytest.fixture
def silence() -> Callable[[Learner], None]:
    """Leaves a noisy network no noise of any size."""

    def silenced(learner: Learner) -> None:
        with torch.no_grad():
            for name, parameter in learner.named_parameters():
                if name.endswith("_scale"):
                    parameter.zero_()

    return silenced


class SeparateSteps:
    """The networks of IQL as plain ones, with one optimizer each, stepped on values computed before any step."""

    def __init__(self, model: Any, log_std: nn.Parameter | None = None) -> None:
        self.actor, self.value = copy.deepcopy(model.actor.net), copy.deepcopy(model.value.net)
        self.critics = [plain_critic(model.critic.net.state_dict(), index) for index in range(2)]
        self.slow = copy.deepcopy(self.critics)
        policy = nn.ParameterList([*self.actor.parameters(), *([] if log_std is None else [log_std])])
        parts = {"value": self.value, "critics": nn.ModuleList(self.critics), "actor": policy}
        self.optimizers = {name: torch.optim.Adam(part.parameters(), lr=1e-2) for name, part in parts.items()}

    def minimise(self, name: str, loss: Tensor) -> None:
        self.optimizers[name].zero_grad()
        loss.backward()
        self.optimizers[name].step()

    def move_targets(self) -> None:
        for slow, fast in zip(self.slow, self.critics, strict=True):
            for s, f in zip(slow.parameters(), fast.parameters(), strict=True):
                s.data = 0.9 * s.data + 0.1 * f.data


def plain_critic(ensemble: dict[str, Tensor], index: int) -> nn.Sequential:
    """One critic of an ensemble with one hidden layer."""
    own = {name: tensor[index] for name, tensor in ensemble.items()}
    own = {name: tensor.T if name.endswith("weight") else tensor[0] for name, tensor in own.items()}
    (hidden, inputs), (outputs, _) = (tensor.shape for name, tensor in own.items() if name.endswith("weight"))
    network = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
    network.load_state_dict(own)
    return network


@pytest.fixture
def separate_steps() -> type[SeparateSteps]:
    return SeparateSteps
