"""Observations and actions of exported policies: in the environment's own form, units and bounds."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rl_training.envs.spaces import with_library_spaces
from rl_training.envs.spec import env_spec_of
from rl_training.experiment.export import files
from rl_training.experiment.export.description import describe_policy
from rl_training.experiment.export.parity import Comparison
from rl_training.experiment.export.policy import ExportedPolicy
from rl_training.types import EnvSpec

SHIFTED = EnvSpec((3,), "box", 2, action_shape=(2, 1), action_low=(-1.0, 2.0), action_high=(3.0, 2.5))


def outputs(agent, tmp_path, obs):
    """The outputs of the agent's file for these observations."""
    policy = ExportedPolicy(agent.learner, agent.spec)
    files.write_policy(policy, tmp_path / "policy.pt2")
    inputs = policy.with_memory(policy.observations.inputs(torch.as_tensor(obs)), None)
    return files.open_policy(tmp_path / "policy.pt2")({name: each.numpy() for name, each in inputs.items()})


def test_box_actions_are_scaled_shaped_and_clipped_to_the_bounds(new_agent, tmp_path):
    agent = new_agent("ppo", SHIFTED, hidden_sizes=[8])
    with torch.no_grad():
        agent.learner.model.actor.net[-1].weight.mul_(1e6)  # means far outside the bounds
    obs = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    actions = outputs(agent, tmp_path, obs)["actions"]
    assert actions.shape == (40, 2, 1)
    np.testing.assert_allclose(actions, agent.predict(obs), rtol=1e-6)
    assert set(actions[:, 0, 0]) == {-1, 3}
    assert actions[:, 1].min() == 2
    assert actions[:, 1].max() == 2.5


def test_discrete_actions_begin_where_the_environment_begins(new_agent, tmp_path):
    spec = EnvSpec((3,), "discrete", 4, action_start=-2)
    agent = new_agent("dqn", spec, hidden_sizes=[8])
    obs = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    np.testing.assert_array_equal(outputs(agent, tmp_path, obs)["actions"], agent.predict(obs))
    assert agent.predict(obs).min() == -2


def test_images_are_taken_as_bytes(new_agent, tmp_path):
    agent = new_agent("dqn", EnvSpec((1, 10, 10), "discrete", 3, obs_dtype="uint8"), hidden_sizes=[8])
    obs = np.random.default_rng(0).integers(0, 256, size=(6, 1, 10, 10), dtype=np.uint8)
    np.testing.assert_array_equal(outputs(agent, tmp_path, obs)["actions"], agent.predict(obs))


class SampledSpaces(gym.Env):
    """Returns samples of its observation space."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space


OBSERVATIONS = {
    "dict": spaces.Dict({
        "camera": spaces.Box(0, 255, (12, 10, 3), np.uint8), "map": spaces.Box(0, 255, (1, 8, 8), np.uint8),
        "goal": spaces.Discrete(4, start=-1), "speed": spaces.Box(-1, 1, (2, 2), np.float64),
    }),
    "tuple": spaces.Tuple((spaces.Discrete(3), spaces.MultiDiscrete([2, 4]), spaces.MultiBinary(3))),
    "channels last": spaces.Box(0, 255, (8, 8, 2), np.uint8),
    "integers": spaces.Box(-5, 5, (3,), np.int32),
}  # fmt: skip
ACTION_SPACES = {
    "dict": spaces.Dict({"left": spaces.Discrete(3, start=1), "right": spaces.MultiDiscrete([2, 3])}),
    "tuple": spaces.Tuple((spaces.Box(-2, 1, (2,)), spaces.Box(0, 1, (1, 2)))),
    "bits": spaces.MultiBinary(4),
    "half-bounded": spaces.Box(0, np.inf, (2,)),
}


@pytest.mark.parametrize(("observed", "acted"), [*zip(OBSERVATIONS, ACTION_SPACES, strict=True)])
def test_observations_and_actions_have_the_environments_own_form(new_agent, observed, acted, tmp_path):
    env = with_library_spaces(SampledSpaces(OBSERVATIONS[observed], ACTION_SPACES[acted]))
    agent = new_agent("ppo", env_spec_of(env), hidden_sizes=[8])
    space = OBSERVATIONS[observed]
    space.seed(0)
    samples = [space.sample() for _ in range(20)]
    rows = torch.as_tensor(np.stack([agent.rows(each) for each in samples]))
    policy = ExportedPolicy(agent.learner, agent.spec)
    inputs = {name: each.numpy() for name, each in policy.observations.inputs(rows).items()}
    path = tmp_path / ("policy.onnx" if observed == "dict" else "policy.pt2")
    files.write_policy(policy, path)
    found = files.open_policy(path)(inputs)
    described = describe_policy(agent, policy, with_env=False)
    for port in described["inputs"]:
        for own, sample in zip(inputs[port["name"]], samples, strict=True):
            np.testing.assert_array_equal(own, np.asarray(at(sample, port), own.dtype))
    predicted = [agent.predict(each) for each in samples]
    for port in described["outputs"][: len(policy.actions.ports)]:
        expected = np.stack([at(each, port) for each in predicted])
        np.testing.assert_allclose(found[port["name"]], expected, rtol=1e-5, atol=1e-6)
        assert found[port["name"]].min() >= np.min(port["low"])
    comparison = Comparison(agent, files.open_policy(path))
    comparison.act(rows)
    assert comparison.result("samples", 1e-5).holds


def at(value, port):
    for key in port.get("path", ()):
        value = value[key]
    return value


class BranchesOnRows(torch.nn.Module):
    role = "trunk"

    def __init__(self, inputs, by):
        super().__init__()
        self.linear, self.by = torch.nn.Linear(inputs, 4), by

    def forward(self, x):
        if self.by == "len":
            return self.linear(x).reshape(len(x), -1)
        return self.linear(x.clamp(-1, 1)) if x.max().item() > 9 else self.linear(x)


@pytest.mark.parametrize("by", ["len", "item"])
def test_a_network_that_cannot_be_traced_is_refused_with_a_remedy(new_agent, tmp_path, capfd, by):
    agent = new_agent("ppo", SHIFTED, network={"kind": BranchesOnRows, "by": by})
    message = "cannot trace this policy for any number of rows.*" + (
        "" if by == "len" else r"test_export_spaces.py:\d+"
    )
    with pytest.raises(ValueError, match=f"{message}.*len.x., and avoid loops over rows"):
        files.write_policy(ExportedPolicy(agent.learner, agent.spec), tmp_path / "policy.pt2")
    assert capfd.readouterr().err == ""
