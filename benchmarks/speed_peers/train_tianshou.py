"""Trains with tianshou. Needs the Python of the peer's venv.

Its DQN has no gradient clipping, and epsilon stays at its last value; both save it some work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import tianshou
import torch
from marks import Marks, answer, request
from tianshou.algorithm import DQN, PPO, SAC, TD3
from tianshou.algorithm.modelfree.ddpg import ContinuousDeterministicPolicy
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.modelfree.sac import AutoAlpha, SACPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.exploration import GaussianNoise
from tianshou.trainer import OffPolicyTrainerParams, OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorDeterministic, ContinuousActorProbabilistic, ContinuousCritic
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

Spaces = tuple[tuple[int, ...], gymnasium.Space[Any]]


def main() -> None:
    asked = request()
    torch.set_num_threads(1)
    torch.manual_seed(asked["seed"])
    np.random.seed(asked["seed"])
    options, marks = asked["options"], Marks(asked["warm_up"])
    make = [lambda: gymnasium.make(asked["env"], disable_env_checker=True)] * asked["num_envs"]
    envs = DummyVectorEnv(make)
    envs.seed(asked["seed"])
    env = make[0]()
    algorithm = ALGORITHMS[asked["algo"]](options, (env.observation_space.shape, env.action_space))
    size = options.get("buffer_size", asked["num_envs"] * options.get("num_steps", 0))
    collector = Collector(algorithm, envs, VectorReplayBuffer(size, len(make)), exploration_noise=True)
    collector.reset()
    if starts := options.get("learning_starts"):
        collector.collect(n_step=starts, random=True)
    parameters = rollouts if asked["algo"] == "ppo" else replay
    algorithm.run_training(parameters(asked, collector, lambda epoch, step: marks.mark(step + (starts or 0))))
    answer(marks, tianshou, gymnasium, np, torch)


def replay(asked: dict[str, Any], collector: Collector, mark: Callable[[int, int], None]) -> OffPolicyTrainerParams:
    options = asked["options"]
    steps = options.get("collect_steps", 1) * asked["num_envs"]
    return OffPolicyTrainerParams(
        training_collector=collector, max_epochs=1, epoch_num_steps=asked["steps"] - options["learning_starts"],
        collection_step_num_env_steps=steps, batch_size=options["batch_size"], verbose=False, show_progress=False,
        update_step_num_gradient_steps_per_sample=options.get("updates_per_collect", 1) / steps, training_fn=mark,
    )  # fmt: skip


def rollouts(asked: dict[str, Any], collector: Collector, mark: Callable[[int, int], None]) -> OnPolicyTrainerParams:
    options = asked["options"]
    return OnPolicyTrainerParams(
        training_collector=collector, max_epochs=1, epoch_num_steps=asked["steps"], batch_size=options["batch_size"],
        collection_step_num_env_steps=options["num_steps"] * asked["num_envs"], verbose=False, show_progress=False,
        update_step_num_repetitions=options["epochs"], training_fn=mark,
    )  # fmt: skip


def net(options: dict[str, Any], spaces: Spaces, **further: Any) -> Net:
    return Net(state_shape=spaces[0], hidden_sizes=options["hidden_sizes"], **further)


def critic(options: dict[str, Any], spaces: Spaces) -> ContinuousCritic:
    return ContinuousCritic(preprocess_net=net(options, spaces, action_shape=spaces[1].shape, concat=True, num_atoms=1))


def optimizer(options: dict[str, Any]) -> AdamOptimizerFactory:
    return AdamOptimizerFactory(lr=options["learning_rate"])


def sac(options: dict[str, Any], spaces: Spaces) -> SAC:
    actor = ContinuousActorProbabilistic(
        preprocess_net=net(options, spaces), action_shape=spaces[1].shape, unbounded=True, conditioned_sigma=True
    )
    alpha = AutoAlpha(-float(np.prod(spaces[1].shape)), 0.0, optimizer(options))
    return SAC(
        policy=SACPolicy(actor=actor, action_space=spaces[1]), policy_optim=optimizer(options),
        critic=critic(options, spaces), critic2=critic(options, spaces), critic_optim=optimizer(options),
        gamma=options["gamma"], alpha=alpha,
    )  # fmt: skip


def td3(options: dict[str, Any], spaces: Spaces) -> TD3:
    actor = ContinuousActorDeterministic(preprocess_net=net(options, spaces), action_shape=spaces[1].shape)
    noise = GaussianNoise(sigma=options["action_noise_scale"])
    return TD3(
        policy=ContinuousDeterministicPolicy(actor=actor, action_space=spaces[1], exploration_noise=noise),
        policy_optim=optimizer(options), critic=critic(options, spaces), critic2=critic(options, spaces),
        critic_optim=optimizer(options), gamma=options["gamma"],
    )  # fmt: skip


def dqn(options: dict[str, Any], spaces: Spaces) -> DQN:
    model = net(options, spaces, action_shape=spaces[1].n)
    policy = DiscreteQLearningPolicy(
        model=model, action_space=spaces[1], eps_training=options["epsilon_end"], eps_inference=0.0
    )
    return DQN(
        policy=policy, optim=optimizer(options), gamma=options["gamma"], target_update_freq=options["target_interval"],
        is_double=False, huber_loss_delta=1.0,
    )  # fmt: skip


def ppo(options: dict[str, Any], spaces: Spaces) -> PPO:
    def features() -> Net:
        return net(options, spaces, activation=torch.nn.Tanh)

    actor = DiscreteActor(preprocess_net=features(), action_shape=spaces[1].n, softmax_output=False)
    policy = DiscreteActorPolicy(actor=actor, action_space=spaces[1], dist_fn=logits)
    return PPO(
        policy=policy, critic=DiscreteCritic(preprocess_net=features()), optim=optimizer(options),
        eps_clip=options["clip_range"], vf_coef=options["value_weight"], ent_coef=options["entropy_weight"],
        max_grad_norm=options["max_grad_norm"], gae_lambda=options["gae_lambda"], gamma=options["gamma"],
    )  # fmt: skip


def logits(values: torch.Tensor) -> torch.distributions.Categorical:
    return torch.distributions.Categorical(logits=values)


ALGORITHMS: dict[str, Callable[[dict[str, Any], Spaces], Any]] = {"sac": sac, "td3": td3, "dqn": dqn, "ppo": ppo}


if __name__ == "__main__":
    main()
