"""Updates by CORL's ReBRAC on given batches and noise. Needs a Python with JAX, Flax, PyTorch and CORL's source."""

from __future__ import annotations

from functools import partial
from typing import Any

import flax
import flax.linen
import jax
import numpy as np
import optax
from corl_source import source
from flax.traverse_util import flatten_dict, unflatten_dict
from peer_side import Request, Snapshots, request

KINDS = {"kernel": "weight", "scale": "weight", "bias": "bias"}
EPSILON = 1e-5  # of layer norms


def main() -> None:
    asked = request()
    jax.config.update("jax_enable_x64", asked.bits == 64)
    flax.linen.LayerNorm = partial(flax.linen.LayerNorm, epsilon=EPSILON)
    trained = ReBRAC(source(asked.source, asked.algo), asked)
    snapshots, noise = Snapshots(asked, trained), asked.part("noise")["target_noise"]
    for number, batch in enumerate(asked.batches()):
        delay = asked.options["policy_delay"]
        trained.update({name: each.numpy() for name, each in batch.items()}, noise[number], (number + 1) % delay == 0)
        snapshots.take(number + 1)
    snapshots.save({module.__name__: module.__version__ for module in (jax, flax, optax)})


class NoMetrics(dict[str, Any]):
    def update(self, values: dict[str, Any]) -> dict[str, Any]:  # type: ignore[override]
        return {}


class ReBRAC:
    """Train states of the actor and the critics, with their parameters by the names of the request."""

    def __init__(self, module: Any, asked: Request) -> None:
        c, columns = asked.options, asked.part("columns")
        width, depth = c["hidden_sizes"][0], len(c["hidden_sizes"])
        key, obs, actions = jax.random.PRNGKey(0), columns["obs"][:1], columns["actions"][:1]
        actor = module.DetActor(actions.shape[1], width, layernorm=False, n_hiddens=depth)
        critic = module.EnsembleCritic(width, num_critics=2, layernorm=True, n_hiddens=depth)
        self.states = {
            "actor": new_state(module.ActorTrainState, actor, c["learning_rate"], key, obs),
            "critic": new_state(module.CriticTrainState, critic, c["learning_rate"], key, obs, actions),
        }
        coefficients = {name: c[name] for name in ("gamma", "tau", "actor_bc_coef", "critic_bc_coef")}
        smoothing = {"policy_noise": c["target_noise"], "noise_clip": c["target_noise_clip"]}
        full = partial(module.update_td3, normalize_q=True, **coefficients, **smoothing)
        critics = partial(module.update_td3_no_targets, **coefficients, **smoothing)
        self.steps = {True: jax.jit(partial(step, full, c["tau"])), False: jax.jit(partial(step, critics, None))}

    def update(self, batch: dict[str, np.ndarray], noise: np.ndarray, is_full: bool) -> None:
        names = {"obs": "states", "next_obs": "next_states"}
        batch = {names.get(name, name): each for name, each in batch.items()}
        self.states["actor"], self.states["critic"] = self.steps[is_full](*self.states.values(), batch, noise)

    def load(self, values: dict[str, np.ndarray]) -> None:
        for name, state in self.states.items():
            trees = {
                field: unflatten_dict({
                    path: loaded(values, shared_names(prefix, name, path, old))
                    for path, old in flatten_dict(getattr(state, field)).items()
                })
                for prefix, field in FIELDS.items()
            }  # fmt: skip
            self.states[name] = state.replace(**trees, opt_state=state.tx.init(trees["params"]))  # in their precision

    def values(self) -> dict[str, np.ndarray]:
        found: dict[str, np.ndarray] = {}
        for name, state in self.states.items():
            for prefix, field in FIELDS.items():
                for path, tensor in flatten_dict(getattr(state, field)).items():
                    names = shared_names(prefix, name, path, tensor)
                    copies = np.asarray(tensor) if name == "critic" else np.asarray(tensor)[None]
                    found |= {each: copy.T for each, copy in zip(names, copies, strict=True)}
        return found


FIELDS = {"model": "params", "target": "target_params"}


def new_state(kind: Any, network: Any, rate: float, *inputs: Any) -> Any:
    params = network.init(*inputs)
    return kind.create(apply_fn=network.apply, params=params, target_params=params, tx=optax.adam(learning_rate=rate))


def step(update: Any, tau: float | None, actor: Any, critic: Any, batch: Any, noise: Any) -> tuple[Any, Any]:
    """One update with this noise. With `tau`, the target actor moves towards the new actor."""
    jax.random.normal = lambda key, shape: noise.reshape(shape)
    _, new_actor, new_critic, _ = update(
        key=jax.random.PRNGKey(0), actor=actor, critic=critic, batch=batch, metrics=NoMetrics()
    )
    if tau is not None:
        moved = optax.incremental_update(new_actor.params, actor.target_params, tau)
        new_actor = new_actor.replace(target_params=moved)
    return new_actor, new_critic


def shared_names(prefix: str, network: str, path: tuple[str, ...], tensor: Any) -> list[str]:
    """Name of this parameter of the actor, or its names in each critic."""
    *_, layer, kind = path
    copies = [f".{copy}" for copy in range(len(tensor))] if network == "critic" else [""]
    return [f"{prefix}.{network}{copy}.{layer_number(network, layer)}.{KINDS[kind]}" for copy in copies]


def layer_number(network: str, layer: str) -> int:
    """Number among all layers, which are Dense_0, LayerNorm_0, Dense_1, ... in the critics."""
    kind, _, index = layer.partition("_")
    return int(index) if network == "actor" else 2 * int(index) + (kind == "LayerNorm")


def loaded(values: dict[str, np.ndarray], names: list[str]) -> np.ndarray:
    """Parameters with transposed weights; those of the critics are stacked."""
    arrays = [values[name].T for name in names]
    return np.stack(arrays) if ".critic." in names[0] else arrays[0]


if __name__ == "__main__":
    main()
