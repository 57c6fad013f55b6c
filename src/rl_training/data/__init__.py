"""Datasets, replay buffers, rollouts, readers and writers. Lazy imports let files be checked without torch."""

from rl_training.lazy_names import lazy_names

__getattr__, __dir__ = lazy_names(__name__, __file__)
