"""Captured updates: sampling and up to 32 updates replayed as one CUDA graph, with no Python in between."""

from __future__ import annotations

import gc
from typing import Protocol

import torch

from rl_training.types import Metrics, Source, Trainable, UpdateResult

LONGEST = 32  # updates in one graph
WARM_UPS = 3  # updates run eagerly before anything is captured; they are real ones, and count
Phases = tuple[tuple[str, ...], ...]


class Steps(Protocol):
    """What is captured: the draw of a batch, the step on it, and what its source is told of it."""

    learner: Trainable
    updates: int
    device: torch.device

    def step_from(self, source: Source, phases: tuple[str, ...]) -> UpdateResult: ...


class CapturedUpdates:
    """One graph for each sequence of phases that has come up; they share one pool of memory."""

    def __init__(self, updater: Steps) -> None:
        self.updater = updater
        self.seen: dict[tuple[str, ...], int] = {}
        self.graphs: dict[tuple[int, Phases], tuple[torch.cuda.CUDAGraph, Metrics]] = {}
        self.stream = torch.cuda.Stream(updater.device)

    def run(self, source: Source, count: int) -> Metrics:
        metrics: Metrics = {}
        while count:
            size = min(LONGEST, 1 << (count.bit_length() - 1))
            phases = tuple(self.updater.learner.phases(self.updater.updates + ahead) for ahead in range(size))
            if all(self.seen.get(each, 0) >= WARM_UPS for each in phases):
                metrics = self._replay(source, phases)
            else:
                size, metrics = 1, self._warm_up(source, phases[0])
            self.updater.updates += size
            count -= size
        return metrics

    def _warm_up(self, source: Source, phases: tuple[str, ...]) -> Metrics:
        """On a stream aside, as capture asks; whatever is allocated once, such as optimizer state, is now."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            metrics = self.updater.step_from(source, phases).metrics
        torch.cuda.current_stream().wait_stream(self.stream)
        self.seen[phases] = self.seen.get(phases, 0) + 1
        return metrics

    def _replay(self, source: Source, phases: Phases) -> Metrics:
        key = (id(source), phases)
        if key not in self.graphs:
            self.graphs[key] = self._capture(source, phases)
        graph, metrics = self.graphs[key]
        graph.replay()
        return metrics

    def _capture(self, source: Source, phases: Phases) -> tuple[torch.cuda.CUDAGraph, Metrics]:
        gc.collect()  # an older graph that is let go of while this one is captured would spoil it
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(source.generator)  # so that every replay draws new rows
        pool = next(iter(self.graphs.values()))[0].pool() if self.graphs else None
        with torch.cuda.graph(graph, pool=pool, stream=self.stream):
            for each in phases:
                metrics = self.updater.step_from(source, each).metrics
        return graph, metrics
