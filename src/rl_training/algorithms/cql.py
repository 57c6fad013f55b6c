"""Conservative Q-learning (Kumar et al., 2020, arXiv:2006.04779): offline SAC with a penalty on unseen actions."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import huber_loss

from rl_training.algorithms.core.config import (
    AlgorithmConfig,
    Fraction,
    OfflineTDConfig,
    PrecisionConfig,
    refuse_options,
)
from rl_training.algorithms.core.learner import Learner
from rl_training.algorithms.core.ops import epsilon_greedy, select_action, squared_td_loss
from rl_training.algorithms.core.temperature import TemperatureConfig, box_target_entropy, log_temperature
from rl_training.algorithms.sac import frozen_min_q, sac_policy_loss
from rl_training.models import DiscreteCQLModel, MLPCQLModel, valid_actions
from rl_training.models.heads import SquashedGaussian
from rl_training.types import Action, Batch, EnvSpec, Loss, Metrics


class ConservativeConfig(TemperatureConfig, PrecisionConfig, OfflineTDConfig):
    """Options of CQL and Cal-QL."""

    hidden_sizes: tuple[PositiveInt, ...] = Field((256, 256, 256), description="widths of the hidden layers")
    critic_hidden_sizes: tuple[PositiveInt, ...] | None = Field(
        None, description="widths of the critics' hidden layers (Box); none: hidden_sizes"
    )
    initialization: Literal["default", "corl", "cal_ql"] = Field(
        "default", description="initial weights (Box): PyTorch's, those of CORL's CQL, or those of the Cal-QL authors"
    )
    log_std_offset: float | None = Field(
        None, description="initial offset of the policy's log std, trained with a multiplier (Box); none: neither"
    )
    cql_alpha: PositiveFloat | Literal["auto"] = Field(
        "auto", description="weight of the conservative penalty; auto: 5 for Box, 1 for Discrete actions"
    )
    cql_alpha_online: PositiveFloat | None = Field(
        None, description="weight of the penalty during online fine-tuning; none: cql_alpha"
    )
    lagrange_threshold: float | None = Field(
        None, description="tune the penalty's weight so that the gap stays at this threshold; none: fixed weight"
    )
    num_cql_samples: PositiveInt = Field(
        10, description="actions sampled from each of uniform, pi(s) and pi(s') for the penalty (Box)"
    )
    max_target_backup: bool = Field(False, description="use the best of the sampled next actions in the target (Box)")
    backup_entropy: bool = Field(False, description="subtract alpha * log pi in the target, as SAC does (Box)")
    cloning_updates: NonNegativeInt = Field(0, description="initial updates in which the actor clones the data (Box)")
    actor_learning_rate: PositiveFloat | None = Field(
        1e-4, description="learning rate of the actor and the temperature (Box); none: learning_rate"
    )


class CQLConfig(ConservativeConfig):
    epsilon: Fraction = Field(0.0, description="probability of a random action during online fine-tuning (Discrete)")


BOX_ALPHA, DISCRETE_ALPHA = 5.0, 1.0  # `cql_alpha: auto`, as in the authors' code and in d3rlpy
DISCRETE_OPTIONS = ("epsilon",)
BOX_OPTIONS = (
    "temperature", "tune_temperature", "target_entropy", "num_cql_samples", "max_target_backup", "backup_entropy",
    "cloning_updates", "actor_learning_rate", "precision", "critic_hidden_sizes", "initialization", "log_std_offset",
)  # fmt: skip


class CQLPredictions(NamedTuple):
    q: Tensor  # [critics, rows], Q(s, a) of the dataset's actions
    target_q: Tensor  # [rows], TD target
    uniform_q: Tensor  # [critics, samples, rows], Q(s, u) with u uniform in [-1, 1]
    policy_q: Tensor  # [critics, 2 * samples, rows], Q(s, a) with a from pi(s) and from pi(s')
    uniform_log_prob: float
    policy_log_prob: Tensor  # [2 * samples, rows]
    log_multiplier: Tensor | None = None  # log of the Lagrange multiplier, if there is a threshold
    weight: Tensor | float | None = None  # None: the config's cql_alpha


def uniform_actions(samples: int, like: Tensor) -> Tensor:
    """Uniform samples from [-1, 1]; [samples, rows, dims]."""
    return 2 * torch.rand(samples, *like.shape, device=like.device) - 1


def soft_maximum(predictions: CQLPredictions) -> Tensor:
    """log of the integral of exp(Q(s, a)) over a by importance sampling, plus log(3 * samples); [critics, rows]."""
    # No reference implementation subtracts the constant, and published thresholds include it.
    uniform = predictions.uniform_q - predictions.uniform_log_prob
    policy = predictions.policy_q - predictions.policy_log_prob
    return torch.cat([uniform, policy], 1).logsumexp(1)


def conservative_terms(
    gap: Tensor, weight: Tensor | float, log_multiplier: Tensor | None, threshold: float | None
) -> Metrics:
    """Conservative penalty of the gap logsumexp Q(s, .) - Q(s, a) of each critic [critics].

    - fixed weight: weight * gap
    - Lagrange: multiplier * weight * (gap - threshold), minimised by Q and maximised by the multiplier
    """
    if threshold is None or log_multiplier is None:
        return {"cql_penalty": weight * gap.sum()}
    # The weight scales the threshold too, as in CORL and Cal-QL; the authors' code has alpha * gap - threshold.
    excess = weight * (gap - threshold)
    multiplier = log_multiplier.exp().clamp(max=1e6)
    penalty, multiplier_loss = (multiplier.detach() * excess).sum(), -(multiplier * excess.detach()).mean()
    return {"cql_penalty": penalty, "multiplier_loss": multiplier_loss}


def cql_loss(predictions: CQLPredictions, config: ConservativeConfig) -> Loss:
    """Sum of the critic loss and the penalty, both summed over the critics.

    - critic: mean of (Q(s, a) - target)^2, without a factor 1/2
    - penalty: weight * mean of (logsumexp Q(s, .) - Q(s, a)), or its Lagrange form
    """
    q, target_q = predictions.q, predictions.target_q
    gap = (soft_maximum(predictions) - q).mean(-1)
    weight = offline_weight(config, BOX_ALPHA) if predictions.weight is None else predictions.weight
    penalty = conservative_terms(gap, weight, predictions.log_multiplier, config.lagrange_threshold)
    return squared_td_loss(q, target_q).plus(penalty, {"q_mean": q.mean(), "cql_gap": gap.mean()})


def offline_weight(config: ConservativeConfig, default: float) -> float:
    """Weight of the penalty in the offline phase; `default` replaces "auto"."""
    return default if config.cql_alpha == "auto" else config.cql_alpha


class ConservativeLearner(Learner):
    """The weight of the penalty, which may change at the start of online fine-tuning, and its Lagrange multiplier."""

    lane = "offline"
    cql_weight: Tensor | float
    log_multiplier: nn.Parameter | None

    def add_penalty(self, default: float) -> None:
        weight = offline_weight(self.config, default)
        if self.config.cql_alpha_online is None:
            self.cql_weight = weight
        else:  # a buffer, because it is part of a checkpoint
            self.register_buffer("cql_weight", torch.tensor(weight))
        threshold = self.config.lagrange_threshold
        self.log_multiplier = None if threshold is None else nn.Parameter(torch.tensor(1.0))

    def start_online(self) -> None:
        if isinstance(self.cql_weight, Tensor):
            self.cql_weight.fill_(self.config.cql_alpha_online)


class DiscreteCQL(ConservativeLearner):
    """CQL for Discrete actions: a double Q-network with the exact logsumexp and a greedy policy."""

    name = "cql"
    config_type = CQLConfig
    model_type = DiscreteCQLModel
    action_kinds = ("discrete",)
    targets = ("q",)

    def setup(self) -> None:
        refuse_options(self.config, BOX_OPTIONS, "Box", "Discrete")
        self.add_penalty(DISCRETE_ALPHA)

    def loss(self, batch: Batch) -> Loss:
        """Huber loss of Q(s, a) - target, plus the penalty of logsumexp Q(s, .) - Q(s, a)."""
        batch = self.normalized(batch)
        values = self.model.q(batch["obs"])
        q, target_q = select_action(values, batch["actions"]), self.target_q(batch)
        gap = (values.logsumexp(-1) - q).mean()
        terms = {"critic_loss": huber_loss(q, target_q)}
        metrics = {"target_q_mean": target_q.mean(), "q_mean": q.mean(), "cql_gap": gap}
        penalty = conservative_terms(gap, self.cql_weight, self.log_multiplier, self.config.lagrange_threshold)
        return Loss({**terms, **penalty}, metrics)

    @torch.no_grad()
    def target_q(self, batch: Batch) -> Tensor:
        """TD target r + gamma * (1 - done) * target Q(s', a') for the best a' by the online network."""
        next_obs = batch["next_obs"]
        next_q = select_action(self.target["q"](next_obs), self.model.q(next_obs).argmax(-1))
        return self.td_target(batch, next_q)

    def act(
        self, obs: Tensor, memory: Any = None, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Action:
        """Greedy actions; with the option `epsilon`, epsilon-greedy ones unless `deterministic`."""
        obs = self.normalizer(obs)
        values = self.model.q(obs)
        if deterministic or not self.config.epsilon:
            return Action(values.argmax(-1))
        return Action(epsilon_greedy(values, self.config.epsilon, generator, *valid_actions(self.model.q, obs)))


class CQLAlgorithm(ConservativeLearner):
    name = "cql"
    config_type: ClassVar[type[AlgorithmConfig]] = CQLConfig
    model_type = MLPCQLModel
    action_kinds: ClassVar[tuple[str, ...]] = ("box", "discrete")
    discrete_type: ClassVar[type[Learner] | None] = DiscreteCQL
    targets = ("critic",)
    parts = ("critics", "policy")
    actor_parameters = ("model.actor.", "log_alpha")
    log_alpha: nn.Parameter
    target_entropy: float | None

    @classmethod
    def build(cls, spec: EnvSpec, config: AlgorithmConfig | None = None, **options: Any) -> Any:
        """Creates a learner of this class, or for Discrete actions a `DiscreteCQL`, which is no subclass."""
        return super().build(spec, config, **options)

    def setup(self) -> None:
        refuse_options(self.config, DISCRETE_OPTIONS, "Discrete", "Box")
        self.log_alpha = log_temperature(self.config)
        self.target_entropy = box_target_entropy(self.config, self.model.action_dim)
        self.add_penalty(BOX_ALPHA)

    def critics(self, batch: Batch) -> Loss:
        return self.critic_loss(self.normalized(batch), self.log_alpha.detach().exp())

    def policy(self, batch: Batch) -> Loss:
        """SAC's policy loss: mean of alpha * log pi(a|s) - min Q(s, a) with a from pi(s), and the temperature loss."""
        obs = self.normalizer(batch["obs"])
        actions, log_prob = self.model.actor(obs).sample_with_log_prob()
        q = frozen_min_q(self.model.critic, obs, actions)
        loss = sac_policy_loss(q, log_prob, self.log_alpha, self.target_entropy)
        entropy_term = -loss.metrics["temperature"] * loss.metrics["entropy"]  # with gradients, for `cloning`
        return loss.plus({}, {"entropy_term": entropy_term})

    def cloning(self, batch: Batch) -> Loss:
        """`loss` with the policy loss mean of alpha * log pi(a'|s) - log pi(a|s), as the authors' code starts."""
        loss, policy = self.loss(batch), self.model.actor(self.normalizer(batch["obs"]))
        likelihood = policy.log_prob(batch["actions"]).mean()
        return loss.plus({"actor_loss": loss.metrics["entropy_term"] - likelihood})

    def phases(self, update: int) -> tuple[str, ...]:
        return ("cloning" if update < self.config.cloning_updates else "loss", "targets")

    def critic_loss(self, batch: Batch, alpha: Tensor) -> Loss:
        return cql_loss(self.predict_batch(batch, alpha), self.config)

    def predict_batch(self, batch: Batch, alpha: Tensor) -> CQLPredictions:
        """Q-values at s of the dataset's, uniform and policy actions by one pass of the critics, and the TD target."""
        obs, actions, samples = batch["obs"], batch["actions"], self.config.num_cql_samples
        uniform = uniform_actions(samples, actions)
        policy, next_policy = self.policies(obs, batch["next_obs"])
        policy_actions, log_prob = self.sample_policies(policy, next_policy)
        all_actions = torch.cat([actions.unsqueeze(0), uniform, policy_actions])
        with self.precision(batch):
            values = self.model.critic(obs.expand(len(all_actions), *obs.shape), all_actions).float()
        q, uniform_q, policy_q = values.split([1, samples, 2 * samples], 1)
        return CQLPredictions(
            q=q.squeeze(1), target_q=self.target_q(batch, next_policy, alpha), uniform_q=uniform_q, policy_q=policy_q,
            uniform_log_prob=-math.log(2) * actions.shape[-1], policy_log_prob=log_prob,
            log_multiplier=self.log_multiplier, weight=self.cql_weight,
        )  # fmt: skip

    @torch.no_grad()
    def policies(self, obs: Tensor, next_obs: Tensor) -> list[SquashedGaussian]:
        """pi(s) and pi(s'), by one pass of the actor."""
        both = self.model.actor(torch.cat([obs, next_obs]))
        return list(map(SquashedGaussian, both.mean.chunk(2), both.log_std.chunk(2)))

    @torch.no_grad()
    def sample_policies(self, *policies: SquashedGaussian) -> tuple[Tensor, Tensor]:
        """Samples from pi(s) and pi(s') [2 * samples, rows, dims], and their log-probabilities."""
        repeated = [policy.repeated(self.config.num_cql_samples) for policy in policies]
        actions, log_probs = zip(*(policy.sample_with_log_prob() for policy in repeated), strict=True)
        return torch.cat(actions), torch.cat(log_probs)

    @torch.no_grad()
    def target_q(self, batch: Batch, next_policy: SquashedGaussian, alpha: Tensor) -> Tensor:
        """TD target r + gamma * (1 - done) * min target Q(s', a') for one a' from pi(s').

        - `max_target_backup`: a' is the one of several samples whose minimum is largest
        - `backup_entropy`: minus alpha * log pi(a'|s') of that a', as in CORL and Cal-QL
        """
        c, next_obs = self.config, batch["next_obs"]
        actions, log_prob = next_policy.repeated(c.num_cql_samples if c.max_target_backup else 1).sample_with_log_prob()
        min_q = self.target["critic"](next_obs.expand(len(actions), *next_obs.shape), actions).amin(0)
        next_q, best = min_q.max(0)
        if c.backup_entropy:
            next_q = next_q - alpha * log_prob.gather(0, best.unsqueeze(0)).squeeze(0)
        return self.td_target(batch, next_q)
