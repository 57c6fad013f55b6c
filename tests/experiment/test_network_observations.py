"""Networks of the user that read observations with several parts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from rl_training.algorithms import PPOAlgorithm
from rl_training.types import EnvSpec, ObsPart

PARTS = (ObsPart("camera", (1, 6, 6), "uint8"), ObsPart("speed", (2,), "float32"))
PACKED = EnvSpec((36 + 8,), "discrete", 3, obs_dtype="uint8", obs_parts=PARTS)
JOINED = EnvSpec((2,), "discrete", 3, obs_space={"type": "Dict", "subspaces": {}})


@pytest.mark.parametrize(
    ("spec", "read", "message"),
    [
        (PACKED, lambda obs: obs["velocity"], r"parts 'camera' uint8 \[2, 1, 6, 6\], 'speed' float32 \[2, 2\]: KeyE"),
        (PACKED, lambda obs: obs["speed"].mean(0).expand(len(obs["speed"]), -1), "other outputs alone than in a batch"),
        (PACKED, lambda obs: obs["speed"].sum(), r"for inputs with the parts 'camera' uint8 \[2, 1, 6, 6\], .*, got"),
        (JOINED, lambda obs: obs.get("speed"), r"shape \[2, 2\] \(a Dict .* arrives as one vector\): Attr"),
    ],
)
def test_a_mistake_with_a_dict_of_observations_is_named_with_its_parts(spec, read, message):
    class Mistaken(nn.Module):
        role = "features"

        def __init__(self, spec: EnvSpec) -> None:
            super().__init__()

        def forward(self, obs: Any) -> Any:
            return read(obs)

    with pytest.raises(ValueError, match=message):
        PPOAlgorithm.build(spec, network=Mistaken)


def test_features_get_a_dict_of_images_and_vectors():
    class Mixed(nn.Module):
        role = "features"

        def __init__(self, spec: EnvSpec) -> None:
            super().__init__()
            self.camera = nn.Linear(36, 4)

        def forward(self, obs: dict[str, torch.Tensor]) -> torch.Tensor:
            return torch.cat([self.camera(obs["camera"].flatten(1) / 255), obs["speed"]], -1)

    learner = PPOAlgorithm.build(PACKED, network=Mixed)
    speeds = torch.tensor([[1.5, -2.0], [0.0, 3.0]])
    rows = torch.cat([torch.zeros(2, 36, dtype=torch.uint8), speeds.view(torch.uint8)], -1)
    torch.testing.assert_close(learner.model.encoder(rows)[:, 4:], speeds)
