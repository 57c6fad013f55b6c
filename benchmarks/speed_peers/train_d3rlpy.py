"""Updates a dataset's rows with d3rlpy. Needs the Python of the peer's venv."""

from __future__ import annotations

from typing import Any

import d3rlpy
import numpy as np
import torch
from d3rlpy.logging import NoopAdapterFactory
from d3rlpy.models.encoders import VectorEncoderFactory
from marks import Marks, answer, request

EPOCH = 50  # updates between two marks
NAMES = {
    "td3_bc": {"policy_delay": "update_actor_interval"},
    "iql": {"beta": "weight_temp", "max_advantage_weight": "max_weight"},
    "cql": {"cql_alpha": "conservative_weight", "num_cql_samples": "n_action_samples"},
}
CONFIGS = {"iql": d3rlpy.algos.IQLConfig, "cql": d3rlpy.algos.CQLConfig, "td3_bc": d3rlpy.algos.TD3PlusBCConfig}


def main() -> None:
    asked = request()
    torch.set_num_threads(1)
    d3rlpy.seed(asked["seed"])
    algorithm = CONFIGS[asked["algo"]](**renamed(asked["algo"], asked["options"])).create(device="cpu:0")
    marks = Marks(asked["warm_up"])
    algorithm.fit(
        dataset(asked["data"]), n_steps=asked["steps"], n_steps_per_epoch=EPOCH, show_progress=False,
        save_interval=asked["steps"], logger_adapter=NoopAdapterFactory(),
        epoch_callback=lambda algo, epoch, step: marks.mark(step),
    )  # fmt: skip
    answer(marks, d3rlpy, np, torch)


def renamed(algo: str, options: dict[str, Any]) -> dict[str, Any]:
    found = {NAMES[algo].get(name, name): value for name, value in options.items()}
    encoder = VectorEncoderFactory(found.pop("hidden_sizes"))
    rate = found.pop("learning_rate")
    found |= {"critic_learning_rate": rate, "actor_learning_rate": found.get("actor_learning_rate", rate)}
    found |= {"actor_encoder_factory": encoder, "critic_encoder_factory": encoder}
    if algo == "iql":
        found["value_encoder_factory"] = encoder
    if algo == "cql":  # a fixed weight of the conservative term
        found |= {"alpha_learning_rate": 0.0, "initial_alpha": 1.0, "temp_learning_rate": rate}
    if found.pop("normalize_obs", False):
        found["observation_scaler"] = d3rlpy.preprocessing.StandardObservationScaler()
    return found


def dataset(path: str) -> d3rlpy.dataset.MDPDataset:
    rows = np.load(path)
    names = {"observations": "obs", "actions": "actions", "rewards": "rewards", "terminals": "dones"}
    columns = {theirs: rows[ours].astype(np.float32) for theirs, ours in names.items()}
    return d3rlpy.dataset.MDPDataset(**columns, timeouts=rows["truncated"].astype(np.float32))


if __name__ == "__main__":
    main()
