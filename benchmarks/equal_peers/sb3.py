"""Updates by stable-baselines3 and sb3-contrib on given batches and noise. Needs the Python of the peer's venv."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import sb3_contrib
import stable_baselines3
import torch
from peer_side import Noise, Parameters, Request, Snapshots, request
from sb3_contrib.common.torch_layers import BatchRenorm
from sb3_rollouts import lstms, rollout_updates
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.type_aliases import ReplayBufferSamples

CLASSES = {"qr_dqn": "QRDQN", "tqc": "TQC", "crossq": "CrossQ"}  # of sb3-contrib
NAMES = {
    "target_noise": "target_policy_noise", "target_interval": "target_update_interval", "num_steps": "n_steps",
    "epochs": "n_epochs", "entropy_weight": "ent_coef", "value_weight": "vf_coef",
}  # fmt: skip
SAC_NOISE = ["policy_actions", "next_actions"]
ORDER_OF_NOISE = {
    "td3": ["target_noise"], "sac": SAC_NOISE, "tqc": SAC_NOISE, "crossq": ["next_actions", "policy_actions"],
}  # fmt: skip


def main() -> None:
    asked = request()
    model = new_model(asked)
    snapshots = Snapshots(asked, parameters(model, asked.algo))
    for update in (rollout_updates if asked.algo == "ppo" else replay_updates)(model, asked):
        snapshots.take(update)
    modules = (library(asked)[0], torch)
    snapshots.save({module.__name__: module.__version__ for module in modules})


class NoEnv(gym.Env[Any, Any]):
    """Only spaces: no step is taken."""

    def __init__(self, asked: Request) -> None:
        columns = asked.part("columns")
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, columns["obs"].shape[1:])
        if asked.discrete:
            self.action_space = gym.spaces.Discrete(int(columns["actions"].max()) + 1)
        else:
            self.action_space = gym.spaces.Box(-1.0, 1.0, columns["actions"].shape[1:])


def new_model(asked: Request) -> Any:
    options = {NAMES.get(name, name): value for name, value in asked.options.items()}
    policy = {"net_arch": options.pop("hidden_sizes")}
    if "critic_hidden_sizes" in options:
        policy["net_arch"] = {"pi": policy["net_arch"], "qf": options.pop("critic_hidden_sizes")}
    for name, theirs in (("num_quantiles", "n_quantiles"), ("num_critics", "n_critics")):
        if name in options:
            policy[theirs] = options.pop(name)
    options.pop("adam_eps", None)  # the default of QRDQN
    kind = "MlpPolicy"
    if "network" in options:
        kind, policy["lstm_hidden_size"] = "MlpLstmPolicy", options.pop("network")["memory_size"]
        del options["sequence_length"]  # a batch is one sequence
    module, name = library(asked)
    model = getattr(module, name)(kind, NoEnv(asked), device="cpu", policy_kwargs=policy, **options)
    model.set_logger(Logger(None, []))
    if asked.algo == "crossq":
        torch.Tensor.var = lambda tensor, dim: torch.var(tensor, dim, correction=0)
        for layer in (each for each in model.policy.modules() if isinstance(each, BatchRenorm)):
            layer.steps.fill_(asked.peer_options.get("steps", 0))
        if asked.peer_options.get("epsilon_of_paper"):
            BatchRenorm.forward = forward_of_paper
    if "epsilon" in asked.peer_options:
        model.actor.action_dist.epsilon = asked.peer_options["epsilon"]
    return model


def forward_of_paper(layer: Any, x: torch.Tensor) -> torch.Tensor:
    """Batch renormalisation by r (x - mean) / sqrt(var + eps) + d, where sb3-contrib has sqrt(var / r^2 + eps)."""
    running_std = (layer.ra_var + layer.eps).sqrt()
    if not layer.training:
        return layer.scale * (x - layer.ra_mean) / running_std + layer.bias
    mean, var = x.mean(dim=0), x.var(dim=0)
    std = (var + layer.eps).sqrt()
    r = (std / running_std).detach().clamp(1 / layer.rmax, layer.rmax)
    d = ((mean - layer.ra_mean) / running_std).detach().clamp(-layer.dmax, layer.dmax)
    layer.ra_mean += layer.momentum * (mean.detach() - layer.ra_mean)
    layer.ra_var += layer.momentum * (var.detach() - layer.ra_var)
    return layer.scale * (r * (x - mean) / std + d) + layer.bias


def library(asked: Request) -> tuple[Any, str]:
    """Module and name of the algorithm's class."""
    name = asked.peer_options.get("class") or CLASSES.get(asked.algo)
    return (sb3_contrib, name) if name else (stable_baselines3, asked.algo.upper())


class OneBatch:
    """A replay buffer or rollout buffer that returns the given batch."""

    def __init__(self, batch: dict[str, torch.Tensor]) -> None:
        columns = {name: batch[name].view(len(batch[name]), -1) for name in ("actions", "dones", "rewards")}
        self.batch = ReplayBufferSamples(
            batch["obs"], columns["actions"], batch["next_obs"], *list(columns.values())[1:]
        )

    def sample(self, batch_size: int, env: Any = None) -> ReplayBufferSamples:
        return self.batch


def parameters(model: Any, algo: str) -> Parameters:
    if algo in ("dqn", "qr_dqn"):
        online, target = (
            (model.q_net, model.q_net_target) if algo == "dqn" else (model.quantile_net, model.quantile_net_target)
        )
        return Parameters({"model.q": online, "target.q": target})
    if algo == "ppo":
        policy, layers = model.policy, model.policy.mlp_extractor
        networks = {
            "model.actor": [layers.policy_net, policy.action_net],
            "model.value": [layers.value_net, policy.value_net],
        }
        log_std = {"model.actor.log_std": policy.log_std} if hasattr(policy, "log_std") else {}
        return Parameters(networks, {**log_std, **lstms(policy)})
    networks = {f"model.critic.{number}": each for number, each in enumerate(model.critic.q_networks)}
    if algo != "crossq":  # has no target networks
        networks |= {f"target.critic.{number}": each for number, each in enumerate(model.critic_target.q_networks)}
    if algo == "td3":
        return Parameters({**networks, "model.actor": model.actor, "target.actor": model.actor_target})
    actor = {"": model.actor.latent_pi, ".mean": model.actor.mu, ".log_std": model.actor.log_std}
    networks |= {f"model.actor{name}": each for name, each in actor.items()}
    kind = RenormParameters if algo == "crossq" else Parameters
    return kind(networks, {"log_alpha": model.log_ent_coef})


class RenormParameters(Parameters):
    """Parameters of layers and of batch renormalisation, with its running statistics."""

    layers = (torch.nn.Linear, BatchRenorm)

    def tensors_of(self, layer: Any) -> dict[str, torch.Tensor]:
        if isinstance(layer, BatchRenorm):
            return {"weight": layer.scale, "bias": layer.bias, "mean": layer.ra_mean, "var": layer.ra_var}
        return super().tensors_of(layer)


def replay_updates(model: Any, asked: Request) -> Iterator[int]:
    names, numbers, source = ORDER_OF_NOISE.get(asked.algo, []), asked.part("noise"), Noise()
    every = asked.options.get("policy_delay", 1) if "policy_actions" in names else 1
    for update, batch in enumerate(asked.batches()):
        is_delayed = (update + 1) % every > 0
        source.fill(numbers[name][update] for name in names if not (name == "policy_actions" and is_delayed))
        model.replay_buffer = OneBatch(batch)
        model.train(gradient_steps=1, batch_size=len(batch["rewards"]))
        if "target_interval" in asked.options:
            model._on_step()  # counts, and copies the target network
        yield update + 1


if __name__ == "__main__":
    main()
