"""Updates by CORL's classes on given batches and noise. Needs a Python with PyTorch, and a copy of CORL's source."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from corl_source import source
from peer_side import Noise, Parameters, Request, Snapshots, request

CONSTANT = 10**12  # steps of the cosine schedule of IQL's actor


def main() -> None:
    asked = request()
    module = source(asked.source, asked.algo)
    trainer, parameters = TRAINERS[asked.algo](module, asked)
    update = trainer.update if hasattr(trainer, "update") else trainer.train
    snapshots, numbers, noise = Snapshots(asked, parameters), asked.part("noise"), Noise()
    for number, batch in enumerate(asked.batches()):
        noise.fill(in_order(asked.algo, {name: each[number] for name, each in numbers.items()}))
        columns = [batch[name] for name in ("obs", "actions", "rewards", "next_obs", "dones")]
        update([column.view(len(column), -1) for column in columns])
        snapshots.take(number + 1)
    snapshots.save({"torch": torch.__version__})


def in_order(algo: str, numbers: dict[str, np.ndarray]) -> Iterable[np.ndarray]:
    """The noise in CORL's order; its samples are [rows, samples, action_dim]."""
    if algo == "edac":
        actions = numbers["policy_actions"]
        return [numbers.get("temperature_actions", actions), actions, numbers["next_actions"]]
    if algo != "cql":
        return numbers.values()
    names = ("policy_actions", "target_actions", "uniform_actions", "actions", "next_actions")
    return [each.swapaxes(0, 1) if each.ndim == 3 else each for each in (numbers[name] for name in names)]


def sizes(asked: Request) -> tuple[int, int]:
    columns = asked.part("columns")
    return columns["obs"].shape[1], columns["actions"].shape[1]


def adam(rate: float) -> Callable[..., torch.optim.Adam]:
    return lambda module, **options: torch.optim.Adam(module.parameters(), lr=rate, **options)


def td3_bc(module: Any, asked: Request) -> tuple[Any, Parameters]:
    c, dims = asked.options, sizes(asked)
    new, actor, critics = adam(c["learning_rate"]), module.Actor(*dims, 1.0), [module.Critic(*dims) for _ in range(2)]
    trainer = module.TD3_BC(
        1.0, actor, new(actor), critics[0], new(critics[0]), critics[1], new(critics[1]), discount=c["gamma"],
        tau=c["tau"], policy_noise=c["target_noise"], noise_clip=c["target_noise_clip"],
        policy_freq=c["policy_delay"], alpha=c["alpha"],
    )  # fmt: skip
    networks = {"model.actor": trainer.actor, "target.actor": trainer.actor_target}
    networks |= {f"model.critic.{number}": each for number, each in enumerate(critics)}
    targets = {"target.critic.0": trainer.critic_1_target, "target.critic.1": trainer.critic_2_target}
    return trainer, Parameters(networks | targets)


def awac(module: Any, asked: Request) -> tuple[Any, Parameters]:
    c, dims, width = asked.options, sizes(asked), asked.options["hidden_sizes"][0]
    new, actor = adam(c["learning_rate"]), module.Actor(*dims, width)
    critics = [module.Critic(*dims, width) for _ in range(2)]
    trainer = module.AdvantageWeightedActorCritic(
        actor, new(actor), critics[0], new(critics[0]), critics[1], new(critics[1]), gamma=c["gamma"], tau=c["tau"]
    )
    networks = {f"model.critic.{number}": each for number, each in enumerate(critics)}
    networks |= {"target.critic.0": trainer._target_critic_1, "target.critic.1": trainer._target_critic_2}
    return trainer, Parameters({**networks, "model.actor": actor}, {"model.actor.log_std": actor._log_std})


def edac(module: Any, asked: Request) -> tuple[Any, Parameters]:
    c, dims, width = asked.options, sizes(asked), asked.options["hidden_sizes"][0]
    new, actor = adam(c["learning_rate"]), module.Actor(*dims, width)
    critic = module.VectorizedCritic(*dims, width, c["num_critics"])
    rate = c["learning_rate"]
    trainer = module.EDAC(actor, new(actor), critic, new(critic), c["gamma"], c["tau"], c["eta"], rate)
    if "epsilon" in asked.peer_options:  # of log(1 - a^2 + 1e-6), the only use of `torch.log`
        shift, log = 1e-6 - asked.peer_options["epsilon"], torch.log
        torch.log = lambda tensor: log(tensor - shift)
    others = {"log_alpha": trainer.log_alpha}
    for name, ensemble in (("model", critic), ("target", trainer.target_critic)):
        others |= slices(f"{name}.critic", ensemble.critic[::2])
    networks = {"": actor.trunk, ".mean": actor.mu, ".log_std": actor.log_sigma}
    return trainer, Parameters({f"model.actor{name}": each for name, each in networks.items()}, others)


def slices(name: str, layers: Iterable[Any]) -> dict[str, torch.Tensor]:
    """Parameters of stacked critics, by critic and in the layout of `nn.Linear`."""
    found = {}
    for number, layer in enumerate(layers):
        for copy, (weight, bias) in enumerate(zip(layer.weight.data, layer.bias.data, strict=True)):
            found |= {f"{name}.{copy}.{number}.weight": weight.T, f"{name}.{copy}.{number}.bias": bias[0]}
    return found


def iql(module: Any, asked: Request) -> tuple[Any, Parameters]:
    c, dims = asked.options, sizes(asked)
    new, actor = adam(c["learning_rate"]), module.GaussianPolicy(*dims, 1.0)
    critics, value = module.TwinQ(*dims), module.ValueFunction(dims[0])
    trainer = module.ImplicitQLearning(
        1.0, actor, new(actor), critics, new(critics, eps=5e-9), value, new(value), iql_tau=c["expectile"],
        beta=c["beta"], max_steps=CONSTANT, discount=c["gamma"], tau=c["tau"],
    )  # fmt: skip
    target = trainer.q_target
    critics_by_name = {"model.critic.0": critics.q1, "model.critic.1": critics.q2}
    targets = {"target.critic.0": target.q1, "target.critic.1": target.q2}
    networks = {"model.actor": actor, "model.value": value, **critics_by_name, **targets}
    return trainer, Parameters(networks, {"model.actor.log_std": actor.log_std})


def cql(module: Any, asked: Request) -> tuple[Any, Parameters]:
    c, dims = asked.options, sizes(asked)
    new, slow = adam(c["learning_rate"]), adam(c["actor_learning_rate"])
    actor = module.TanhGaussianPolicy(*dims, 1.0, log_std_offset=c["log_std_offset"])
    critics = [module.FullyConnectedQFunction(*dims) for _ in range(2)]
    trainer = module.ContinuousCQL(
        critics[0], new(critics[0]), critics[1], new(critics[1]), actor, slow(actor), target_entropy=-float(dims[1]),
        discount=c["gamma"], policy_lr=c["actor_learning_rate"], qf_lr=c["learning_rate"],
        soft_target_update_rate=c["tau"], bc_steps=0, cql_n_actions=c["num_cql_samples"], cql_alpha=c["cql_alpha"],
    )  # fmt: skip
    networks = {f"model.critic.{number}": each for number, each in enumerate(critics)}
    networks |= {"target.critic.0": trainer.target_critic_1, "target.critic.1": trainer.target_critic_2}
    others = {"log_std_multiplier": actor.log_std_multiplier.constant, "log_std_offset": actor.log_std_offset.constant}
    scalars = {f"model.actor.{name}": each for name, each in others.items()}
    named = Parameters({**networks, "model.actor": actor}, {**scalars, "log_alpha": trainer.log_alpha.constant})
    return trainer, named


TRAINERS = {"awac": awac, "cql": cql, "edac": edac, "iql": iql, "td3_bc": td3_bc}


if __name__ == "__main__":
    main()
