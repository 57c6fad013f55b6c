"""CUDA graphs: sampling and up to 32 updates are captured and replayed as one graph."""

import gc
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import torch

from rl_training.types import Metrics, Source, Trainable, UpdateResult

MAX_UPDATES = 32  # per graph
WARM_UPS = 3  # eager updates or calls before a capture; they count like any other
Phases = tuple[tuple[str, ...], ...]
Result = TypeVar("Result")


def side_by_side(functions: Sequence[Callable[[], Result]], streams: Sequence[torch.cuda.Stream]) -> list[Result]:
    """Calls independent functions so that a captured graph executes them side by side.

    The first one runs on the current stream, which then waits for all, and each other one on a stream of its own.
    """
    # Memory that is freed on a branch is reused by its stream only, which waits for this one first.
    main = torch.cuda.current_stream()
    for stream in streams:
        stream.wait_stream(main)
    results = [functions[0]()]
    for stream, function in zip(streams, functions[1:], strict=True):
        with torch.cuda.stream(stream):
            results.append(function())
    for stream in streams:
        main.wait_stream(stream)
    return results


class Steps(Protocol):
    """The part of `Updater` that is captured; a protocol avoids an import cycle."""

    learner: Trainable
    updates: int
    device: torch.device

    def step_from(self, source: Source, phases: tuple[str, ...]) -> UpdateResult: ...


class CapturedUpdates:
    """One graph per source, its position and sequence of phases; all graphs share one memory pool.

    A replay may overwrite results of other graphs in the pool. Metrics are therefore copied to their own memory: the
    log keeps those of a phase until its next update.
    """

    def __init__(self, updater: Steps) -> None:
        self.updater = updater
        self.warm_ups: dict[tuple[str, ...], int] = {}
        self.metrics: dict[tuple[str, ...], Metrics] = {}  # those of the last warm-up, for their shapes
        self.graphs: dict[tuple[int, int, Phases], tuple[torch.cuda.CUDAGraph, Metrics]] = {}
        self.stream = torch.cuda.Stream(updater.device)

    def run(self, source: Source, count: int) -> Metrics:
        metrics: Metrics = {}
        while count:
            size = min(MAX_UPDATES, 1 << (count.bit_length() - 1))
            phases = tuple(self.updater.learner.phases(self.updater.updates + ahead) for ahead in range(size))
            if all(self.warm_ups.get(each, 0) >= WARM_UPS for each in phases):
                metrics = self._replay(source, phases)
            else:
                size, metrics = 1, self._warm_up(source, phases[0])
            self.updater.updates += size
            count -= size
        return metrics

    def _warm_up(self, source: Source, phases: tuple[str, ...]) -> Metrics:
        """Runs one eager update on the capture stream, so that lazy allocations happen before the capture."""
        with on_stream(self.stream), quiet_streams():
            metrics = self.updater.step_from(source, phases).metrics
        self.warm_ups[phases] = self.warm_ups.get(phases, 0) + 1
        self.metrics[phases] = metrics
        return metrics

    def _replay(self, source: Source, phases: Phases) -> Metrics:
        key = (id(source), source.position, phases)
        if key in self.graphs:
            source.skip(len(phases), self.updater.learner.config.batch_size)
        else:
            self.graphs[key] = self._capture(source, phases)
        graph, metrics = self.graphs[key]
        graph.replay()
        return metrics

    def _capture(self, source: Source, phases: Phases) -> tuple[torch.cuda.CUDAGraph, Metrics]:
        pool = next(iter(self.graphs.values()))[0].pool() if self.graphs else None
        kept = {name: torch.empty_like(value) for name, value in self.metrics[phases[-1]].items()}

        def updates() -> Metrics:
            with quiet_streams():
                for each in phases:
                    metrics = self.updater.step_from(source, each).metrics
                torch._foreach_copy_([*kept.values()], [metrics[name] for name in kept])
            return kept

        return capture(updates, source.generator, self.stream, pool)  # every replay samples new rows


@contextmanager
def on_stream(stream: torch.cuda.Stream) -> Iterator[None]:
    """Runs a block on this stream after the work of the current one, which then waits for it."""
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream().wait_stream(stream)


def capture(
    function: Callable[[], Result], generator: torch.Generator, stream: torch.cuda.Stream, pool: Any = None
) -> tuple[torch.cuda.CUDAGraph, Result]:
    """Captures a call of the function on this stream; returns the graph and the tensors that its replays write."""
    gc.collect()  # freeing an older graph during the capture would invalidate it
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph, pool=pool, stream=stream):
        result = function()
    torch.cuda.current_stream().wait_stream(stream)  # the capture resets the generators on its stream
    return graph, result


@contextmanager
def quiet_streams() -> Iterator[None]:
    """Hides PyTorch's warning that parameters were made on another stream than the one of the updates."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The AccumulateGrad node's stream does not match", UserWarning)
        yield
