"""The example server answers with onnxruntime and numpy alone."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.algorithms import PPOAlgorithm
from rl_training.experiment.agent import Agent, load_agent
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.export.description import describe_policy
from rl_training.experiment.export.exporting import export_agent
from rl_training.experiment.export.files import write_policy
from rl_training.experiment.export.policy import ExportedPolicy
from rl_training.runtime.memory import Memory
from rl_training.types import EnvSpec

pytest.importorskip("onnxruntime")
ROOT = Path(__file__).resolve().parents[1]
# An entry of None makes an import fail, so the server cannot use the packages that it must not need.
START = (
    "import runpy, sys; sys.modules |= {'torch': None, 'rl_training': None, 'gymnasium': None}; sys.argv = sys.argv[1:]"
)
START += "; runpy.run_path(sys.argv[0], run_name='__main__')"


@pytest.fixture(scope="module")
def agent() -> Any:
    return load_agent(ROOT / "tests" / "fixtures" / "dqn_run")


@pytest.fixture(scope="module")
def exported(agent, tmp_path_factory) -> Path:
    return export_agent(agent, tmp_path_factory.mktemp("served") / "policy.onnx", observations=16).path


@pytest.fixture(scope="module")
def server(exported) -> Iterator[HTTPConnection]:
    yield from served(exported)


def served(path: Path) -> Iterator[HTTPConnection]:
    command = [sys.executable, "-c", START, str(ROOT / "examples" / "serve_policy.py"), str(path), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline() if process.stdout else ""
        assert "http://127.0.0.1:" in line, process.stderr.read() if process.stderr else ""
        connection = HTTPConnection("127.0.0.1", int(line.rsplit(":", 1)[1]), timeout=20)
        yield connection
        connection.close()
    finally:
        process.kill()
        process.communicate(timeout=20)


def ask(server: HTTPConnection, request: Any, *, path: str = "/act", **headers: str) -> tuple[int, Any]:
    body = request if isinstance(request, bytes | str) else json.dumps(request)
    server.request("POST", path, body, headers)
    response = server.getresponse()
    return response.status, json.loads(response.read())


def test_one_observation_and_several_are_answered_as_the_agent_would(server, agent):
    obs = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    assert ask(server, {"obs": obs[0].tolist()}) == (200, {"actions": int(agent.predict(obs[0]))})
    assert ask(server, {"obs": obs.tolist(), "session": "a"}) == (200, {"actions": agent.predict(obs).tolist()})
    raw = {"Content-Type": "application/octet-stream"}
    assert ask(server, obs.tobytes(), **raw) == (200, {"actions": agent.predict(obs).tolist()})


def test_the_description_is_served(server):
    server.request("GET", "/")
    response = server.getresponse()
    assert (response.status, json.loads(response.read())["algorithm"]) == (200, "dqn")


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"obs": [1, 2, 3]}, "obs must have shape [4], or [rows, ...] of it, got [3]"),
        ({"obs": [[1, 2, 3, 4], [1, 2]]}, "obs must be lists of numbers of one length"),
        ({"obs": ["a", "b", "c", "d"]}, "obs must be lists of numbers"),
        ({"obs": []}, "obs must have shape [4], or [rows, ...] of it, got [0]"),
        ('{"obs": [1, 2, 3, NaN]}', "obs must hold finite numbers"),
        ({"obs": [1, 2, 3, 1e39]}, "obs must hold finite numbers"),  # infinite as float32
        ({"observation": [1, 2, 3, 4]}, "a request has the keys obs, session and first, got ['observation']"),
        ([1, 2, 3, 4], 'a request must be an object, such as {"obs": [0.1, 0.2]}'),
        ({"obs": [1, 2, 3, 4], "session": 3}, "session must be a string, and first must be true or false"),
    ],
)
def test_a_wrong_request_is_answered_with_what_was_expected(server, request_, message):
    assert ask(server, request_) == (400, {"error": message})


def test_text_and_unknown_paths_are_refused_and_the_connection_stays_open(server):
    status, answer = ask(server, "not json")
    assert status == 400
    assert answer["error"].startswith('the body must be JSON, such as {"obs": [0.1, 0.2]}: Expecting value')
    assert ask(server, b"123", **{"Content-Type": "application/octet-stream"}) == (
        400, {"error": "obs needs 16 bytes a row, got 3"},
    )  # fmt: skip
    assert ask(server, {}, path="/elsewhere")[0] == 404
    assert ask(server, {"obs": [0, 0, 0, 0]})[0] == 200


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--port", "99999"], r"cannot listen at 127.0.0.1:99999 \(.*\); give another --host or --port"),
        (["--port", "PORT"], r"cannot listen at 127.0.0.1:\d+ \(.*Address already in use\); give another"),
        (["--time", "0"], "--time must be at least 1, got 0"),
    ],
)
def test_a_wrong_option_of_the_server_is_one_sentence(server, exported, options, message):
    refuses([str(exported), *(str(server.port) if each == "PORT" else each for each in options)], message)


@pytest.mark.parametrize("damaged", ["policy.onnx", "policy.json"])
def test_a_damaged_policy_is_one_sentence(exported, tmp_path, damaged):
    shutil.copytree(exported.parent, tmp_path, dirs_exist_ok=True)
    (tmp_path / damaged).write_text("{}")
    path = str(tmp_path / "policy.onnx")
    refuses([path, "--port", "0"], r"policy.onnx or its .json is damaged \(.*\); export the policy again")


def refuses(words: list[str], message: str) -> None:
    command = [sys.executable, "-c", START, str(ROOT / "examples" / "serve_policy.py"), *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    assert re.search(message, ended.stderr)


def exported_agent(spec: EnvSpec, folder: Path) -> Agent:
    """Exports an untrained PPO agent for these spaces, without an environment, to policy.onnx."""
    learner = PPOAlgorithm.build(spec, hidden_sizes=[4]).eval()
    agent = Agent(learner, spec, parse_config({"algo": "ppo"}), folder)
    policy = ExportedPolicy(learner, spec)
    write_policy(policy, folder / "policy.onnx")
    (folder / "policy.json").write_text(json.dumps(describe_policy(agent, policy, with_env=False)))
    return agent


def test_dict_observations_and_actions_are_objects(tmp_path):
    observed = {"type": "Dict", "subspaces": {
        "goal": {"type": "Discrete", "n": 3, "start": 0, "dtype": "int64"},
        "speed": {"type": "Box", "dtype": "float32", "shape": [2]},
    }}  # fmt: skip
    part = {"type": "Discrete", "n": 2, "start": 0, "dtype": "int64"}
    acted = {"type": "Tuple", "subspaces": [part, {"type": "Dict", "subspaces": {"left": part}}]}
    spec = EnvSpec(
        (5,), "multi_discrete", 2, action_shape=(2,), action_sizes=(2, 2), action_starts=(0, 0), obs_space=observed,
        action_space=acted,
    )  # fmt: skip
    agent = exported_agent(spec, tmp_path)
    obs = {"goal": 2, "speed": [0.5, -3.0]}
    first, second = agent.predict(obs)
    for server in served(tmp_path / "policy.onnx"):
        assert ask(server, {"obs": obs}) == (200, {"actions": [int(first), {"left": int(second["left"])}]})
        status, answer = ask(server, {"obs": {"goal": 2}})
        assert (status, answer) == (400, {"error": "obs must have the parts goal, speed; 'speed' is missing"})
        assert ask(server, {"obs": {"goal": [2, 1], "speed": [[0, 0]]}})[0] == 400
        rows = ask(server, {"obs": [obs, {"goal": 0, "speed": [1.0, 2.0]}]})
        assert rows == ask(server, {"obs": {"goal": [2, 0], "speed": [[0.5, -3.0], [1.0, 2.0]]}})
        assert rows[0] == 200
        assert ask(server, {"obs": [obs, {"goal": 0}]}) == (status, answer)
        assert ask(server, {"obs": []})[0] == 400
        for goal in (-1, 3, 1.5, [1, 3]):
            status, answer = ask(server, {"obs": {"goal": goal, "speed": [0, 0] if goal != [1, 3] else [[0, 0]] * 2}})
            assert (status, answer) == (400, {"error": "obs/goal must hold integers from 0 to 2"})


def test_bounds_of_a_matrix_keep_its_shape(tmp_path):
    shape = {"dtype": "int64", "shape": [2, 2]}
    matrix = {"type": "MultiDiscrete", **shape, "nvec": [[2, 3], [4, 5]], "start": [[1, 0], [-1, -1]]}
    agent = exported_agent(EnvSpec((14,), "discrete", 2, obs_space=matrix), tmp_path)
    described = json.loads((tmp_path / "policy.json").read_text())["inputs"][0]
    assert (described["low"], described["high"]) == ([[1, 0], [-1, -1]], [[2, 2], [2, 3]])
    obs = [[2, 2], [0, 3]]
    for server in served(tmp_path / "policy.onnx"):
        assert ask(server, {"obs": obs}) == (200, {"actions": int(agent.predict(obs))})


def test_booleans_are_numbers(tmp_path):
    agent = exported_agent(
        EnvSpec((2,), "discrete", 2, obs_space={"type": "Box", "dtype": "bool", "shape": [2]}), tmp_path
    )
    obs = [True, False]
    for server in served(tmp_path / "policy.onnx"):
        assert ask(server, {"obs": obs}) == (200, {"actions": int(agent.predict(obs))})


def test_several_tuple_observations_are_one_list_for_each_part(tmp_path):
    parts = [{"type": "Discrete", "n": 3, "start": 0, "dtype": "int64"}, {"type": "Text"}] * 2
    agent = exported_agent(EnvSpec((6,), "discrete", 2, obs_space={"type": "Tuple", "subspaces": parts}), tmp_path)
    rows = [(0, "a", 1, "b"), (1, "a", 2, "b"), (2, "a", 0, "b")]
    for server in served(tmp_path / "policy.onnx"):
        assert ask(server, {"obs": rows[0]}) == (200, {"actions": int(agent.predict(rows[0]))})
        expected = (200, {"actions": agent.predict(rows).tolist()})
        assert ask(server, {"obs": [[0, 1, 2], ["a"] * 3, [1, 2, 0], ["b"] * 3]}) == expected
        status, answer = ask(server, {"obs": [[0, 1, 0, 1]] * 5})
        assert (status, "one list of rows for each part" in answer["error"]) == (400, True)


def test_parts_that_hold_text_only_may_be_nested(tmp_path):
    word, number = {"type": "Text"}, {"type": "Discrete", "n": 3, "start": 0, "dtype": "int64"}
    words = {"type": "Dict", "subspaces": {"a": word, "b": {"type": "Tuple", "subspaces": [word, word]}}}
    agent = exported_agent(
        EnvSpec((6,), "discrete", 2, obs_space={"type": "Tuple", "subspaces": [number, words, number]}), tmp_path
    )
    row = (0, {"a": "x", "b": ("y", "z")}, 1)
    for server in served(tmp_path / "policy.onnx"):
        assert ask(server, {"obs": row}) == (200, {"actions": int(agent.predict(row))})


def masked_agent(sizes: tuple[int, ...], folder: Path) -> Any:
    count = sum(sizes)
    observed = {"type": "Dict", "subspaces": {
        "action_mask": {"type": "MultiBinary", "dtype": "int8", "shape": [count]},
        "obs": {"type": "Box", "dtype": "float32", "shape": [1]},
    }}  # fmt: skip
    actions: dict[str, Any] = {"action_kind": "discrete", "action_dim": 3}
    if len(sizes) > 1:
        actions = {"action_kind": "multi_discrete", "action_dim": 2, "action_shape": (2,), "action_starts": (0, 0)}
        actions["action_sizes"] = sizes
    return exported_agent(EnvSpec((count + 1,), **actions, obs_space=observed, action_mask=0), folder)


@pytest.mark.parametrize("sizes", [(3,), (2, 2)])
def test_a_mask_without_a_valid_action_is_refused(tmp_path, sizes):
    agent, count = masked_agent(sizes, tmp_path), sum(sizes)
    obs = {"obs": [0.5], "action_mask": [1] + [0] * (count - 2) + [1]}
    stuck = {"obs": [0.5], "action_mask": [0] * count if len(sizes) == 1 else [1, 0, 0, 0]}
    for server in served(tmp_path / "policy.onnx"):
        assert ask(server, {"obs": obs}) == (200, {"actions": agent.predict(obs).tolist()})
        fault = {"error": "obs/action_mask has no valid action; it must have a 1 for each choice"}
        assert ask(server, {"obs": stuck}) == (400, fault)


def test_the_request_that_is_timed_is_valid(tmp_path):
    masked_agent((3,), tmp_path)
    command = [sys.executable, str(ROOT / "examples" / "serve_policy.py"), str(tmp_path / "policy.onnx")]
    timed = subprocess.run(
        [*command, "--port", "0", "--time", "3"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (timed.returncode, timed.stderr) == (0, "")
    assert json.loads(timed.stdout).keys() == {
        f"{name}_ms_{part}" for name in ("model", "http") for part in ("median", "p99")
    }


def test_columns_of_a_table_are_taken_by_name_and_actions_have_names(tmp_path):
    spec = EnvSpec(
        (3,), "discrete", 2, obs_names=("level", "site=north", "site=south"),
        categories={"site": ["north", "south"], "actions": ["down", "up"]},
    )  # fmt: skip
    agent = exported_agent(spec, tmp_path)
    rows = [{"level": 0.5, "site": "north"}, {"level": -3, "site": "south"}]
    expected = agent.predict(rows).tolist()
    assert set(expected) <= {"down", "up"}
    for server in served(tmp_path / "policy.onnx"):
        assert ask(server, {"obs": rows}) == (200, {"actions": expected})
        assert ask(server, {"obs": rows[0]}) == (200, {"actions": expected[0]})
        assert ask(server, {"obs": [0.5, 1, 0]}) == (200, {"actions": expected[0]})
        unknown = {"error": "site must be one of ['north', 'south'], got 'west'"}
        assert ask(server, {"obs": {"level": 0, "site": "west"}}) == (400, unknown)
        assert ask(server, {"obs": {"level": 0}})[0] == 400


def test_several_named_actions_are_an_object_by_column(tmp_path):
    spec = EnvSpec(
        (1,), "multi_discrete", 2, action_shape=(2,), action_sizes=(3, 2), action_starts=(0, 1), obs_names=("level",),
        action_columns=("speed", "pump"), categories={"speed": ["pause", "slow", "fast"]},
    )  # fmt: skip
    agent = exported_agent(spec, tmp_path)
    rows = [{"level": 0.5}, {"level": -3}]
    chosen = agent.predict(rows)
    speeds, pumps = chosen["speed"].tolist(), chosen["pump"].tolist()
    assert set(speeds) <= {"pause", "slow", "fast"}
    assert set(pumps) <= {1, 2}
    expected = [{"speed": speed, "pump": pump} for speed, pump in zip(speeds, pumps, strict=True)]
    for server in served(tmp_path / "policy.onnx"):
        assert ask(server, {"obs": rows}) == (200, {"actions": expected})
        assert ask(server, {"obs": rows[0]}) == (200, {"actions": expected[0]})


@pytest.mark.slow
def test_a_session_keeps_the_memory_of_its_episode(tmp_path):
    from rl_training import Dreamer

    options: dict[str, Any] = {"size": "tiny", "learning_starts": 64, "batch_size": 2, "horizon": 2, "eval_interval": 0}
    agent = Dreamer("CartPole-v1", total_timesteps=100, output_dir=str(tmp_path / "run"), **options).learn().agent
    path = export_agent(agent, tmp_path / "policy.onnx", observations=256).path
    obs = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    for server in served(path):
        for _ in range(2):
            memory = Memory()
            expected = [int(agent.predict(each[None], memory=memory)[0]) for each in obs]
            answers = [
                ask(server, {"obs": each.tolist(), "session": "a", "first": step == 0})[1]["actions"]
                for step, each in enumerate(obs)
            ]
            assert answers == expected
        assert "another number of rows" in ask(server, {"obs": obs.tolist(), "session": "a"})[1]["error"]
