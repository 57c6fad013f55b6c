"""PPO with memory: acting, advantages and one update against a plain implementation that runs episode by episode."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from rl_training.algorithms import PPOAlgorithm, PPOConfig, Updater
from rl_training.algorithms.core.memory import rollout_rows
from rl_training.models import PPOModel
from rl_training.types import Batch, EnvSpec

DISCRETE, BOX = EnvSpec((3,), "discrete", 2), EnvSpec((3,), "box", 2)
LEVERS = EnvSpec((3,), "multi_discrete", 2, action_shape=(2,), action_sizes=(3, 2), action_starts=(0, 0))
PIXELS = EnvSpec((1, 8, 8), "discrete", 2, obs_dtype="uint8")
STEPS, ENVS, LENGTH = 12, 4, 6
TERMS = ("policy_loss", "value_loss", "entropy_loss")


def new_learner(spec: EnvSpec = DISCRETE, memory: str = "lstm", **options: Any) -> PPOAlgorithm:
    torch.manual_seed(0)
    network = {"memory": memory, "memory_size": 5, "hidden_sizes": [6]}
    sizes = {"num_steps": STEPS, "batch_size": STEPS * ENVS, "sequence_length": LENGTH}
    learner = PPOAlgorithm.build(spec, network=network, **{**sizes, **options})
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))  # so that biases and small layers count
    return learner


def observations(spec: EnvSpec, *lead: int) -> Tensor:
    if spec.obs_dtype == "uint8":
        return torch.randint(256, (*lead, *spec.obs_shape), dtype=torch.uint8)
    return 2 * torch.randn(*lead, *spec.obs_shape) + 1


@torch.no_grad()
def rollout(learner: PPOAlgorithm, spec: EnvSpec = DISCRETE, memory: Batch | None = None) -> tuple[Batch, Batch]:
    """Acts on random observations; episodes end at random, and some of them by truncation."""
    obs, ends = observations(spec, STEPS + 1, ENVS), torch.rand(2, STEPS, ENVS) < 0.12
    dones, truncated = ends[0].float(), (ends[1] & ~ends[0]).float()
    rows = []
    for time in range(STEPS):
        action = learner.act(obs[time], memory)
        assert action.memory is not None
        memory = {**action.memory, "is_first": dones[time] + truncated[time]}
        rows.append(action.extras)
    assert memory is not None
    stored = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    next_obs = torch.where((truncated > 0).view(STEPS, ENVS, *[1] * len(spec.obs_shape)), 3 - obs[1:], obs[1:])
    columns = {"obs": obs[:-1], "next_obs": next_obs, "rewards": torch.randn(STEPS, ENVS)}
    return {**columns, "dones": dones, "truncated": truncated, **stored}, memory


def two_rollouts(learner: PPOAlgorithm, spec: EnvSpec = DISCRETE) -> Batch:
    """The second of two rollouts, whose first episodes began in the first one."""
    _, memory = rollout(learner, spec)
    return rollout(learner, spec, memory)[0]


def rows(learner: PPOAlgorithm, batch: Batch) -> Batch:
    return rollout_rows(learner.prepare(batch), batch, learner.config.steps_per_row)


@pytest.mark.parametrize("memory", ["lstm", "gru"])
@pytest.mark.parametrize("spec", [DISCRETE, BOX, LEVERS, PIXELS])
def test_sequences_give_the_probabilities_that_were_acted_with(spec, memory):
    learner = new_learner(spec, memory)
    batch = rows(learner, two_rollouts(learner, spec))
    assert batch["memory_is_first"].shape == (STEPS * ENVS // LENGTH, LENGTH)
    metrics = learner.loss(batch).metrics
    assert metrics["approx_kl"].item() == pytest.approx(0, abs=1e-6)
    assert metrics["clip_fraction"].item() == 0


@pytest.mark.parametrize("column", ["memory_hidden", "memory_cell"])
def test_sequences_without_their_initial_state_give_other_probabilities(column):
    learner = new_learner()
    batch = rows(learner, two_rollouts(learner))
    cut = {**batch, column: torch.zeros_like(batch[column])}
    assert learner.loss(cut).metrics["approx_kl"].item() > 1e-5


def test_sequences_without_resets_give_other_probabilities():
    learner = new_learner()
    batch = rows(learner, two_rollouts(learner))
    assert batch["memory_is_first"].sum() > 0
    leaking = {**batch, "memory_is_first": torch.zeros_like(batch["memory_is_first"])}
    assert learner.loss(leaking).metrics["approx_kl"].item() > 1e-5


def test_a_row_is_a_sequence_of_one_environment_with_the_state_before_it():
    learner = new_learner()
    stored = two_rollouts(learner)
    batch = rows(learner, stored)
    for number in range(STEPS * ENVS // LENGTH):
        block, env = divmod(number, ENVS)
        times = slice(block * LENGTH, (block + 1) * LENGTH)
        assert batch["obs"][number].equal(stored["obs"][times, env])
        assert batch["memory_is_first"][number].equal(stored["memory_is_first"][times, env])
        assert batch["memory_cell"][number].equal(stored["memory_cell"][block * LENGTH, env])


class Plain(nn.Module):
    """The same networks in plain PyTorch, called step by step; gates in the order o, i, f, g."""

    def __init__(self, learner: PPOAlgorithm) -> None:
        super().__init__()
        model, size = learner.model, learner.model.memory.size
        self.inputs = nn.ModuleList(nn.Linear(3, 4 * size) for _ in range(2))
        self.recurrent = nn.ParameterList(model.memory.weight.detach().clone().unbind())
        for copy, inputs in enumerate(self.inputs):
            own = model.memory.inputs
            parts = {"weight": own.weight, "bias": own.bias}
            inputs.load_state_dict({name: each.unflatten(0, (2, -1))[copy] for name, each in parts.items()})
        self.actor = nn.Sequential(nn.Linear(size, 6), nn.Tanh(), nn.Linear(6, 2))
        self.value = nn.Sequential(nn.Linear(size, 6), nn.Tanh(), nn.Linear(6, 1))
        self.actor.load_state_dict(model.actor.net.state_dict())
        self.value.load_state_dict(model.value.state_dict())

    def step(self, obs: Tensor, states: list[Any]) -> tuple[Tensor, Tensor, list[Any]]:
        """Log-probabilities, value and next states, each a pair of hidden state and cell."""
        following = []
        for inputs, weight, (hidden, cell) in zip(self.inputs, self.recurrent, states, strict=True):
            emit, admit, forget, new = (inputs(obs) + hidden @ weight).chunk(4, -1)
            kept = forget.sigmoid() * cell + admit.sigmoid() * new.tanh()
            following.append((emit.sigmoid() * kept.tanh(), kept))
        return log_softmax(self.actor(following[0][0]), -1), self.value(following[1][0])[..., 0], following

    def start(self, batch: Batch, row: Any) -> list[Any]:
        """States before these steps, as two pairs of hidden state and cell."""
        parts = [batch[name][row].detach().chunk(2, -1) for name in ("memory_hidden", "memory_cell")]
        return [(parts[0][copy], parts[1][copy]) for copy in range(2)]


def zero_states(states: list[Any]) -> list[Any]:
    return [tuple(torch.zeros_like(each) for each in state) for state in states]


def plain_advantages(plain: Plain, stored: Batch, config: PPOConfig) -> Tensor:
    """GAE for each environment by a loop back in time, with values computed episode by episode."""
    advantages = torch.zeros(STEPS, ENVS)
    for env in range(ENVS):
        values, next_values, states = [], [], plain.start(stored, (0, slice(env, env + 1)))
        for time in range(STEPS):
            if stored["memory_is_first"][time, env]:
                states = zero_states(states)
            _, value, states = plain.step(stored["obs"][time, [env]], states)
            values.append(value.item())
            next_values.append(plain.step(stored["next_obs"][time, [env]], states)[1].item())
        later = 0.0
        for time in reversed(range(STEPS)):
            done, cut = stored["dones"][time, env].item(), stored["truncated"][time, env].item()
            delta = stored["rewards"][time, env].item() + config.gamma * (1 - done) * next_values[time] - values[time]
            later = delta + config.gamma * config.gae_lambda * (1 - max(done, cut)) * later
            advantages[time, env] = later
    return advantages


@torch.no_grad()
def test_advantages_equal_those_of_a_loop_over_each_episode():
    learner = new_learner()
    stored = two_rollouts(learner)
    expected = plain_advantages(Plain(learner), stored, learner.config)
    torch.testing.assert_close(learner.prepare(stored)["advantages"], expected, atol=1e-5, rtol=1e-5)


def plain_loss(plain: Plain, stored: Batch, prepared: Batch, config: PPOConfig) -> Tensor:
    """PPO's loss over all sequences, step by step."""
    ratios, values = torch.zeros(STEPS, ENVS), torch.zeros(STEPS, ENVS)
    entropies = []
    for env in range(ENVS):
        for time in range(STEPS):
            if time % LENGTH == 0:
                states = plain.start(stored, (time, slice(env, env + 1)))
            if stored["memory_is_first"][time, env]:
                states = zero_states(states)
            log_probs, value, states = plain.step(stored["obs"][time, [env]], states)
            log_prob = log_probs[0, stored["raw_actions"][time, env]]
            ratios[time, env] = (log_prob - prepared["log_probs"][time, env]).exp()
            values[time, env] = value[0]
            entropies.append(-(log_probs.exp() * log_probs).sum())
    advantages = prepared["advantages"]
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    clipped = ratios.clamp(1 - config.clip_range, 1 + config.clip_range)
    policy = -torch.minimum(ratios * advantages, clipped * advantages).mean()
    value_loss = (values - prepared["returns"]).square().mean()
    return policy + config.value_weight * value_loss - config.entropy_weight * torch.stack(entropies).mean()


def test_updates_equal_those_of_a_plain_implementation():
    learner = new_learner(entropy_weight=0.01, learning_rate=1e-2)
    stored = two_rollouts(learner)
    prepared, plain = learner.prepare(stored), Plain(learner)
    batch, updater = rollout_rows(prepared, stored, LENGTH), Updater([learner])
    optimizer = torch.optim.Adam(plain.parameters(), lr=1e-2, eps=1e-5)
    for _ in range(3):
        loss = plain_loss(plain, stored, prepared, learner.config)
        metrics = updater.update(batch).metrics
        assert sum(metrics[name].item() for name in TERMS) == pytest.approx(loss.item(), rel=1e-4)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(plain.parameters(), learner.config.max_grad_norm)
        optimizer.step()
    expected = Plain(learner)
    for mine, theirs in zip(expected.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, atol=2e-5, rtol=1e-4)


def test_policy_and_value_remember_separately_for_vectors_and_together_for_images():
    assert new_learner().model.memory.copies == 2
    assert new_learner(PIXELS).model.memory.copies == 1


@pytest.mark.parametrize(
    ("options", "length"),
    [
        ({}, 32),
        ({"num_steps": 24, "batch_size": 12}, 12),
        ({"num_steps": 96, "batch_size": 48, "sequence_length": 4}, 4),
    ],
)
def test_sequences_are_as_long_as_rollout_and_batch_allow_up_to_32(options, length):
    assert PPOConfig(network={"memory": "gru"}, **options).steps_per_row == length


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_steps": 10, "batch_size": 25, "network": {"memory": "lstm"}}, "allow sequences of 5 steps only"),
        ({"sequence_length": 5, "network": {"memory": "lstm"}}, "must divide num_steps 2048 and batch_size 64, got 5"),
        ({"sequence_length": 8}, "the network has no memory; set network.memory"),
        ({"network": {"memory_size": 8}}, "there is no memory; set memory to lstm or gru"),
        ({"network": {"memory": "rnn"}}, "Input should be 'lstm' or 'gru'"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        PPOConfig(**options)


def test_a_network_without_memory_has_no_state():
    learner = PPOAlgorithm.build(DISCRETE)
    assert learner.initial_memory(3) == {}
    action = learner.act(torch.zeros(2, 3))
    assert action.memory is None
    assert action.extras.keys() == {"raw_actions"}
    assert PPOConfig().steps_per_row == 1


class Forgetful(PPOModel):
    role = "model"

    @classmethod
    def build(cls, spec: EnvSpec, config: Any) -> Forgetful:
        return cls(spec, (4,))


class Recalling(PPOModel):
    role = "model"

    @classmethod
    def build(cls, spec: EnvSpec, config: Any) -> Recalling:
        return cls(spec, (4,), memory="gru")


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (Forgetful, {"memory": "lstm"}, "Forgetful has no recurrent layers, but network.memory is lstm; pass it"),
        (Recalling, {}, "Recalling has recurrent layers, but network.memory is None; set network.memory"),
    ],
)
def test_a_model_of_your_own_must_have_the_memory_of_the_config(kind, options, message):
    with pytest.raises(ValueError, match=message):
        PPOAlgorithm.build(DISCRETE, network={"kind": kind, **options})
    assert PPOAlgorithm.build(DISCRETE, network={"kind": Recalling, "memory": "gru"}).config.steps_per_row == 32
