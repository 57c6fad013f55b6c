"""PPO and GAIL with an LSTM or GRU pass the checks of every algorithm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rl_training.testing import check_algorithm, checks


def test_every_check_holds_with_a_memory(recurrent):
    check_algorithm(recurrent.learner, recurrent.env_id, options=recurrent.own_options)


def test_stacked_learners_with_a_memory_equal_single_ones(recurrent):
    checks.check_population(recurrent)


def test_other_algorithms_refuse_a_memory(row):
    if not row.learner.config_type.takes_memory:
        with pytest.raises(ValueError, match=r"network.memory is for gail and ppo; leave it out"):
            replace(row, own_options={"network": {"memory": "lstm"}}).build()
