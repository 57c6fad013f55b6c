"""Dreamer (Hafner et al., 2020, arXiv:1912.01603; 2023, arXiv:2301.04104): actor-critic in a learned world model."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot

from rl_training.algorithms.core.config import Fraction, PrecisionConfig, Rate, SequenceConfig
from rl_training.algorithms.core.learner import Learner, frozen
from rl_training.algorithms.core.ops import lambda_returns, percentile
from rl_training.models.dreamer import SIZES, DreamerModel, ImaginedStep
from rl_training.models.rssm import Latent, LatentSequence, categorical_kl, entropy
from rl_training.models.two_hot import TwoHot
from rl_training.types import Action, Batch, Loss, Metrics, ParameterGroup

PERCENTILES, RETURN_RATE = (0.05, 0.95), 0.01  # return normalisation, and the rate of its moving average
BEHAVIOUR_ADAM: dict[str, Any] = {"eps": 1e-5, "max_grad_norm": 100.0}  # actor and critic in the 2023 release
RECIPES: dict[str, dict[str, Any]] = {
    "default": {},
    "2024": {"learning_rate": 4e-5, "actor_unimix": 0.0},
    "2023": {
        "optimizer": "adam", "learning_rate": 1e-4, "actor_learning_rate": 3e-5, "max_grad_norm": 1000.0,
        "dynamics_weight": 0.5, "replay_value_weight": 0.0, "bins": "symlog", "discounted_continue": False,
        "actor_scale": 1.0, "stored_latents": False,
    },
}  # fmt: skip


class DreamerConfig(SequenceConfig, PrecisionConfig):  # in this order, for the batch_size of the first
    size: Literal[
        "tiny", "nano", "size1m", "mini", "size12m", "size25m", "size50m", "size100m", "size200m",
        "xs", "s", "m", "l", "xl",
    ] = Field("size12m", description="network size, 0.4 to 166 million weights; xs to xl: 2023 release")  # fmt: skip
    recipe: Literal["default", "2023", "2024"] = Field("default", description="release whose defaults are used")
    architecture: Literal["2023", "2024"] = Field(
        "2024", description="release of the layers; 2023: layer norm, plain GRU, learned initial state"
    )
    learning_rate: PositiveFloat = Field(4e-5, description="if unset, by recipe, size, train_ratio: 7.05e-5 by default")
    actor_learning_rate: PositiveFloat | None = Field(
        None, description="learning rate of actor and critic; none: learning_rate"
    )
    hidden_sizes: tuple[PositiveInt, ...] = Field((), description="hidden layers of actor and critic; empty: by size")
    gamma: Fraction = Field(0.997, description="discount factor")
    tau: Rate = Field(0.02, description="Polyak coefficient of the target critic")
    horizon: PositiveInt = Field(15, description="steps of an imagined rollout")
    return_lambda: Fraction = Field(0.95, description="lambda of the lambda returns")
    actor_gradient: Literal["reinforce", "dynamics"] = Field(
        "reinforce", description="reinforce, or dynamics: backpropagation through the world model (Box only)"
    )
    entropy_weight: float = Field(3e-4, ge=0, description="weight of the entropy bonus")
    dynamics_weight: float = Field(1.0, ge=0, description="weight of the KL loss that trains the prior")
    representation_weight: float = Field(0.1, ge=0, description="weight of the KL loss that trains the posterior")
    free_nats: float = Field(1.0, ge=0, description="KL below which there is no gradient")
    replay_value_weight: float = Field(0.3, ge=0, description="weight of the critic loss on replayed states")
    actor_unimix: Fraction = Field(0.01, description="uniform share in a Discrete policy (unimix)")
    actor_scale: float = Field(0.01, ge=0, description="initial scale of the actor's last layer")
    bins: Literal["symexp", "symlog"] = Field(
        "symexp", description="two-hot bins: symexp spaced, or over symlog values"
    )
    discounted_continue: bool = Field(True, description="include gamma in the target of the continue predictor")
    hard_continue: bool = Field(False, description="imagined states continue if their probability is above 0.5")
    optimizer: Literal["laprop", "adam"] = Field(
        "laprop", description="laprop (with adaptive gradient clipping and warm-up) or adam"
    )
    warm_up: int = Field(1_000, ge=0, description="updates of learning rate warm-up with laprop")

    @model_validator(mode="before")
    @classmethod
    def _apply_recipe(cls, values: dict[str, Any]) -> dict[str, Any]:
        # YAML reads a year as a number.
        years: dict[str, str] = {name: str(values[name]) for name in ("recipe", "architecture") if name in values}
        chosen: dict[str, Any] = {**RECIPES.get(years.get("recipe", "default"), {}), **values, **years}
        defaults = {name: cls.model_fields[name].default for name in ("size", "train_ratio")}
        size, ratio = ({**defaults, **chosen}[name] for name in defaults)
        if "learning_rate" not in chosen and str(size) in SIZES and isinstance(ratio, int | float) and ratio > 0:
            chosen["learning_rate"] = learning_rate_for(SIZES[size].units, ratio)
        return chosen


def learning_rate_for(units: int, train_ratio: float) -> float:
    """units^-1.195 * train_ratio^-0.529: 4e-5 for 1024 units and a train ratio of 32."""
    return math.exp(-1.195 * math.log(units) - 0.529 * math.log(train_ratio))


class ImaginedRollout(NamedTuple):
    """Imagined states [horizon + 1, rows, ...]; there is one action fewer."""

    features: Tensor
    actions: Tensor
    weights: Tensor  # cumulative product of the discounts
    rewards: Tensor
    discounts: Tensor


class DreamerAlgorithm(Learner):
    name = "dreamer"
    lane = "sequence"
    config_type = DreamerConfig
    model_type = DreamerModel
    action_kinds = ("box", "discrete")
    takes_pixels = True
    targets = ("critic",)
    actor_parameters = ("model.actor.", "model.critic.")
    return_low: Tensor
    return_high: Tensor
    posterior_step: Callable[..., tuple[Latent, Tensor]] | None = None  # compiled, if set
    imagined_step: ImaginedStep | None = None  # compiled, if set

    def setup(self) -> None:
        self.register_buffer("return_low", torch.zeros(()))
        self.register_buffer("return_high", torch.zeros(()))
        if self.by_dynamics and self.model.discrete:
            raise ValueError("actor_gradient dynamics needs a Box action space, got Discrete; use reinforce")

    @property
    def by_dynamics(self) -> bool:
        return self.config.actor_gradient == "dynamics"

    def loss(self, batch: Batch) -> Loss:
        with self.precision(batch):
            states = self.observe(batch)
            world = self.world_loss(states, batch)
        with self.precision(batch):
            imagined = self.imagine(states.latent.flat(), 1 - batch["dones"].flatten())
        with self.precision(batch):
            behaviour, returns = self.behaviour_loss(imagined)
            replayed = self.replay_value_loss(states.latent.features, returns[0].view_as(batch["rewards"]), batch)
        loss = world.joined(behaviour).plus({"dreamer_replay_value_loss": self.config.replay_value_weight * replayed})
        if not self.config.stored_latents:
            return loss
        latents = {"deter": states.latent.deter.detach().half(), "stoch": states.latent.class_indices()}
        return loss._replace(rows=latents)

    def compiled(self, loss: Callable[..., Loss]) -> Callable[..., Loss]:
        """Compiles the parts of the loss and single steps of its loops; a compiled loop would be unrolled."""
        compile = partial(torch.compile, fullgraph=True, dynamic=False)
        self.posterior_step = compile(self.model.rssm.step_with_weights)
        self.imagined_step = compile(self.model.step_with_weights if self.by_dynamics else self.model.imagined_step)
        for part in ("embed", "world_loss", "evaluate", "behaviour_loss", "replay_value_loss"):
            setattr(self, part, compile(getattr(self, part)))
        return loss

    def observe(self, batch: Batch) -> LatentSequence:
        """Posterior and prior states of the batch's windows."""
        rssm, rewards = self.model.rssm, batch["rewards"]
        noise = rssm.noise(*rewards.shape, like=rewards)
        zeros = self.initial_memory(len(rewards))
        start = self.restore_latent(*(batch.get(f"start_{name}", zeros[name]) for name in ("deter", "stoch")))
        step = partial(self.posterior_step, rssm.detached_weights()) if self.posterior_step else None
        previous = (batch["previous_actions"], batch["is_first"])
        return self.model.observe(self.embed(batch["obs"]), *previous, start, noise, step)

    def embed(self, obs: Tensor) -> Tensor:
        return self.model.embed(obs)

    def world_loss(self, states: LatentSequence, batch: Batch) -> Loss:
        """Reconstruction, reward and continue losses, plus the KL between posterior and prior.

        - reconstruction: |decoded - observation|^2; reward: two-hot cross-entropy; continue: binary cross-entropy
        - dynamics: dynamics_weight * max(KL(detach(posterior) || prior), free_nats)
        - representation: representation_weight * max(KL(posterior || detach(prior)), free_nats)
        """
        c, model, (latent, posterior, prior) = self.config, self.model, states
        errors = model.decode(latent).flatten(2) - model.scaled(batch["obs"]).flatten(2)
        features, continues = latent.features, (1 - batch["dones"]) * (c.gamma if c.discounted_continue else 1.0)
        continue_logits = model.continuation(features).squeeze(-1).float()
        dynamics, representation = categorical_kl(posterior.detach(), prior), categorical_kl(posterior, prior.detach())
        entropies = {"dreamer_posterior_entropy": entropy(posterior), "dreamer_prior_entropy": entropy(prior)}
        return Loss(
            terms={
                "dreamer_reconstruction_loss": errors.square().sum(-1).mean(),
                "dreamer_reward_loss": model.reward(features).loss(batch["rewards"]).mean(),
                "dreamer_continue_loss": binary_cross_entropy_with_logits(continue_logits, continues),
                "dreamer_dynamics_loss": c.dynamics_weight * dynamics.clamp(min=c.free_nats).mean(),
                "dreamer_representation_loss": c.representation_weight * representation.clamp(min=c.free_nats).mean(),
            },
            metrics={"dreamer_divergence": dynamics.mean(), **entropies},
        )

    def imagine(self, start: Latent, continues: Tensor) -> ImaginedRollout:
        """Imagines from states [rows, ...]; `continues` is 0 for terminal ones.

        With `actor_gradient: dynamics` the result has gradients for the actor, through actions and later states.
        """
        with nullcontext() if self.by_dynamics else torch.no_grad():
            step: Any = self.imagined_step
            if self.by_dynamics:
                step = partial(step or self.model.step_with_weights, self.model.detached_world())
            latents, actions = self.model.imagine(start, self.config.horizon, step)
            return self.evaluate(latents, actions, continues)

    def evaluate(self, latents: Latent, actions: Tensor, continues: Tensor) -> ImaginedRollout:
        """Predicts the rewards and discounts of imagined states."""
        c, features = self.config, latents.features
        predicted = frozen(self.model.continuation)(features[1:]).squeeze(-1).float().sigmoid()
        if c.hard_continue:
            predicted = c.gamma * (predicted > 0.5)
        elif not c.discounted_continue:
            predicted = c.gamma * predicted
        discounts = torch.cat([continues[None], predicted])
        rewards = frozen(self.model.reward)(features).mean()
        return ImaginedRollout(features, actions, discounts.detach().cumprod(0), rewards, discounts)

    def behaviour_loss(self, imagined: ImaginedRollout) -> tuple[Loss, Tensor]:
        """Actor and critic losses on imagined states, and the lambda returns R [horizon, rows].

        - actor by reinforce: -mean of w * (log pi(a|s) * detach(R - v) / scale + entropy_weight * entropy)
        - actor by dynamics: -mean of w * ((R - v) / scale + entropy_weight * entropy)
        - critic: mean of w * (two-hot cross-entropy to R and to the target critic)
        """
        c, weights, features = self.config, imagined.weights[:-1], imagined.features[:-1].detach()
        predictions: TwoHot = self.model.critic(imagined.features.detach())
        values = (
            frozen(self.model.critic)(imagined.features).mean() if self.by_dynamics else predictions.mean().detach()
        )
        returns = lambda_returns(imagined.rewards, imagined.discounts, values, torch.full_like(values, c.return_lambda))
        scale, percentiles = self.return_scale(returns.detach())
        advantages = (returns - values[:-1]) / scale
        policy = self.model.actor(features)
        entropies = policy.entropy()
        objective = advantages if self.by_dynamics else policy.log_prob(imagined.actions) * advantages
        gains = objective + c.entropy_weight * entropies
        errors = self.critic_errors(predictions._replace(logits=predictions.logits[:-1]), features, returns)
        terms = {"dreamer_actor_loss": -(weights * gains).mean(), "dreamer_critic_loss": (weights * errors).mean()}
        metrics: Metrics = {
            "dreamer_policy_entropy": entropies.mean(),
            "dreamer_return_scale": scale,
            "dreamer_imagined_reward": imagined.rewards[1:].mean(),
            "dreamer_imagined_value": values.mean(),
            "dreamer_imagined_discount": imagined.discounts[1:].mean(),
        }
        return Loss(terms, metrics, buffers=percentiles), returns.detach()

    def return_scale(self, returns: Tensor) -> tuple[Tensor, Metrics]:
        """max(1, moving average of the 95th minus the 5th percentile of returns), and both new averages."""
        ordered = returns.flatten().sort().values
        low = self.return_low.lerp(percentile(ordered, PERCENTILES[0]), RETURN_RATE)
        high = self.return_high.lerp(percentile(ordered, PERCENTILES[1]), RETURN_RATE)
        return (high - low).clamp(min=1.0), {"return_low": low, "return_high": high}

    def critic_errors(self, predictions: TwoHot, features: Tensor, returns: Tensor) -> Tensor:
        """Cross-entropy to the returns, plus cross-entropy to the target critic as a regulariser."""
        with torch.no_grad():
            target = self.target["critic"](features).mean()
        return predictions.loss(returns) + predictions.loss(target)

    def replay_value_loss(self, features: Tensor, imagined: Tensor, batch: Batch) -> Tensor:
        """Critic loss on replayed states [batch, time, ...]; their lambda returns bootstrap from `imagined` returns."""
        continues, c = 1 - batch["is_last"], self.config
        columns = (batch["rewards"], c.gamma * (1 - batch["dones"]), imagined, c.return_lambda * continues)
        returns = lambda_returns(*(column.mT for column in columns)).mT
        features = features[:, :-1]
        return (continues[:, :-1] * self.critic_errors(self.model.critic(features), features, returns)).mean()

    def parameter_groups(self) -> list[ParameterGroup]:
        c, groups = self.config, super().parameter_groups()
        if c.optimizer == "adam":
            return [group._replace(**BEHAVIOUR_ADAM) if group.names else group for group in groups]
        options = {"kind": "laprop", "eps": 1e-20, "max_grad_ratio": 0.3, "warm_up": c.warm_up}
        return [group._replace(**options) for group in groups]

    def initial_memory(self, rows: int) -> Batch:
        model, size, device = self.model, self.model.size, self.return_low.device
        shape, dtype = ((rows,), torch.int64) if model.discrete else ((rows, model.action_dim), torch.float32)
        return {
            "deter": torch.zeros(rows, size.deter, device=device),
            "stoch": torch.zeros(rows, size.latents, device=device, dtype=torch.uint8),
            "action": torch.zeros(shape, device=device, dtype=dtype),
            "is_first": torch.ones(rows, device=device),
        }

    @torch.no_grad()
    def act(
        self, obs: Tensor, memory: Any = None, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Action:
        """`memory` is that of the previous step, with `is_first` set at the first step of an episode."""
        # Latents are sampled as in training. Only a deterministic action without a generator uses the most likely ones.
        memory = self.initial_memory(len(obs)) if memory is None else memory
        noise = None
        if generator is not None or not deterministic:
            noise = self.model.rssm.noise(len(obs), 1, like=obs, generator=generator)
        start = self.restore_latent(memory["deter"], memory["stoch"])
        previous = (memory[name].unsqueeze(1) for name in ("action", "is_first"))
        latent = self.model.observe(self.model.embed(obs.unsqueeze(1)), *previous, start, noise).latent.flat()
        policy = self.model.actor(latent.features)
        actions = policy.mode() if deterministic else policy.sample(generator)
        actions = actions if self.model.discrete else actions.clamp(-1, 1)
        state = {"deter": latent.deter, "stoch": latent.class_indices(), "action": actions}
        return Action(actions, {**state, "is_first": torch.zeros_like(memory["is_first"])})

    def restore_latent(self, deter: Tensor, stoch: Tensor) -> Latent:
        """Returns the state with these class indices `stoch`."""
        return Latent(deter.float(), one_hot(stoch.long(), self.model.size.classes).float())
