"""Dreamer (Hafner et al., 2020, 2023): a world model fitted to sequences, in which an actor and a critic learn."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot

from rl_training.algorithms.core.config import AlgorithmConfig, Fraction, Rate, SequenceConfig
from rl_training.algorithms.core.learner import Learner, actor_apart
from rl_training.models.dreamer import SIZES, DreamerModel, DreamtStep
from rl_training.models.rssm import Beliefs, Latent, divergence
from rl_training.models.two_hot import TwoHot
from rl_training.types import Action, Batch, Loss, Metrics, ParameterGroup

PERCENTILES, RETURN_RATE = (0.05, 0.95), 0.01  # of returns, whose range scales the advantages, and how fast it follows
BEHAVIOUR_ADAM: dict[str, Any] = {"eps": 1e-5, "max_grad_norm": 100.0}  # of actor and critic, as in the release of 2023
RECIPES: dict[str, dict[str, Any]] = {
    "default": {},
    "2024": {"learning_rate": 4e-5, "actor_unimix": 0.0},
    "2023": {
        "optimizer": "adam", "learning_rate": 1e-4, "actor_learning_rate": 3e-5, "max_grad_norm": 1000.0,
        "dynamics_weight": 0.5, "replay_value_weight": 0.0, "bins": "symlog", "discounted_continue": False,
        "actor_scale": 1.0, "stored_latents": False,
    },
}  # fmt: skip


class DreamerConfig(SequenceConfig):
    size: Literal[
        "tiny", "nano", "size1m", "mini", "size12m", "size25m", "size50m", "size100m", "size200m",
        "xs", "s", "m", "l", "xl",
    ] = Field("size12m", description="of the networks, 0.4 to 166 million weights; xs to xl as in 2023")  # fmt: skip
    recipe: Literal["default", "2023", "2024"] = Field("default", description="whose values options have if not given")
    learning_rate: PositiveFloat = Field(4e-5, description="step size; if not given, by size and train ratio")
    actor_learning_rate: PositiveFloat | None = Field(None, description="the actor's and critic's; none: the same")
    hidden_sizes: tuple[PositiveInt, ...] = Field((), description="of actor and critic; none: those of the size")
    gamma: Fraction = Field(0.997, description="discount of future rewards")
    tau: Rate = Field(0.02, description="share of the way the slow critic moves at each update")
    horizon: PositiveInt = Field(15, description="steps of an imagined trajectory")
    return_lambda: Fraction = Field(0.95, description="trace decay of the returns")
    entropy_weight: float = Field(3e-4, ge=0, description="weight of the entropy bonus")
    dynamics_weight: float = Field(1.0, ge=0, description="weight of the prior's divergence from the posterior")
    representation_weight: float = Field(0.1, ge=0, description="weight of the posterior's divergence from the prior")
    free_nats: float = Field(1.0, ge=0, description="divergence below which neither is moved")
    replay_value_weight: float = Field(0.3, ge=0, description="weight of the critic's loss on what was lived")
    actor_unimix: Fraction = Field(0.01, description="share of even chances in a Discrete policy")
    actor_scale: float = Field(0.01, ge=0, description="of the actor's last layer in the beginning")
    bins: Literal["symexp", "symlog"] = Field("symexp", description="of rewards and values: their own, or of symlog")
    discounted_continue: bool = Field(True, description="the discount is part of what the continuation predicts")
    optimizer: Literal["laprop", "adam"] = Field("laprop", description="laprop clips by the weights, and warms up")
    warm_up: int = Field(1_000, ge=0, description="updates over which laprop's step size rises")
    precision: Literal["float32", "bfloat16"] = Field("float32", description="of matrix products in the loss")

    @model_validator(mode="before")
    @classmethod
    def _by_recipe(cls, values: dict[str, Any]) -> dict[str, Any]:
        recipe = str(values.get("recipe", "default"))  # a year is a number in yaml
        chosen = {**RECIPES.get(recipe, {}), **values, "recipe": recipe}
        defaults = {name: cls.model_fields[name].default for name in ("size", "train_ratio")}
        size, ratio = ({**defaults, **chosen}[name] for name in defaults)
        if "learning_rate" not in chosen and str(size) in SIZES and isinstance(ratio, int | float) and ratio > 0:
            chosen["learning_rate"] = learning_rate_for(SIZES[size].units, ratio)
        return chosen


def learning_rate_for(units: int, train_ratio: float) -> float:
    """Smaller where networks are wide or steps are replayed often; 4e-5 at 1024 units and a ratio of 32."""
    return math.exp(-1.195 * math.log(units) - 0.529 * math.log(train_ratio))


def lambda_returns(rewards: Tensor, discounts: Tensor, values: Tensor, traces: Tensor) -> Tensor:
    """Returns of states 0 to n - 1 from the rewards, discounts, values and traces [n + 1, ...] of states 0 to n.

    Each is what arriving at the next state pays and is worth: its value, or by the trace what came of it.
    """
    returns = [values[-1]]
    bases = rewards + discounts * (1 - traces) * values
    carries = discounts * traces
    for t in range(len(rewards) - 1, 0, -1):
        returns.append(bases[t] + carries[t] * returns[-1])
    return torch.stack(returns[:0:-1])


def percentile(ordered: Tensor, share: float) -> Tensor:
    """Of numbers in order, between the two beside it."""
    place = share * (len(ordered) - 1)
    low = int(place)
    return ordered[low].lerp(ordered[min(low + 1, len(ordered) - 1)], place - low)


class Dream(NamedTuple):
    """What the actor lived in the world model, [horizon + 1, rows, ...]; actions and returns are one fewer."""

    features: Tensor
    actions: Tensor
    weights: Tensor  # the chance that an imagined state is reached at all, discounted
    rewards: Tensor
    discounts: Tensor


class DreamerAlgorithm(Learner):
    name = "dreamer"
    lane = "sequence"
    config_type = DreamerConfig
    model_type = DreamerModel
    action_kinds = ("box", "discrete")
    takes_pixels = True
    takes_dict = True
    targets = ("critic",)
    return_low: Tensor
    return_high: Tensor
    seen_step: Callable[..., tuple[Latent, Tensor]] | None = None
    dreamt_step: DreamtStep | None = None

    def __init__(self, model: nn.Module, config: AlgorithmConfig | None = None, **options: Any) -> None:
        super().__init__(model, config, **options)
        self.register_buffer("return_low", torch.zeros(()))
        self.register_buffer("return_high", torch.zeros(()))

    def loss(self, batch: Batch) -> Loss:
        with self.precision(batch):
            beliefs = self.observe(batch)
            world = self.world_loss(beliefs, batch)
        with self.precision(batch):
            dream = self.imagine(beliefs.latent.flat(), 1 - batch["dones"].flatten())
        with self.precision(batch):
            behaviour, returns = self.behaviour_loss(dream)
            lived = self.replay_value_loss(beliefs.latent.features, returns[0].view_as(batch["rewards"]), batch)
        terms = {**behaviour.terms, "dreamer_replay_value_loss": self.config.replay_value_weight * lived}
        kept = {"deter": beliefs.latent.deter.detach().half(), "stoch": classes_of(beliefs.latent)}
        rows = kept if self.config.stored_latents else {}
        return world.plus(terms, behaviour.metrics)._replace(buffers=behaviour.buffers, rows=rows)

    def compiled(self, loss: Callable[..., Loss]) -> Callable[..., Loss]:
        """In parts, and of its loops the steps: a loop would be unrolled, and take minutes. Acting stays as it is."""
        compile = partial(torch.compile, fullgraph=True, dynamic=False)
        self.seen_step, self.dreamt_step = compile(self.model.rssm.held_step), compile(self.model.dreamt_step)
        for part in ("embed", "world_loss", "judge", "behaviour_loss", "replay_value_loss"):
            setattr(self, part, compile(getattr(self, part)))
        return loss

    def precision(self, batch: Batch) -> torch.autocast:
        """For a part of the loss alone: weights that are cast where no gradients are kept would have none after it."""
        low = self.config.precision == "bfloat16"
        return torch.autocast(batch["rewards"].device.type, torch.bfloat16, enabled=low)

    def observe(self, batch: Batch) -> Beliefs:
        rssm, rewards = self.model.rssm, batch["rewards"]
        noise = rssm.noise(*rewards.shape, like=rewards)
        blank = self.initial_memory(len(rewards))  # of windows that begin with `is_first`, where nothing of it is left
        start = self.restored(*(batch.get(f"start_{name}", blank[name]) for name in ("deter", "stoch")))
        step = partial(self.seen_step, rssm.held()) if self.seen_step else None
        before = (batch["previous_actions"], batch["is_first"])
        return self.model.observe(self.embed(batch["obs"]), *before, start, noise, step)

    def embed(self, obs: Tensor) -> Tensor:
        return self.model.embed(obs)

    def world_loss(self, beliefs: Beliefs, batch: Batch) -> Loss:
        """Of what was seen, paid and ended; and the divergence of what was believed before and after seeing."""
        c, model, (latent, posterior, prior) = self.config, self.model, beliefs
        errors = model.decode(latent).flatten(2) - model.scaled(batch["obs"]).flatten(2)
        features, going = latent.features, (1 - batch["dones"]) * (c.gamma if c.discounted_continue else 1.0)
        goes_on = model.continuation(features).squeeze(-1).float()
        dynamics, representation = divergence(posterior.detach(), prior), divergence(posterior, prior.detach())
        return Loss(
            terms={
                "dreamer_reconstruction_loss": errors.square().sum(-1).mean(),
                "dreamer_reward_loss": model.reward(features).loss(batch["rewards"]).mean(),
                "dreamer_continue_loss": binary_cross_entropy_with_logits(goes_on, going),
                "dreamer_dynamics_loss": c.dynamics_weight * dynamics.clamp(min=c.free_nats).mean(),
                "dreamer_representation_loss": c.representation_weight * representation.clamp(min=c.free_nats).mean(),
            },
            metrics={
                "dreamer_divergence": dynamics.mean(),
                "dreamer_posterior_entropy": entropy(posterior),
                "dreamer_prior_entropy": entropy(prior),
            },
        )

    @torch.no_grad()
    def imagine(self, start: Latent, going: Tensor) -> Dream:
        """From states [rows, ...], of which it is known whether the episode goes on."""
        latents, actions = self.model.imagine(start, self.config.horizon, self.dreamt_step)
        return self.judge(latents, actions, going)

    def judge(self, latents: Latent, actions: Tensor, going: Tensor) -> Dream:
        """What imagined states pay, and how likely they are to be reached."""
        c, features = self.config, latents.features
        goes_on = self.model.continuation(features[1:]).squeeze(-1).float().sigmoid()
        discounts = torch.cat([going[None], goes_on if c.discounted_continue else c.gamma * goes_on])
        return Dream(features, actions, discounts.cumprod(0), self.model.reward(features).mean(), discounts)

    def behaviour_loss(self, dream: Dream) -> tuple[Loss, Tensor]:
        """The actor's by REINFORCE and the critic's, on imagined states; and the returns [horizon, rows]."""
        c, weights, seen = self.config, dream.weights[:-1], dream.features[:-1]
        guesses: TwoHot = self.model.critic(dream.features)
        with torch.no_grad():
            values = guesses.mean()
            traces = torch.full_like(values, c.return_lambda)
            returns = lambda_returns(dream.rewards, dream.discounts, values, traces)
            scale, ends = self.return_scale(returns)
            advantages = (returns - values[:-1]) / scale
        policy = self.model.actor(seen)
        spread = policy.entropy()
        gains = policy.log_prob(dream.actions) * advantages + c.entropy_weight * spread
        errors = self.critic_errors(guesses._replace(logits=guesses.logits[:-1]), seen, returns)
        terms = {"dreamer_actor_loss": -(weights * gains).mean(), "dreamer_critic_loss": (weights * errors).mean()}
        metrics: Metrics = {
            "dreamer_policy_entropy": spread.mean(),
            "dreamer_return_scale": scale,
            "dreamer_imagined_reward": dream.rewards[1:].mean(),
            "dreamer_imagined_value": values.mean(),
            "dreamer_imagined_discount": dream.discounts[1:].mean(),
        }
        return Loss(terms, metrics, buffers=ends), returns

    def return_scale(self, returns: Tensor) -> tuple[Tensor, Metrics]:
        """The range of most returns, slowly followed and at least 1; and its new ends."""
        ordered = returns.flatten().sort().values
        low = self.return_low.lerp(percentile(ordered, PERCENTILES[0]), RETURN_RATE)
        high = self.return_high.lerp(percentile(ordered, PERCENTILES[1]), RETURN_RATE)
        return (high - low).clamp(min=1.0), {"return_low": low, "return_high": high}

    def critic_errors(self, guesses: TwoHot, features: Tensor, returns: Tensor) -> Tensor:
        """To the returns, and to what the slow critic says, which keeps the critic from running off."""
        with torch.no_grad():
            slow = self.target["critic"](features).mean()
        return guesses.loss(returns) + guesses.loss(slow)

    def replay_value_loss(self, features: Tensor, ahead: Tensor, batch: Batch) -> Tensor:
        """Of states that were lived [batch, time, ...] by rewards that were paid; `ahead` is their imagined return."""
        going = 1 - batch["is_last"]
        columns = (batch["rewards"], self.config.gamma * (1 - batch["dones"]), ahead, self.config.return_lambda * going)
        returns = lambda_returns(*(column.mT for column in columns)).mT
        seen = features[:, :-1]
        return (going[:, :-1] * self.critic_errors(self.model.critic(seen), seen, returns)).mean()

    def parameter_groups(self) -> list[ParameterGroup]:
        c, groups = self.config, actor_apart(self.config, "model.critic.")
        if c.optimizer == "adam":
            return [group._replace(**BEHAVIOUR_ADAM) if group.names else group for group in groups]
        options = {"kind": "laprop", "eps": 1e-20, "max_grad_ratio": 0.3, "warm_up": c.warm_up}
        return [group._replace(**options) for group in groups]

    def initial_memory(self, rows: int) -> Batch:
        """What `act` remembers of so many environments before anything was seen."""
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
        """`memory` is that of the step before, with `is_first` set where an episode begins.

        What is believed is drawn, as in training, unless neither it nor the action may be: a deterministic action
        without a generator.
        """
        memory = self.initial_memory(len(obs)) if memory is None else memory
        still = deterministic and generator is None
        noise = None if still else self.model.rssm.noise(len(obs), 1, like=obs, generator=generator)
        start = self.restored(memory["deter"], memory["stoch"])
        before = (memory[name].unsqueeze(1) for name in ("action", "is_first"))
        latent = self.model.observe(self.model.embed(obs.unsqueeze(1)), *before, start, noise).latent.flat()
        policy = self.model.actor(latent.features)
        actions = policy.mode() if deterministic else policy.sample(generator)
        actions = actions if self.model.discrete else actions.clamp(-1, 1)
        kept = {"deter": latent.deter, "stoch": classes_of(latent), "action": actions}
        return Action(actions, {**kept, "is_first": torch.zeros_like(memory["is_first"])})

    def restored(self, deter: Tensor, stoch: Tensor) -> Latent:
        """A state from what is kept of it: the classes of its latents by number."""
        return Latent(deter.float(), one_hot(stoch.long(), self.model.size.classes).float())


def entropy(log_probs: Tensor) -> Tensor:
    """Of the latents of a state together, on average."""
    return -(log_probs.exp() * log_probs).sum((-2, -1)).mean()


def classes_of(latent: Latent) -> Tensor:
    """Which class each latent has, as it is kept: as a number."""
    return latent.stoch.detach().argmax(-1).to(torch.uint8)
