"""A stream for every purpose: the same everywhere, and none disturbs another."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
import torch

from rl_training import streams


def test_a_derived_seed_is_the_first_63_bits_of_the_hashed_purpose():
    digest = hashlib.sha256(b'[7, "env", 2, 0]').digest()
    assert streams.derive(7, "env", 2, 0) == int.from_bytes(digest, "big") >> (256 - 63)
    assert streams.derive(7, "env", 2, 0) == 3689388277897659088


def test_seed_and_every_part_of_the_purpose_matter():
    purposes: list[tuple[str | int, ...]] = [(), ("init",), ("env", 1), ("env", "1"), ("env", 1, 0), ("env", 0, 1)]
    assert len({streams.derive(seed, *purpose) for seed in (0, 1) for purpose in purposes}) == 2 * len(purposes)


def test_numpy_integers_name_the_same_stream_as_python_ones():
    seed: Any = np.int64(3)
    env: Any = np.int32(1)
    assert streams.derive(seed, "env", env) == streams.derive(3, "env", 1)
    with pytest.raises(TypeError):
        streams.derive(0.5)  # type: ignore[arg-type]


def test_episode_seeds_fit_the_generators_of_old():
    seeds = {streams.episode_seed(0, env, episode) for env in range(20) for episode in range(20)}
    assert len(seeds) == 400
    assert 0 <= min(seeds) <= max(seeds) < 2**31


def test_generators_of_one_purpose_agree_and_of_two_do_not():
    first, same, other = (streams.generator(5, name) for name in ("sampling", "sampling", "exploration"))
    draws = torch.rand(4, generator=first)
    assert torch.equal(draws, torch.rand(4, generator=same))
    assert not torch.equal(draws, torch.rand(4, generator=other))


def test_a_fork_is_repeatable_and_leaves_the_default_generator_alone():
    torch.manual_seed(0)
    undisturbed = torch.rand(6)
    torch.manual_seed(0)
    before, inside = torch.rand(3), []
    for _ in range(2):
        with streams.fork(1, "init"):
            inside.append(torch.rand(3))
    assert torch.equal(inside[0], inside[1])
    assert torch.equal(torch.cat([before, torch.rand(3)]), undisturbed)


def test_a_fork_is_undone_when_its_block_fails():
    state = torch.get_rng_state()
    with pytest.raises(KeyError), streams.fork(0):
        raise KeyError
    assert torch.equal(torch.get_rng_state(), state)
