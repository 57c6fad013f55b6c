"""Options of a very short PPO run."""

from __future__ import annotations

from typing import Any

TINY: dict[str, Any] = {
    "total_timesteps": 64, "num_steps": 32, "batch_size": 16, "epochs": 1, "hidden_sizes": [8], "eval_episodes": 1
}  # fmt: skip
