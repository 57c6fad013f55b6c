"""Where transitions rest: offline datasets, replay rings, rollouts, and the files they come from.

The public names stand in `__init__.pyi`. Each is imported when it is first used, so that files are read and checked
without torch.
"""

from rl_training.lazy_names import lazy_names

__getattr__, __dir__ = lazy_names(__name__, __file__)
