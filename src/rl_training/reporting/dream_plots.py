"""Frames that a world model observed, reconstructed and imagined, as one labelled figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rl_training.reporting.plots import EVALUATION, INK, new_figure
from rl_training.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from torch import Tensor

    from rl_training.experiment.dreams import Dreams

LABELS = ("observed", "reconstructed", "imagined")
INCHES = 0.6  # height and width of a frame


def save_dreams(dreams: Dreams, target: Path, *, episodes: int) -> Path:
    """Draws three rows of frames for each episode; a vertical line separates the context from the imagined steps."""
    shown, steps = min(episodes, len(dreams.truth)), dreams.truth.shape[1]
    figure = new_figure(INCHES * steps + 1.8, shown * (INCHES * len(LABELS) + 0.4) + 1)
    for number, axes in enumerate(figure.subplots(shown, 1, squeeze=False)[:, 0]):
        _draw_episode(axes, [kind[number] for kind in (dreams.truth, dreams.reconstruction, dreams.prediction)], dreams)
        axes.set_title(f"episode {number + 1}", loc="left", fontsize=10, color=INK)
    errors = f"reconstruction {dreams.reconstruction_error:.4g}, imagination {dreams.error:.4g}"
    figure.suptitle(f"mean squared error per pixel: {errors}", x=0.02, ha="left", fontsize=10, color=INK)
    caption = f"step (the model sees the first {dreams.context} and imagines the rest from the actions alone)"
    figure.supxlabel(caption, fontsize=9, color=INK)
    figure.savefig(target)
    return target


def _draw_episode(axes: Axes, kinds: list[Tensor], dreams: Dreams) -> None:
    frames = np.stack([_colours(kind) for kind in kinds])  # [kinds, steps, height, width, colours]
    steps, height, width = frames.shape[1:4]
    gap = max(1, height // 16)
    padded = np.pad(frames, ((0, 0), (0, 0), (0, gap), (0, gap), (0, 0)), constant_values=1.0)
    axes.imshow(np.concatenate(np.concatenate(padded, axis=1), axis=1)[:-gap, :-gap], interpolation="nearest")
    axes.set_yticks(np.arange(len(kinds)) * (height + gap) + (height - 1) / 2, LABELS[: len(kinds)])
    axes.set_xticks(np.arange(steps) * (width + gap) + (width - 1) / 2, [str(step) for step in range(steps)])
    axes.tick_params(length=0, labelsize=9, labelcolor=INK)
    axes.spines[:].set_visible(False)
    axes.axvline(dreams.context * (width + gap) - (gap + 1) / 2, color=EVALUATION, linewidth=2)


def _colours(frames: Tensor) -> Array:
    """Frames [time, channels, height, width] as [time, height, width, 3]; a stack of frames shows its newest one."""
    planes = frames if frames.shape[1] == 3 else frames[:, -1:].expand(-1, 3, -1, -1)
    colours: Array = planes.clamp(0, 1).permute(0, 2, 3, 1).cpu().numpy()
    return colours
