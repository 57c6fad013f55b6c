"""Checks of losses: their form, and that a loss of your own is used."""

from typing import Any

from torch import Tensor

from rl_training.types import Loss, Trainable

UPDATES = 1_000  # whose phases are looked at


def checked_loss(loss: Any, learner: Trainable, phase: str, *, dims: int) -> Loss:
    """Returns the loss; raises TypeError unless each term of a `Loss` is a number (`dims` 0) or one per member (1).

    Raises ValueError if the loss has no gradient.
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
    if not any(value.requires_grad for value in loss.terms.values()):
        raise ValueError(
            f"{name} has no gradient: its terms depend on no trained parameter, or are computed in no_grad"
        )
    return loss


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
