"""Actions in the environment's own form are inside its action space, whatever the rounding."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rl_training.data.datasets.actions import unscale_actions
from rl_training.data.spaces import own_actions
from rl_training.envs.creation.making import EnvFactory, make_env, spec_of
from rl_training.envs.same_spaces import changed_space, require_same_spaces
from rl_training.types import EnvSpec


class Acts(gym.Env[Any, Any]):
    """An environment with the given action space, which only takes actions of this space."""

    observation_space = spaces.Box(-1, 1, (1,))

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.action_space = space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(1, np.float32), {}


def own(spec: EnvSpec, row: torch.Tensor) -> Any:
    return own_actions(unscale_actions(row[None], spec).numpy(), spec, ())


SPACES = [
    spaces.Box(-0.1, 0.7, (3,)), spaces.Box(-0.1, 0.7, (3,), np.float64), spaces.Box(-0.1, 0.7, (1, 3), np.float16),
    spaces.Box(np.array([-0.1, 0.3, -5e3]), np.array([0.3, 0.7, 7e3]), dtype=np.float64),
]  # fmt: skip


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_predicted_actions_are_in_the_space_and_have_its_dtype(space):
    spec = EnvSpec.from_json(spec_of(EnvFactory(lambda: Acts(space))).to_json())
    for row in (-torch.ones(3), torch.ones(3), *torch.linspace(-1, 1, 100)[:, None].expand(-1, 3)):
        action = own(spec, row)
        assert action.dtype == space.dtype
        assert space.contains(action), action


PARTS = spaces.Dict(
    a=spaces.Box(-0.1, 0.1, (2,), np.float64), b=spaces.Box(0.3, 0.7, ()), c=spaces.Box(-0.3, 0.7, (1,), np.float16)
)


def test_actions_of_a_dict_are_in_each_of_its_boxes():
    env: Any = make_env(EnvFactory(lambda: Acts(PARTS)))
    spec = EnvSpec.from_json(json.loads(json.dumps(spec_of(EnvFactory(lambda: Acts(PARTS))).to_json())))
    for row in (-torch.ones(4), torch.ones(4)):
        assert PARTS.contains(own(spec, row)), own(spec, row)
        assert PARTS.contains(env.actions.own(unscale_actions(row[None], spec).numpy()[0]))


def test_a_run_of_an_earlier_version_has_no_bounds_of_its_parts_and_is_continued():
    source = EnvFactory(lambda: Acts(PARTS))
    now = spec_of(source)
    space = json.loads(json.dumps(now.action_space))
    del space["subspaces"]["a"]["low"], space["subspaces"]["a"]["high"]
    earlier = replace(now, action_space=space)
    assert changed_space(earlier, now) is None
    require_same_spaces(earlier, source)
    assert own(earlier, torch.ones(4))["a"].dtype == np.float64


def test_a_spec_without_a_dtype_is_of_float32():
    spec = spec_of(EnvFactory(lambda: Acts(spaces.Box(-1, 1, (2,)))))
    assert "action_dtype" not in spec.to_json()
    assert own(spec, torch.ones(2)).dtype == np.float32
