"""Which signals are one request to stop, and which are two."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from rl_training.experiment.processes import signals
from rl_training.experiment.processes.signals import caught_signals, forward_signal, hidden_from_ctrl_c

INT, TERM = signal.SIGINT, signal.SIGTERM


@pytest.mark.parametrize("came", [[TERM, TERM], [INT, INT], [INT, TERM], [TERM, INT, TERM]])
def test_what_comes_at_once_is_one_request(came):
    with caught_signals() as caught:
        for number in came:
            signal.raise_signal(number)
    assert caught == came[:1]


@pytest.mark.parametrize(("came", "requests"), [([TERM, TERM], [TERM, TERM]), ([INT, TERM, INT], [INT, INT])])
def test_the_same_signal_a_while_later_is_a_second_request(monkeypatch, came, requests):
    monkeypatch.setattr(signals, "ONE_REQUEST", 0.0)
    with caught_signals() as caught:
        for number in came:
            signal.raise_signal(number)
    assert caught == requests


CHILD = """
import signal, sys
from rl_training.experiment.processes.signals import caught_signals
with caught_signals() as caught:
    print("ready", flush=True)
    while not caught:
        signal.pause()
print(*map(int, caught))
"""


@pytest.mark.parametrize("number", [INT, TERM])
def test_a_process_hidden_from_ctrl_c_knows_which_signal_is_passed_on_to_it(number):
    # In a process of its own: other threads of this one could take the SIGINT that the main thread blocks.
    with hidden_from_ctrl_c():
        child = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        forward_signal(number, child.pid)
        output, _ = child.communicate(timeout=60)
    finally:
        child.kill()
    assert output == f"{int(number)}\n"
