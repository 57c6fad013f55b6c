"""Answers HTTP requests with the actions of an exported policy.

Needs onnxruntime and numpy, nothing else.

    rl-training export RUN --out policy.onnx
    python serve_policy.py policy.onnx --port 8000
    curl -d '{"obs": [0.1, 0, 0.2, 0]}' http://127.0.0.1:8000/act
    # A policy with memory needs a session; the first request of an episode sets `first`.
    curl -d '{"obs": [0.1, 0, 0.2, 0], "session": "cart-1", "first": true}' http://127.0.0.1:8000/act
    # A policy that was trained from a table also takes observations by column, and returns the names of actions.
    curl -d '{"obs": {"level": 0.5, "site": "north"}}' http://127.0.0.1:8000/act
"""

import argparse
import json
import threading
from collections import OrderedDict
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from timeit import repeat
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import onnxruntime

MAX_BYTES = 64 * 2**20  # of a request
MAX_SESSIONS = 10_000  # the one that was idle for longest is forgotten
Arrays = dict[str, np.ndarray]


class Policy:
    """An ONNX file and the description beside it."""

    def __init__(self, path: Path) -> None:
        self.description: dict[str, Any] = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.model = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.inputs = {each["name"]: {"path": [], **each} for each in self.description["inputs"]}
        self.memory: list[dict[str, Any]] = self.description["memory"]
        self.initial: Arrays = {}  # recurrent state of one row
        for part in self.memory:
            tensor = self.inputs.pop(part["input"])
            self.initial[part["input"]] = np.full((1, *tensor["shape"][1:]), part["initial"], tensor["dtype"])
        outputs = [{"path": [], **each} for each in self.description["outputs"]]
        self.actions = [each for each in outputs if each["name"].split("/")[0] == "actions"]
        self.outputs = [*(each["name"] for each in self.actions), *(part["output"] for part in self.memory)]

    def act(self, obs: Arrays, state: Arrays) -> tuple[list[np.ndarray], Arrays]:
        """Returns the actions, one array for each part of the action space, and the next recurrent state."""
        found = self.model.run(self.outputs, {**obs, **state})
        actions, new = found[: len(self.actions)], found[len(self.actions) :]
        return actions, {part["input"]: each for part, each in zip(self.memory, new, strict=True)}

    def read(self, given: Any) -> tuple[Arrays, bool]:
        """Checks observations; returns one array for each input, and whether they are a single observation."""
        if any("columns" in each for each in self.inputs.values()):
            given = self._by_column(given)
        arrays = {name: self._array(name, self._part(given, each["path"])) for name, each in self.inputs.items()}
        single = {each.ndim < len(self.inputs[name]["shape"]) for name, each in arrays.items()}
        if single == {True}:
            arrays = {name: each[None] for name, each in arrays.items()}
        if len(single) > 1 or len({len(each) for each in arrays.values()}) > 1:
            raise ValueError("all parts of obs must have the same number of rows")
        return arrays, True in single

    def _by_column(self, given: Any) -> Any:
        """Replaces objects by lists: a number for each column, and 0 or 1 for each value of a category."""
        if isinstance(given, list):
            return [self._by_column(each) for each in given]
        if not isinstance(given, dict):
            return given
        (tensor,) = self.inputs.values()
        categories: dict[str, list[str]] = tensor.get("categories", {})
        one_hot = {f"{name}={value}": (name, value) for name, values in categories.items() for value in values}
        columns = [one_hot.get(label, (label, None)) for label in tensor["columns"]]
        wanted = {name for name, _ in columns}
        if given.keys() != wanted:
            raise ValueError(f"obs must have the columns {sorted(wanted)}, got {sorted(given)}")
        for name in wanted & categories.keys():
            if given[name] not in categories[name]:
                raise ValueError(f"{name} must be one of {categories[name]}, got {given[name]!r}")
        return [given[name] if value is None else float(given[name] == value) for name, value in columns]

    def named(self, actions: np.ndarray, output: dict[str, Any]) -> list[Any]:
        """The actions of each row, with names where they have some; those of several columns are objects."""
        if "categories" not in output:
            return (np.array(output["names"])[actions] if "names" in output else actions).tolist()
        names, columns = output["categories"], output["columns"]
        return [
            {name: names[name][value] if name in names else value for name, value in zip(columns, row, strict=True)}
            for row in actions.tolist()
        ]

    def _part(self, obs: Any, path: list[Any]) -> Any:
        """Returns one part of an observation of a Dict or Tuple space, or of each in a list of Dict observations."""
        if path and isinstance(path[0], str) and isinstance(obs, list):
            return [self._part(each, path) for each in obs]
        for depth, key in enumerate(path):
            if isinstance(key, int) and isinstance(obs, list):
                self._require_parts(obs, path[:depth])
            parts = dict(enumerate(obs)) if isinstance(obs, list) else obs
            if not isinstance(parts, dict) or key not in parts:
                wanted = ", ".join("/".join(map(str, each["path"])) for each in self.inputs.values())
                raise ValueError(f"obs must have the parts {wanted}; {key!r} is missing")
            obs = parts[key]
        return obs

    def _require_parts(self, obs: list[Any], path: list[Any]) -> None:
        """Refuses numbers in other parts of the Tuple space at `path` than those that the policy reads."""
        depth = len(path)
        known = {each["path"][depth] for each in self.inputs.values() if each["path"][:depth] == path}
        if any(index not in known and has_numbers(each) for index, each in enumerate(obs)):
            raise ValueError(
                f"obs has {len(obs)} parts, but the policy reads {len(known)}; several observations are one list of "
                "rows for each part"
            )

    def _array(self, name: str, given: Any) -> np.ndarray:
        shape, dtype = self.inputs[name]["shape"][1:], np.dtype(self.inputs[name]["dtype"])
        try:
            values = np.asarray(given)
        except ValueError:
            raise ValueError(f"{name} must be lists of numbers of one length") from None
        if values.dtype.kind not in "biuf":
            raise ValueError(f"{name} must be lists of numbers")
        if not values.size or ([*values.shape] != shape and [*values.shape[1:]] != shape):
            raise ValueError(f"{name} must have shape {shape}, or [rows, ...] of it, got {[*values.shape]}")
        if dtype.kind == "f":
            with np.errstate(over="ignore"):  # becomes infinite, which is refused below
                values = values.astype(dtype, copy=False)
        if not np.isfinite(values).all():
            raise ValueError(f"{name} must hold finite numbers")
        if dtype.kind in "iu":
            self._require_integers(name, values, np.iinfo(dtype))
        if "mask" in self.inputs[name]:
            ends = np.cumsum(self.inputs[name]["mask"])[:-1]
            if not all(choice.any(-1).all() for choice in np.split(values, ends, -1)):
                raise ValueError(f"{name} has no valid action; it must have a 1 for each choice")
        return values.astype(dtype, copy=False)

    def _require_integers(self, name: str, values: np.ndarray, limits: Any) -> None:
        low, high = self.inputs[name].get("low"), self.inputs[name].get("high")
        low, high = limits.min if low is None else low, limits.max if high is None else high
        if not ((values % 1 == 0) & (values >= np.array(low)) & (values <= np.array(high))).all():
            raise ValueError(f"{name} must hold integers from {low} to {high}")


def has_numbers(value: Any) -> bool:
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, int | float) or any(map(has_numbers, values))


def nested(parts: list[tuple[list[Any], Any]]) -> Any:
    """Puts the values at their paths: objects for a Dict space, lists for a Tuple space."""
    if parts[0][0] == []:
        return parts[0][1]
    groups: dict[Any, list[tuple[list[Any], Any]]] = {}
    for (key, *path), value in parts:
        groups.setdefault(key, []).append((path, value))
    found = {key: nested(group) for key, group in groups.items()}
    return list(found.values()) if isinstance(parts[0][0][0], int) else found


class Server(ThreadingHTTPServer):
    """Keeps the recurrent states of episodes that are under way, by the name of their session."""

    daemon_threads = True

    def __init__(self, policy: Policy, host: str, port: int) -> None:
        self.policy, self.states, self.lock = policy, OrderedDict[str, Arrays](), threading.Lock()
        super().__init__((host, port), Handler)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        unknown = {*request} - {"obs", "session", "first"}
        if unknown or "obs" not in request:
            raise ValueError(f"a request has the keys obs, session and first, got {sorted(request)}")
        obs, single = self.policy.read(request["obs"])
        rows, name = len(next(iter(obs.values()))), request.get("session")
        if not (name is None or isinstance(name, str)) or not isinstance(request.get("first", False), bool):
            raise ValueError("session must be a string, and first must be true or false")
        with self.lock:
            state = None if name is None or request.get("first") else self.states.get(name)
        if state is None:
            state = {part: initial.repeat(rows, axis=0) for part, initial in self.policy.initial.items()}
        elif len(next(iter(state.values()))) != rows:
            raise ValueError(f"session {name!r} has another number of rows; set first to begin new episodes")
        actions, state = self.policy.act(obs, state)
        if name is not None and state:
            with self.lock:
                self.states[name] = state
                self.states.move_to_end(name)
                if len(self.states) > MAX_SESSIONS:
                    self.states.popitem(last=False)
        parts = [self.policy.named(*each) for each in zip(actions, self.policy.actions, strict=True)]
        paths = [output["path"] for output in self.policy.actions]
        return {"actions": nested([*zip(paths, [part[0] if single else part for part in parts], strict=True)])}


class Handler(BaseHTTPRequestHandler):
    """`GET /` returns the description, `POST /act` returns actions."""

    server: Server
    protocol_version = "HTTP/1.1"  # keeps connections open
    disable_nagle_algorithm, wbufsize = True, 65_536  # one packet for head and body, sent at once
    timeout = 60

    def do_GET(self) -> None:
        if self.path != "/":
            return self.reply(404, {"error": "use GET / for the description and POST /act for actions"})
        self.reply(200, self.server.policy.description)

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > MAX_BYTES:
            self.close_connection = True
            return self.reply(411, {"error": f"Content-Length must be given, and at most {MAX_BYTES}"})
        body, place = self.rfile.read(int(length)), urlsplit(self.path)
        if place.path != "/act":
            return self.reply(404, {"error": "use POST /act"})
        try:
            raw = self.headers.get_content_type() == "application/octet-stream"
            request = self.raw(body, dict(parse_qsl(place.query))) if raw else self.json(body)
            self.reply(200, self.server.answer(request))
        except (ValueError, RecursionError) as error:
            self.reply(400, {"error": str(error)})

    def json(self, body: bytes) -> dict[str, Any]:
        try:
            request = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise ValueError(f'the body must be JSON, such as {{"obs": [0.1, 0.2]}}: {error}') from None
        if not isinstance(request, dict):
            raise ValueError('a request must be an object, such as {"obs": [0.1, 0.2]}')
        return request

    def raw(self, body: bytes, query: dict[str, str]) -> dict[str, Any]:
        """Reads rows of numbers in the input's dtype, little-endian; `session` and `first` are in the query."""
        inputs = self.server.policy.inputs
        if len(inputs) > 1:
            raise ValueError("application/octet-stream needs a policy with one input; send JSON")
        (tensor,) = inputs.values()
        dtype, shape = np.dtype(tensor["dtype"]).newbyteorder("<"), tensor["shape"][1:]
        size = dtype.itemsize * int(np.prod(shape))
        if not body or len(body) % size:
            raise ValueError(f"{tensor['name']} needs {size} bytes a row, got {len(body)}")
        obs = np.frombuffer(body, dtype).reshape(-1, *shape)
        return {"obs": obs, "session": query.get("session"), "first": query.get("first") == "true"}

    def reply(self, status: int, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, format: str, *values: Any) -> None:
        """Logs no line for each request."""


def valid_input(described: dict[str, Any]) -> np.ndarray:
    """Returns one row that the policy accepts: every action of a mask, the lowest integers, or zeros."""
    dtype = np.dtype(described["dtype"])
    value = 1 if "mask" in described else (described.get("low") or 0) if dtype.kind in "iu" else 0
    return np.broadcast_to(np.array(value, dtype), (1, *described["shape"][1:]))


def measure(server: Server, requests: int) -> dict[str, float]:
    """Median and 99th percentile of one observation in milliseconds: the model alone, and over HTTP."""
    policy = server.policy
    obs = {name: valid_input(each) for name, each in policy.inputs.items()}
    rows = [(each["path"], obs[name][0].tolist()) for name, each in policy.inputs.items()]
    body = json.dumps({"obs": nested(rows), "session": "a"})
    threading.Thread(target=server.serve_forever, daemon=True).start()
    connection = HTTPConnection("127.0.0.1", server.server_address[1])

    def request() -> None:
        connection.request("POST", "/act", body)
        response = connection.getresponse()
        answer = response.read()
        if response.status != 200:
            raise SystemExit(f"the timed request was refused: {answer.decode()}")

    found: dict[str, float] = {}
    for name, call in (("model", lambda: policy.act(obs, policy.initial)), ("http", request)):
        times = np.array(repeat(call, number=1, repeat=requests + 50)[50:]) * 1e3  # the first requests fill caches
        found |= {f"{name}_ms_median": float(np.median(times)), f"{name}_ms_p99": float(np.percentile(times, 99))}
    connection.close()
    server.shutdown()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve an exported policy over HTTP.")
    parser.add_argument("policy", type=Path, help="an .onnx file with its .json beside it")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument("--port", type=int, default=8000, help="0: any free port")
    parser.add_argument("--time", type=int, metavar="N", help="time N requests, print the result and exit")
    options = parser.parse_args()
    for path in (options.policy, options.policy.with_suffix(".json")):
        if not path.is_file():
            parser.error(f"{path} not found; write it with: rl-training export RUN --out policy.onnx")
    if options.policy.suffix != ".onnx":
        parser.error(f"{options.policy} is no ONNX file")
    if options.time is not None and options.time < 1:
        parser.error(f"--time must be at least 1, got {options.time}")
    try:
        policy = Policy(options.policy)
    except Exception as error:  # onnxruntime has no common class for its errors
        parser.error(f"{options.policy} or its .json is damaged ({error}); export the policy again")
    try:
        server = Server(policy, options.host, options.port)
    except (OSError, OverflowError) as error:
        parser.error(f"cannot listen at {options.host}:{options.port} ({error}); give another --host or --port")
    with server:
        if options.time:
            print(json.dumps(measure(server, options.time)))
            return
        print(f"serving {options.policy} at http://{options.host}:{server.server_address[1]}", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("stopped")


if __name__ == "__main__":
    main()
