"""Options of a Ray cluster, and connections that fail. No cluster is needed."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from rl_training.experiment.executors.base import ExecutorOptions
from rl_training.experiment.executors.opening import open_executor
from rl_training.experiment.executors.ray.connection import reason
from rl_training.experiment.executors.ray.resources import resources_of


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, (1, 0.0)), ({"slots": 4}, (1, 0.25)), ({"gpus": 2.0}, (1, 2.0))],
)
def test_slots_are_fractions_of_a_gpu(options, expected):
    assert resources_of(ExecutorOptions("ray", **options))[:2] == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gpus": 1.5}, "--gpus must be at most 1 or a whole number, got 1.5"),
        (
            {"gpus": 1.0, "slots": 2},
            r"--gpus 1 and --slots 2 both set the GPUs of a job \(--slots 2 is --gpus 0.5\); give",
        ),
        ({"address": "nowhere"}, "--address must be HOST:PORT or auto, got 'nowhere'"),
        ({"address": "ray://127.0.0.1:10001"}, "--address must not be one of Ray Client; give auto on a node "),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(options, message):
    if find_spec("ray") is None:
        pytest.skip("ray is not installed")
    with pytest.raises(ValueError, match=f"^{message}"):
        open_executor(ExecutorOptions("ray", **options))


MISMATCH = """RuntimeError: Version mismatch: The cluster was started with:
    Ray: 2.54.0
    Python: 3.12.3
This process on node 10.0.0.2 was started with:
    Ray: 2.60.0
    Python: 3.11.7
"""


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MISMATCH, "the Ray cluster at auto runs Ray 2.54.0 and Python 3.12.3, and this is Ray 2.60.0 and Python "
                   "3.11.7; install the same versions"),
        ("AuthenticationError: RPC error: InvalidAuthToken", "the Ray cluster at auto requires a token; "
                   "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"),
        ("RuntimeError: two\nlines", "cannot connect to the Ray cluster at auto: RuntimeError: two lines"),
    ],
)  # fmt: skip
def test_a_failed_connection_is_explained_in_a_sentence(error, message):
    assert reason("auto", error) == message
