"""Conservative Q-learning (Kumar et al., 2020): SAC whose critics are pushed down on actions the data does not hold."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import torch
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import huber_loss

from rl_training.algorithms.core.config import AlgorithmConfig, OfflineConfig, Rate
from rl_training.algorithms.core.learner import OfflineLearner, actor_apart
from rl_training.algorithms.core.ops import bootstrapped, ensemble_squared_error, pick
from rl_training.algorithms.sac import SACAlgorithm, TemperatureConfig
from rl_training.models import DQNModel
from rl_training.types import Action, Batch, EnvSpec, Loss, Metrics, ParameterGroup


class CQLConfig(TemperatureConfig, OfflineConfig):
    hidden_sizes: tuple[PositiveInt, ...] = Field((256, 256, 256), description="widths of the hidden layers")
    cql_alpha: PositiveFloat = Field(5.0, description="weight of the gap between all actions and the data's")
    lagrange_threshold: float | None = Field(None, description="learn a weight that holds the gap here; none: do not")
    tau: Rate = Field(0.005, description="share of the way the target critics move at each update")
    num_cql_samples: PositiveInt = Field(10, description="actions drawn each of uniform, policy and next policy (Box)")
    max_target_backup: bool = Field(False, description="value next states by the best of the samples (Box)")
    backup_entropy: bool = Field(False, description="pay for entropy in the targets, as SAC does (Box)")
    cloning_updates: NonNegativeInt = Field(0, description="first updates in which the actor clones the data (Box)")
    actor_learning_rate: PositiveFloat | None = Field(
        1e-4, description="step size of the actor and the temperature (Box); none: learning_rate"
    )


BOX_ALONE = (
    "temperature", "tune_temperature", "target_entropy", "num_cql_samples", "max_target_backup", "backup_entropy",
    "cloning_updates", "actor_learning_rate",
)  # fmt: skip


class CQLPredictions(NamedTuple):
    q: Tensor  # [critics, rows], of the data's actions
    target_q: Tensor  # [rows]
    uniform_q: Tensor  # [critics, samples, rows], of actions drawn evenly from [-1, 1]
    policy_q: Tensor  # [critics, 2 * samples, rows], of the policy's actions at obs and next_obs, all valued at obs
    uniform_log_prob: float
    policy_log_prob: Tensor  # [2 * samples, rows]
    log_multiplier: Tensor | None = None  # of the learned weight, where there is one


def uniform_actions(samples: int, like: Tensor) -> Tensor:
    """Drawn evenly from [-1, 1]; [samples, rows, dims]."""
    return 2 * torch.rand(samples, *like.shape, device=like.device) - 1


def soft_maximum(seen: CQLPredictions) -> Tensor:
    """log of the integral of exp(Q) over all actions, by importance sampling, plus log(3 * samples); [critics, rows].

    No reference subtracts that constant, and published thresholds contain it.
    """
    weighted = [seen.uniform_q - seen.uniform_log_prob, seen.policy_q - seen.policy_log_prob]
    return torch.cat(weighted, 1).logsumexp(1)


def conservative_terms(gap: Tensor, log_multiplier: Tensor | None, config: CQLConfig) -> Metrics:
    """The weighted gap of each critic [critics], summed; with a threshold, its weight learns too."""
    if config.lagrange_threshold is None or log_multiplier is None:
        return {"cql_penalty": config.cql_alpha * gap.sum()}
    # alpha multiplies the threshold too, as in CORL and Cal-QL; the first release has alpha * gap - threshold
    excess = config.cql_alpha * (gap - config.lagrange_threshold)
    multiplier = log_multiplier.exp().clamp(max=1e6)
    return {
        "cql_penalty": (multiplier.detach() * excess).sum(),
        "multiplier_loss": -(multiplier * excess.detach()).mean(),
    }


def cql_loss(seen: CQLPredictions, config: CQLConfig) -> Loss:
    """The critics': squared error, without the paper's half as in every release, and the conservative term."""
    gap = (soft_maximum(seen) - seen.q).mean(-1)
    terms = {"critic_loss": ensemble_squared_error(seen.q, seen.target_q)}
    metrics = {"target_q_mean": seen.target_q.mean(), "q_mean": seen.q.mean(), "cql_gap": gap.mean()}
    return Loss({**terms, **conservative_terms(gap, seen.log_multiplier, config)}, metrics)


def new_log_multiplier(config: CQLConfig) -> nn.Parameter | None:
    return None if config.lagrange_threshold is None else nn.Parameter(torch.tensor(1.0))


class CQLAlgorithm(OfflineLearner, SACAlgorithm):
    name = "cql"
    config_type = CQLConfig
    action_kinds: ClassVar[tuple[str, ...]] = ("box", "discrete")

    def __init__(self, model: nn.Module, config: AlgorithmConfig | None = None, **options: Any) -> None:
        super().__init__(model, config, **options)
        self.log_multiplier = new_log_multiplier(self.config)

    @classmethod
    def build(cls, spec: EnvSpec, config: AlgorithmConfig | None = None, **options: Any) -> Any:  # CQL or DiscreteCQL
        cls.check_spec(spec)
        discrete = spec.action_kind == "discrete"
        return DiscreteCQL.build(spec, config, **options) if discrete else super().build(spec, config, **options)

    def loss(self, batch: Batch) -> Loss:
        loss = super().loss(self.standardized(batch))
        return loss.plus({}, {"entropy_term": -loss.metrics["temperature"] * loss.metrics["entropy"]})

    def cloning(self, batch: Batch) -> Loss:
        """As `loss`, but the actor climbs the likelihood of the data's actions: how the first release begins."""
        loss, policy = self.loss(batch), self.model.actor(self.normalizer(batch["obs"]))
        likelihood = policy.log_prob(batch["actions"]).mean()
        return loss.plus({"actor_loss": loss.metrics["entropy_term"] - likelihood})

    def phases(self, update: int) -> tuple[str, ...]:
        return ("cloning" if update < self.config.cloning_updates else "loss", "targets")

    def critic_loss(self, batch: Batch, alpha: Tensor) -> Loss:
        return cql_loss(self.predict_batch(batch, alpha), self.config)

    def predict_batch(self, batch: Batch, alpha: Tensor) -> CQLPredictions:
        obs, actions, samples = batch["obs"], batch["actions"], self.config.num_cql_samples
        uniform = uniform_actions(samples, actions)
        proposed, log_prob = self.propose(obs, batch["next_obs"])
        asked = torch.cat([actions.unsqueeze(0), uniform, proposed])  # valued in one pass, all of them at obs
        values = self.model.critic(obs.expand(len(asked), *obs.shape), asked)
        q, uniform_q, policy_q = values.split([1, samples, 2 * samples], 1)
        return CQLPredictions(
            q=q.squeeze(1),
            target_q=self.target_q(batch, alpha),
            uniform_q=uniform_q,
            policy_q=policy_q,
            uniform_log_prob=-math.log(2) * actions.shape[-1],
            policy_log_prob=log_prob,
            log_multiplier=self.log_multiplier,
        )

    @torch.no_grad()
    def propose(self, obs: Tensor, next_obs: Tensor) -> tuple[Tensor, Tensor]:
        """The policy's actions at these observations [2 * samples, rows, dims], and their log-densities."""
        policies = [self.model.actor(each).repeated(self.config.num_cql_samples) for each in (obs, next_obs)]
        actions, log_probs = zip(*(policy.sample_with_log_prob() for policy in policies), strict=True)
        return torch.cat(actions), torch.cat(log_probs)

    @torch.no_grad()
    def target_q(self, batch: Batch, alpha: Tensor) -> Tensor:
        """Of one action of the policy, or of the best of many by the smaller critic, as in CORL and Cal-QL."""
        c, next_obs = self.config, batch["next_obs"]
        policy = self.model.actor(next_obs).repeated(c.num_cql_samples if c.max_target_backup else 1)
        actions, log_prob = policy.sample_with_log_prob()
        next_q = self.target["critic"](next_obs.expand(len(actions), *next_obs.shape), actions).amin(0)
        if c.backup_entropy:
            next_q = next_q - alpha * log_prob
        return bootstrapped(batch["rewards"], batch["dones"], next_q.amax(0), c.gamma)

    def parameter_groups(self) -> list[ParameterGroup]:
        return actor_apart(self.config, "log_alpha")


class DiscreteCQL(OfflineLearner):
    """With a few actions the soft maximum is exact, and the policy is the best action of one double Q-network."""

    name = "cql"
    config_type = CQLConfig
    action_kinds = ("discrete",)
    targets = ("q",)

    def __init__(self, model: nn.Module, config: AlgorithmConfig | None = None, **options: Any) -> None:
        super().__init__(model, config, **options)
        for option in BOX_ALONE:
            value, default = getattr(self.config, option), CQLConfig.model_fields[option].default
            if value != default:
                raise ValueError(f"{option} is for Box actions; with Discrete ones leave it at {default}, got {value}")
        self.log_multiplier = new_log_multiplier(self.config)

    @classmethod
    def build(cls, spec: EnvSpec, config: AlgorithmConfig | None = None, **options: Any) -> DiscreteCQL:
        config = cls.configured(config, options)
        return cls(DQNModel(spec, config.hidden_sizes), config)

    def loss(self, batch: Batch) -> Loss:
        obs, next_obs = self.normalizer(batch["obs"]), self.normalizer(batch["next_obs"])
        values = self.model.q(obs)
        q, target_q = pick(values, batch["actions"]), self.target_q(batch, next_obs)
        gap = (values.logsumexp(-1) - q).mean()
        terms = {"critic_loss": huber_loss(q, target_q)}
        metrics = {"target_q_mean": target_q.mean(), "q_mean": q.mean(), "cql_gap": gap}
        return Loss({**terms, **conservative_terms(gap, self.log_multiplier, self.config)}, metrics)

    @torch.no_grad()
    def target_q(self, batch: Batch, next_obs: Tensor) -> Tensor:
        next_q = pick(self.target["q"](next_obs), self.model.q(next_obs).argmax(-1))
        return bootstrapped(batch["rewards"], batch["dones"], next_q, self.config.gamma)

    def act(
        self, obs: Tensor, memory: Any = None, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Action:
        return Action(self.model.q(self.normalizer(obs)).argmax(-1))
