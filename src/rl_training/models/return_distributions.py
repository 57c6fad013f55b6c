"""Networks of distributional DQN: a return distribution per action, as atoms (C51) or quantiles (QR-DQN, IQN, FQF)."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rl_training.models.layers import HiddenSizes
from rl_training.models.masks import masked, valid_actions
from rl_training.models.products import with_full_precision
from rl_training.models.q_networks import DQNModel, TrunkAndHead
from rl_training.types import EnvSpec


def midpoints(count: int, device: torch.device | None = None) -> Tensor:
    """Midpoints of `count` equal intervals of [0, 1]."""
    return (torch.arange(count, device=device) + 0.5) / count


class Atoms(NamedTuple):
    """Categorical distribution over fixed returns."""

    logits: Tensor  # [rows, actions, atoms]
    support: Tensor  # [atoms], evenly spaced
    valid: Tensor | None = None  # [rows, actions]

    def expected(self) -> Tensor:
        return masked((self.logits.softmax(-1) * self.support).sum(-1), self.valid)


class Quantiles(NamedTuple):
    """Quantiles of equal weight."""

    quantile_hats: Tensor  # [rows, actions, fractions]
    tau_hats: Tensor  # [fractions], or [rows, fractions]
    valid: Tensor | None = None  # [rows, actions]

    def expected(self) -> Tensor:
        return masked(self.quantile_hats.mean(-1), self.valid)


class ProposedQuantiles(NamedTuple):
    """Quantiles at the midpoints of proposed intervals of [0, 1], weighted by the interval widths."""

    quantile_hats: Tensor  # [rows, actions, fractions]
    taus: Tensor  # [rows, fractions + 1], from 0 to 1
    tau_hats: Tensor  # [rows, fractions]
    entropy: Tensor  # [rows], of the widths; log(fractions) if they are equal
    valid: Tensor | None = None  # [rows, actions]

    def expected(self) -> Tensor:
        widths = self.taus.detach().diff(dim=-1)
        return masked((self.quantile_hats * widths.unsqueeze(-2)).sum(-1), self.valid)


class AtomsNetwork(TrunkAndHead):
    def __init__(
        self, spec: EnvSpec, hidden_sizes: HiddenSizes = (256, 256), *, num_atoms: int = 51, v_min: float = -10.0,
        v_max: float = 10.0, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(spec, hidden_sizes, outputs=num_atoms, **options)
        self.range = (v_min, v_max, num_atoms)

    def forward(self, obs: Tensor, noise: Tensor | None = None) -> Atoms:
        support = torch.linspace(*self.range, device=obs.device)
        return Atoms(self.head(self.trunk(obs), noise), support, *valid_actions(self, obs))


class QuantilesNetwork(TrunkAndHead):
    """Quantiles at the midpoints of equal intervals (QR-DQN)."""

    def __init__(
        self, spec: EnvSpec, hidden_sizes: HiddenSizes = (256, 256), *, num_quantiles: int = 200, **options: Any
    ) -> None:
        super().__init__(spec, hidden_sizes, outputs=num_quantiles, **options)
        self.num_quantiles = num_quantiles

    def forward(self, obs: Tensor, noise: Tensor | None = None) -> Quantiles:
        taus = midpoints(self.num_quantiles, obs.device)
        return Quantiles(self.head(self.trunk(obs), noise), taus, *valid_actions(self, obs))


class QuantileFunction(TrunkAndHead):
    """Quantiles at any fractions; cosine features of the fraction multiply the observation's features."""

    def __init__(
        self, spec: EnvSpec, hidden_sizes: HiddenSizes = (256, 256), *, num_cosines: int = 64, **options: Any
    ) -> None:
        super().__init__(spec, hidden_sizes, **options)
        self.num_cosines = num_cosines
        self.embedding = nn.Linear(num_cosines, self.features)

    def at(self, features: Tensor, taus: Tensor, noise: Tensor | None = None) -> Tensor:
        """Quantiles [rows, actions, fractions] at taus [fractions] or [rows, fractions]."""
        cosines = torch.cos(math.pi * torch.arange(self.num_cosines, device=taus.device) * taus.unsqueeze(-1))
        mixed = features.unsqueeze(-2) * self.embedding(cosines).relu()
        return self.head(mixed, noise).squeeze(-1).transpose(-1, -2)


class GivenQuantilesNetwork(QuantileFunction):
    """Quantiles at given fractions (IQN)."""

    def forward(self, obs: Tensor, taus: Tensor, noise: Tensor | None = None) -> Quantiles:
        return Quantiles(self.at(self.trunk(obs), taus, noise), taus, *valid_actions(self, obs))


class ProposedQuantilesNetwork(QuantileFunction):
    """Quantiles at fractions that a layer proposes for each observation (FQF)."""

    def __init__(
        self, spec: EnvSpec, hidden_sizes: HiddenSizes = (256, 256), *, num_quantiles: int = 32, **options: Any
    ) -> None:
        super().__init__(spec, hidden_sizes, **options)
        self.proposal = nn.Linear(self.features, num_quantiles)
        nn.init.xavier_uniform_(self.proposal.weight, gain=0.01)  # nearly equal intervals at the start
        nn.init.zeros_(self.proposal.bias)

    def forward(self, obs: Tensor, noise: Tensor | None = None) -> ProposedQuantiles:
        return self._quantiles(self.trunk(obs), noise, *valid_actions(self, obs))

    def with_inner(self, obs: Tensor, noise: Tensor | None) -> tuple[ProposedQuantiles, Tensor]:
        """Returns the quantiles, and those at the inner taus [rows, actions, fractions - 1] without gradients."""
        features = self.trunk(obs)
        quantiles = self._quantiles(features, noise, *valid_actions(self, obs))
        with torch.no_grad():
            return quantiles, self.at(features, quantiles.taus[..., 1:-1], noise)

    def _quantiles(self, features: Tensor, noise: Tensor | None, *valid: Tensor) -> ProposedQuantiles:
        # The proposal sends no gradient to the features, and the quantiles send none to the fractions.
        taus, entropy = self.propose(features.detach())
        tau_hats = ((taus[..., :-1] + taus[..., 1:]) / 2).detach()
        return ProposedQuantiles(self.at(features, tau_hats, noise), taus, tau_hats, entropy, *valid)

    def propose(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Taus from exactly 0 to exactly 1, and the entropy of the interval widths."""
        log_widths = with_full_precision(self.proposal, features).log_softmax(-1)
        widths = log_widths.exp()
        inner = widths.cumsum(-1)[..., :-1]
        ends = torch.zeros_like(inner[..., :1])
        return torch.cat([ends, inner, ends + 1], -1), -(widths * log_widths).sum(-1)


class C51Model(DQNModel):
    network = AtomsNetwork
    options = (*DQNModel.options, "num_atoms", "v_min", "v_max")


class QRDQNModel(DQNModel):
    network = QuantilesNetwork
    options = (*DQNModel.options, "num_quantiles")


class IQNModel(DQNModel):
    network = GivenQuantilesNetwork
    options = (*DQNModel.options, "num_cosines")


class FQFModel(DQNModel):
    network = ProposedQuantilesNetwork
    options = (*DQNModel.options, "num_quantiles", "num_cosines")

    def forward(self, obs: Tensor) -> ProposedQuantiles:
        return self.q(obs)

    def act(self, obs: Tensor) -> Tensor:
        return self(obs).expected().argmax(-1)


class MLPFQFNetwork(FQFModel):
    """FQF's networks for vector observations."""

    def __init__(self, obs_dim: int, action_dim: int, hidden_sizes: HiddenSizes = (256, 256), **options: Any) -> None:
        super().__init__(EnvSpec((obs_dim,), "discrete", action_dim), hidden_sizes, **options)
