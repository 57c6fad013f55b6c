"""Forks of the test process end as new processes do."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tests fork on Linux only")


def test_a_fork_prints_and_exits_as_the_command(start_command):
    process = start_command("--version", stdout=subprocess.PIPE)
    assert process.communicate()[0].startswith("rl-training ")
    assert process.returncode == 0
    process = start_command("--unknown", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert "No such option: --unknown" in process.communicate()[1]
    assert process.returncode == 2


def test_the_output_of_a_fork_may_be_discarded(start_command):
    assert start_command("--version", stdout=subprocess.DEVNULL).wait(60) == 0


def test_a_fork_ends_where_its_output_cannot_be_written(start_command):
    with open("/dev/full", "wb") as full:
        process = start_command("--version", stdout=full, stderr=subprocess.DEVNULL)
    assert process.wait(60) == 1
