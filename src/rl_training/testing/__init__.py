"""Tests for algorithms of your own: the checks that every algorithm of the catalogue passes.

from rl_training.testing import check_algorithm

def test_my_algorithm():
    check_algorithm(MyAlgorithm, "CartPole-v1")
"""

from rl_training.testing.algorithm import CHECKS, check_algorithm
from rl_training.testing.cases import AlgorithmCase

__all__ = ["CHECKS", "AlgorithmCase", "check_algorithm"]
