"""Checks of losses: their form, and that a loss of your own is used."""

from typing import Any

from torch import Tensor

from rl_training.types import Loss, Trainable

UPDATES = 1_000  # whose phases are looked at
LOGGED = frozenset({  # columns of metrics.jsonl that are not those of a loss
    "step", "updates", "time", "steps_per_second", "updates_per_second", "evaluation", "episode_return",
    "episode_length", "env_restarts",
})  # fmt: skip


def checked_loss(loss: Any, learner: Trainable, phase: str, *, dims: int) -> Loss:
    """Returns the loss; raises TypeError unless each term of a `Loss` is a number (`dims` 0) or one per member (1).

    Raises ValueError if the loss has no gradient, or the name of another column of the log.
    """
    name, example = f"{type(learner).__name__}.{phase}", 'Loss({"loss": value.mean()})'
    if not isinstance(loss, Loss):
        raise TypeError(f"{name} must return rl_training.types.Loss, such as {example}, got {type(loss).__name__}")
    for term, value in loss.terms.items():
        if not isinstance(value, Tensor) or value.dim() != dims:
            got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise TypeError(f"term {term!r} of {name} must be a tensor of one number, as in {example}, got {got}")
    for metric, value in loss.metrics.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"metric {metric!r} of {name} must be a tensor, got {type(value).__name__}")
    if taken := LOGGED.intersection((*loss.terms, *loss.metrics)):
        raise ValueError(f"{name} returns {min(taken)!r}, the name of another column of metrics.jsonl; choose another")
    if not any(value.requires_grad for value in loss.terms.values()):
        raise ValueError(
            f"{name} has no gradient: its terms depend on no trained parameter, or are computed in no_grad"
        )
    return loss


def require_rows(next_values: Tensor, rewards: Tensor, learner: Any) -> None:
    """Raises ValueError if values [rows, 1] of your own algorithm would give targets [rows, rows]."""
    rows = len(rewards)
    if rows > 1 and next_values.shape == (rows, 1) and not learner.is_built_in:
        raise ValueError(
            f"{type(learner).__name__}: td_target needs next values of shape [{rows}], got [{rows}, 1]; remove the "
            "last axis with squeeze(-1)"
        )


def require_used_loss(learner: Any) -> None:
    """Raises TypeError if a subclass defines `loss`, but the inherited `phases` never call it."""
    classes = type(learner).__mro__
    by_loss, by_phases = (next(each for each in classes if name in vars(each)) for name in ("loss", "phases"))
    if classes.index(by_loss) >= classes.index(by_phases):
        return
    phases = {phase: None for update in range(UPDATES) for phase in learner.phases(update)}  # in order
    phases.pop("targets", None)
    if "loss" not in phases:
        raise TypeError(
            f"{type(learner).__name__}.loss is never called: the updates of {learner.name} minimise "
            f"{' and '.join(phases)}. Override one of these methods instead"
        )
