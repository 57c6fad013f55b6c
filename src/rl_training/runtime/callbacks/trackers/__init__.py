"""Trackers: services that log the rows of a run besides metrics.jsonl."""

from rl_training.runtime.callbacks.trackers.guarded import GuardedTracker, new_trackers
from rl_training.runtime.callbacks.trackers.subject import Subject

__all__ = ["GuardedTracker", "Subject", "new_trackers"]
