"""Conservative Q-learning (Kumar et al., 2020, arXiv:2006.04779): offline SAC with a penalty on unseen actions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import huber_loss

from rl_training.algorithms.core.config import AlgorithmConfig, OfflineTDConfig, PrecisionConfig, Rate
from rl_training.algorithms.core.learner import Learner, actor_critic_groups
from rl_training.algorithms.core.ops import ensemble_squared_error, select_action, td_target
from rl_training.algorithms.sac import TemperatureConfig, add_temperature, frozen_min_q, sac_policy_loss
from rl_training.models import DiscreteCQLModel, MLPSACModel
from rl_training.models.heads import SquashedGaussian
from rl_training.types import Action, Batch, EnvSpec, Loss, Metrics, ParameterGroup


class CQLConfig(TemperatureConfig, PrecisionConfig, OfflineTDConfig):
    hidden_sizes: tuple[PositiveInt, ...] = Field((256, 256, 256), description="widths of the hidden layers")
    cql_alpha: PositiveFloat = Field(5.0, description="weight of the conservative penalty")
    lagrange_threshold: float | None = Field(
        None, description="tune the penalty's weight so that the gap stays at this threshold; none: fixed weight"
    )
    tau: Rate = Field(0.005, description="Polyak coefficient of the target critics")
    num_cql_samples: PositiveInt = Field(
        10, description="actions sampled from each of uniform, pi(s) and pi(s') for the penalty (Box)"
    )
    max_target_backup: bool = Field(False, description="use the best of the sampled next actions in the target (Box)")
    backup_entropy: bool = Field(False, description="subtract alpha * log pi in the target, as SAC does (Box)")
    cloning_updates: NonNegativeInt = Field(0, description="initial updates in which the actor clones the data (Box)")
    actor_learning_rate: PositiveFloat | None = Field(
        1e-4, description="learning rate of the actor and the temperature (Box); none: learning_rate"
    )


BOX_OPTIONS = (
    "temperature", "tune_temperature", "target_entropy", "num_cql_samples", "max_target_backup", "backup_entropy",
    "cloning_updates", "actor_learning_rate", "precision",
)  # fmt: skip


class CQLPredictions(NamedTuple):
    q: Tensor  # [critics, rows], Q(s, a) of the dataset's actions
    target_q: Tensor  # [rows], TD target
    uniform_q: Tensor  # [critics, samples, rows], Q(s, u) with u uniform in [-1, 1]
    policy_q: Tensor  # [critics, 2 * samples, rows], Q(s, a) with a from pi(s) and from pi(s')
    uniform_log_prob: float
    policy_log_prob: Tensor  # [2 * samples, rows]
    log_multiplier: Tensor | None = None  # log of the Lagrange multiplier, if there is a threshold


def uniform_actions(samples: int, like: Tensor) -> Tensor:
    """Uniform samples from [-1, 1]; [samples, rows, dims]."""
    return 2 * torch.rand(samples, *like.shape, device=like.device) - 1


def soft_maximum(predictions: CQLPredictions) -> Tensor:
    """log of the integral of exp(Q(s, a)) over a by importance sampling, plus log(3 * samples); [critics, rows]."""
    # No reference implementation subtracts the constant, and published thresholds include it.
    uniform = predictions.uniform_q - predictions.uniform_log_prob
    policy = predictions.policy_q - predictions.policy_log_prob
    return torch.cat([uniform, policy], 1).logsumexp(1)


def conservative_terms(gap: Tensor, log_multiplier: Tensor | None, config: CQLConfig) -> Metrics:
    """Conservative penalty of the gap logsumexp Q(s, .) - Q(s, a) of each critic [critics].

    - fixed weight: cql_alpha * gap
    - Lagrange: multiplier * cql_alpha * (gap - threshold), minimised by Q and maximised by the multiplier
    """
    if config.lagrange_threshold is None or log_multiplier is None:
        return {"cql_penalty": config.cql_alpha * gap.sum()}
    # cql_alpha scales the threshold too, as in CORL and Cal-QL; the authors' code has alpha * gap - threshold
    excess = config.cql_alpha * (gap - config.lagrange_threshold)
    multiplier = log_multiplier.exp().clamp(max=1e6)
    penalty, multiplier_loss = (multiplier.detach() * excess).sum(), -(multiplier * excess.detach()).mean()
    return {"cql_penalty": penalty, "multiplier_loss": multiplier_loss}


def cql_loss(predictions: CQLPredictions, config: CQLConfig) -> Loss:
    """Critic loss: mean of (Q(s, a) - target)^2, without a factor 1/2, plus the penalty, summed over the critics."""
    q, target_q = predictions.q, predictions.target_q
    gap = (soft_maximum(predictions) - q).mean(-1)
    terms = {"critic_loss": ensemble_squared_error(q, target_q)}
    metrics = {"target_q_mean": target_q.mean(), "q_mean": q.mean(), "cql_gap": gap.mean()}
    return Loss({**terms, **conservative_terms(gap, predictions.log_multiplier, config)}, metrics)


def new_log_multiplier(config: CQLConfig) -> nn.Parameter | None:
    return None if config.lagrange_threshold is None else nn.Parameter(torch.tensor(1.0))


class CQLAlgorithm(Learner):
    name = "cql"
    lane = "offline"
    config_type = CQLConfig
    model_type = MLPSACModel
    action_kinds: ClassVar[tuple[str, ...]] = ("box", "discrete")
    targets = ("critic",)
    parts = ("critics", "policy")
    log_alpha: nn.Parameter
    target_entropy: float

    def setup(self) -> None:
        add_temperature(self)
        self.log_multiplier = new_log_multiplier(self.config)

    @classmethod
    def build(cls, spec: EnvSpec, config: AlgorithmConfig | None = None, **options: Any) -> Any:
        """Creates a `CQLAlgorithm` for Box actions or a `DiscreteCQL` for Discrete actions."""
        cls.check_spec(spec)
        discrete = spec.action_kind == "discrete"
        return DiscreteCQL.build(spec, config, **options) if discrete else super().build(spec, config, **options)

    def critics(self, batch: Batch) -> Loss:
        batch, alpha = self.normalized(batch), self.log_alpha.detach().exp()
        return self.critic_loss(batch, alpha)

    def policy(self, batch: Batch) -> Loss:
        alpha = self.log_alpha.detach().exp()
        policy = sac_policy_loss(self, self.normalizer(batch["obs"]), alpha)
        return policy.plus({}, {"entropy_term": -alpha * policy.metrics["entropy"]})

    def cloning(self, batch: Batch) -> Loss:
        """`loss` with the policy loss mean of alpha * log pi(a'|s) - log pi(a|s), as the authors' code starts."""
        loss, policy = self.loss(batch), self.model.actor(self.normalizer(batch["obs"]))
        likelihood = policy.log_prob(batch["actions"]).mean()
        return loss.plus({"actor_loss": loss.metrics["entropy_term"] - likelihood})

    def phases(self, update: int) -> tuple[str, ...]:
        return ("cloning" if update < self.config.cloning_updates else "loss", "targets")

    def policy_value(self, obs: Tensor, actions: Tensor) -> Tensor:
        return frozen_min_q(self.model.critic, obs, actions)

    def critic_loss(self, batch: Batch, alpha: Tensor) -> Loss:
        return cql_loss(self.predict_batch(batch, alpha), self.config)

    def predict_batch(self, batch: Batch, alpha: Tensor) -> CQLPredictions:
        obs, actions, samples = batch["obs"], batch["actions"], self.config.num_cql_samples
        uniform, policies = uniform_actions(samples, actions), self.policies(obs, batch["next_obs"])
        policy_actions, log_prob = self.sample_policies(policies)
        all_actions = torch.cat([actions.unsqueeze(0), uniform, policy_actions])  # one pass of the critics at obs
        with self.precision(batch):
            values = self.model.critic(obs.expand(len(all_actions), *obs.shape), all_actions).float()
        q, uniform_q, policy_q = values.split([1, samples, 2 * samples], 1)
        return CQLPredictions(
            q=q.squeeze(1), target_q=self.target_q(batch, policies[1], alpha), uniform_q=uniform_q, policy_q=policy_q,
            uniform_log_prob=-math.log(2) * actions.shape[-1], policy_log_prob=log_prob,
            log_multiplier=self.log_multiplier,
        )  # fmt: skip

    @torch.no_grad()
    def policies(self, obs: Tensor, next_obs: Tensor) -> list[SquashedGaussian]:
        """pi(s) and pi(s'), by one pass of the actor."""
        both = self.model.actor(torch.cat([obs, next_obs]))
        return list(map(SquashedGaussian, both.mean.chunk(2), both.log_std.chunk(2)))

    @torch.no_grad()
    def sample_policies(self, policies: Sequence[SquashedGaussian]) -> tuple[Tensor, Tensor]:
        """Samples from pi(s) and pi(s') [2 * samples, rows, dims], and their log-probabilities."""
        repeated = [policy.repeated(self.config.num_cql_samples) for policy in policies]
        actions, log_probs = zip(*(policy.sample_with_log_prob() for policy in repeated), strict=True)
        return torch.cat(actions), torch.cat(log_probs)

    @torch.no_grad()
    def target_q(self, batch: Batch, next_policy: SquashedGaussian, alpha: Tensor) -> Tensor:
        """TD target r + gamma * (1 - done) * min target Q(s', a') for one a' from pi(s')."""
        # `max_target_backup` takes the maximum over several a' of that minimum, as in CORL and Cal-QL.
        c, next_obs = self.config, batch["next_obs"]
        actions, log_prob = next_policy.repeated(c.num_cql_samples if c.max_target_backup else 1).sample_with_log_prob()
        next_q = self.target["critic"](next_obs.expand(len(actions), *next_obs.shape), actions).amin(0)
        if c.backup_entropy:
            next_q = next_q - alpha * log_prob
        return td_target(batch["rewards"], batch["dones"], next_q.amax(0), batch.get("discounts", c.gamma))

    def parameter_groups(self) -> list[ParameterGroup]:
        return actor_critic_groups(self.config, "log_alpha")


class DiscreteCQL(Learner):
    """CQL for Discrete actions: a double Q-network with the exact logsumexp and a greedy policy."""

    name = "cql"
    lane = "offline"
    config_type = CQLConfig
    model_type = DiscreteCQLModel
    action_kinds = ("discrete",)
    targets = ("q",)

    def setup(self) -> None:
        for option in BOX_OPTIONS:
            value, default = getattr(self.config, option), CQLConfig.model_fields[option].default
            if value != default:
                raise ValueError(f"{option} is for Box actions only, got {value}. Leave it at {default} for Discrete")
        self.log_multiplier = new_log_multiplier(self.config)

    def loss(self, batch: Batch) -> Loss:
        """Huber loss of Q(s, a) - target, plus the penalty of logsumexp Q(s, .) - Q(s, a)."""
        obs, next_obs = self.normalizer(batch["obs"]), self.normalizer(batch["next_obs"])
        values = self.model.q(obs)
        q, target_q = select_action(values, batch["actions"]), self.target_q(batch, next_obs)
        gap = (values.logsumexp(-1) - q).mean()
        terms = {"critic_loss": huber_loss(q, target_q)}
        metrics = {"target_q_mean": target_q.mean(), "q_mean": q.mean(), "cql_gap": gap}
        return Loss({**terms, **conservative_terms(gap, self.log_multiplier, self.config)}, metrics)

    @torch.no_grad()
    def target_q(self, batch: Batch, next_obs: Tensor) -> Tensor:
        next_q = select_action(self.target["q"](next_obs), self.model.q(next_obs).argmax(-1))
        return td_target(batch["rewards"], batch["dones"], next_q, batch.get("discounts", self.config.gamma))

    def act(
        self, obs: Tensor, memory: Any = None, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Action:
        return Action(self.model.q(self.normalizer(obs)).argmax(-1))
