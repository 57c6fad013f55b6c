"""Updates by rl_training, and its parameters by names that every library shares."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from equal_peers.cases import Case
from equal_peers.inputs import BOX, DISCRETE, MASKED, noise, orders, rows_of, seed_noise, transitions
from equal_peers.precision import use_precision
from rl_training.algorithms import CATALOGUE
from rl_training.algorithms.core import memory
from rl_training.runtime.memory import Memory
from rl_training.types import Arrays, Batch, Loss


def prepared(case: Case, updates: int, seed: int, bits: int = 32) -> tuple[Any, Arrays]:
    """A new learner, and all that the peer needs to repeat its updates."""
    use_precision(bits)
    torch.manual_seed(seed)
    learner = new_learner(case)
    columns = transitions(case, updates * case.options["batch_size"] // case.options.get("epochs", 1), seed)
    inputs = {f"initial/{name}": value for name, value in shared_parameters(learner, case).items()}
    inputs |= {f"columns/{name}": column for name, column in columns.items()}
    inputs |= {f"noise/{name}": numbers for name, numbers in noise(case, updates).items()}
    return learner, inputs | ({"orders": orders(case, updates, seed)} if case.algo == "ppo" else {})


def new_learner(case: Case) -> Any:
    algorithm = CATALOGUE[case.algo]
    if case.phases:
        members = {"phases": lambda self, update: case.phases, **TERMS}
        algorithm = type(algorithm.__name__, (algorithm,), members)
    discrete = MASKED if case.masked else DISCRETE
    learner = algorithm.build(discrete if case.discrete else BOX, **case.options)
    for name, buffer in learner.named_buffers():
        if name.rpartition(".")[2] in case.buffers:
            buffer.fill_(case.buffers[name.rpartition(".")[2]])
    return learner


def term(phase: str, name: str) -> Callable[[Any, Batch], Loss]:
    """One term of a loss as a loss of its own."""

    def loss(self: Any, batch: Batch) -> Loss:
        whole = getattr(self, phase)(batch)
        return whole._replace(terms={name: whole.terms[name]})

    return loss


TERMS = {"temperature": term("policy", "temperature_loss"), "actor": term("policy", "actor_loss")}


def trained(learner: Any, case: Case, inputs: Arrays, marks: Sequence[int]) -> dict[int, Arrays]:
    """Parameters after each of these numbers of updates."""
    found: dict[int, Arrays] = {}
    for update in (
        rollout_updates(learner, case, inputs) if case.algo == "ppo" else batch_updates(learner, case, inputs)
    ):
        if update in marks:
            found[update] = shared_parameters(learner, case)
    return found


def batch_updates(learner: Any, case: Case, inputs: Arrays) -> Iterator[int]:
    columns, size = columns_of(inputs), case.options["batch_size"]
    for update in range(len(columns["rewards"]) // size):
        seed_noise(update)
        learner.update(rows_of(columns, slice(update * size, (update + 1) * size)))
        yield update + 1


def rollout_updates(learner: Any, case: Case, inputs: Arrays) -> Iterator[int]:
    """PPO: advantages are computed once per rollout of one environment."""
    columns, steps, length = columns_of(inputs), case.options["num_steps"], learner.config.steps_per_row
    columns["raw_actions"], columns["truncated"] = columns["actions"], np.zeros_like(columns["dones"])
    updates = 0
    for rollout, epochs in enumerate(inputs["orders"]):
        rows = rows_of(columns, slice(rollout * steps, (rollout + 1) * steps))
        batch = {name: column.unsqueeze(1) for name, column in rows.items()}
        batch |= remembered(learner, batch)
        prepared = memory.rollout_rows(learner.prepare(batch), batch, length)
        for order in epochs:
            for chosen in torch.from_numpy(order[::length] // length).split(case.options["batch_size"] // length):
                learner.update({name: column[chosen] for name, column in prepared.items()})
                updates += 1
                yield updates


@torch.no_grad()
def remembered(learner: Any, batch: Batch) -> Batch:
    """Memory of a recurrent policy before each step of a rollout [time, envs, ...]; empty for other policies."""
    kept, columns = Memory(), []
    for obs, dones in zip(batch["obs"], batch["dones"], strict=True):
        action = learner.act(obs, kept.of(len(obs)), deterministic=True)
        kept.keep(action, dones)
        columns.append(memory.memory_columns(action.extras))
    return {name: torch.stack([each[name] for each in columns]) for name in columns[0]}


def columns_of(inputs: Arrays) -> Arrays:
    return {name.partition("/")[2]: each for name, each in inputs.items() if name.startswith("columns/")}


def shared_parameters(learner: Any, case: Case) -> Arrays:
    """Parameters in the layout of `nn.Linear`: "model.critic.0.2.weight" is layer 2 of the first critic.

    Running statistics of batch renormalisation are among them, as mean and var of their layer.
    """
    found: Arrays = {}
    layers: defaultdict[str, list[str]] = defaultdict(list)
    statistics = [(name, each) for name, each in learner.named_buffers() if name.endswith((".mean", ".var"))]
    for name, parameter in [*learner.named_parameters(), *statistics]:
        value = parameter.detach().numpy().copy()
        place = re.fullmatch(r"(\w+\.\w+)\.(.*)\b(weight|bias|mean|var)", name)
        if place is None:
            found[name] = value
            continue
        network, path, kind = place.groups()
        if path not in layers[network]:
            layers[network].append(path)
        layer = layers[network].index(path)
        if "critic" in network:  # critics are stacked, with transposed weights
            for copy, each in enumerate(value):
                found[f"{network}.{copy}.{layer}.{kind}"] = each.squeeze(0) if len(each) == 1 else each.T
        else:
            found[f"{network}.{layer}.{kind}"] = value
    return LAYOUTS.get(case.algo, lambda parameters, case: parameters)(found, case)


def separate_memories(parameters: Arrays, case: Case) -> Arrays:
    """The LSTMs of PPO's policy and value in the layout of `nn.LSTM`: gates i, f, g, o instead of o, i, f, g."""
    if "network" not in case.options:
        return parameters
    weight = parameters.pop("model.memory.0.weight")
    inputs, bias = (np.split(parameters.pop(f"model.memory.1.{kind}"), len(weight)) for kind in ("weight", "bias"))
    for copy, hidden in enumerate(weight):
        for kind, value in (("inputs", inputs[copy]), ("hidden", hidden.T), ("bias", bias[copy])):
            first, *rest = np.split(value, 4)
            parameters[f"model.memory.{copy}.{kind}"] = np.concatenate([*rest, first])
    return parameters


def quantiles_first(parameters: Arrays, case: Case) -> Arrays:
    """Outputs of QR-DQN by quantile and action, as sb3-contrib has them, instead of by action and quantile."""
    last = max(int(name.split(".")[2]) for name in parameters)
    shape = (DISCRETE.action_dim, case.options["num_quantiles"])
    for name in [name for name in parameters if name.split(".")[2] == str(last)]:
        value = parameters[name]
        parameters[name] = value.reshape(*shape, *value.shape[1:]).swapaxes(0, 1).reshape(value.shape)
    return parameters


def separate_outputs(parameters: Arrays, case: Case) -> Arrays:
    """Mean and log std of SAC's actor as two layers, as SB3 and CORL's EDAC have them."""
    last = max(int(name.split(".")[2]) for name in parameters if name.startswith("model.actor."))
    for kind in ("weight", "bias"):
        both = parameters.pop(f"model.actor.{last}.{kind}")
        parameters[f"model.actor.mean.0.{kind}"], parameters[f"model.actor.log_std.0.{kind}"] = np.split(both, 2)
    return parameters


SQUASHED = ("sac", "tqc", "crossq", "edac")  # algorithms with SAC's actor
LAYOUTS = {"ppo": separate_memories, "qr_dqn": quantiles_first, **dict.fromkeys(SQUASHED, separate_outputs)}
