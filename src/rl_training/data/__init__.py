"""Datasets, replay buffers and rollouts, and the readers and writers of their files.

`__init__.pyi` lists the public names. Each is imported on first use, so that files can be read and checked without
torch.
"""

from rl_training.lazy_names import lazy_names

__getattr__, __dir__ = lazy_names(__name__, __file__)
