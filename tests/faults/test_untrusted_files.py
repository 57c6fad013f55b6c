"""Files from a stranger run no code: no import, no unpickling, no process, no connection.

All cases run in one process that watches itself with an audit hook: `python test_untrusted_files.py FOLDER`.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import sys
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rl_training
from rl_training.experiment.agent import load_agent
from rl_training.experiment.collection import collect_dataset
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.datasets import roll_recipe
from rl_training.experiment.dreams import _play
from rl_training.experiment.manager import ExperimentManager
from rl_training.experiment.trust import remember

sys.path.insert(0, str(Path(__file__).parent))  # also in the process that opens the files
from strangers import Case, Found, command_cases, evil, forge, invoke, main, opened  # type: ignore[import-not-found]

sys.path.pop(0)

ODD_IDS = (
    ":Evil-v0", "evil:", "evil::Evil-v0", "evil:evil:Evil-v0", " evil:Evil-v0", "evil :Evil-v0", "evil\n:Evil-v0",
    ".evil:Evil-v0", "..evil:Evil-v0", "pkg.:Evil-v0", "pkg..sub:Evil-v0", "./evil:Evil-v0", "pkg/sub:Evil-v0",
    "ev\u200bil:Evil-v0", "\uff45vil:Evil-v0", "evil.py:Evil-v0", "my-evil:Evil-v0", "evil:PongNoFrameskip-v4",
    "ale_py:evil:PongNoFrameskip-v4", "evil:ALE/Pong-v5", "evil:" + "A" * 5000 + "-v0", "a" * 5000 + ":Evil-v0",
)  # fmt: skip


class Bomb:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.system, ("touch unpickled",)


def try_id(env_id: str, folder: Path) -> None:
    rl_training.evaluate_checkpoint(evil(folder, env_id))


def moved(folder: Path) -> None:
    """The name of a trusted module, which another file has taken."""
    remember(parse_config({"algo": "dqn", "env_id": "moved:Evil-v0"}), warn=print)
    run = evil(folder, "moved:Evil-v0")
    sys.path.insert(0, str(folder / "first"))
    try:
        rl_training.evaluate_checkpoint(run)
    finally:
        sys.path.pop(0)


def linked(folder: Path) -> None:
    """A trusted file, which was replaced by a link."""
    remember(parse_config({"algo": "dqn", "env_id": "linked:Evil-v0"}), warn=print)
    (folder / "linked.py").unlink()
    (folder / "linked.py").symlink_to(folder / "evil.py")
    rl_training.evaluate_checkpoint(evil(folder, "linked:Evil-v0"))


def recipe_in(folder: Path) -> None:
    recipe = {"kind": "random", "rows": 20, "env_id": "evil:Evil-v0"}
    rl_training.resume_training(forge(folder, "recipe", algo="bc", algo_kwargs={}, env_id=None, dataset=recipe))


def policy_of(folder: Path) -> None:
    """Transitions of the stranger's agent, in an environment that the user names."""
    recipe = {"kind": "policy", "rows": 20, "policy": str(evil(folder))}
    config = parse_config({"algo": "bc", "env_id": "CartPole-v1", "dataset": recipe})
    roll_recipe(config, config.dataset)  # type: ignore[arg-type]  # a recipe, as given above


def config_of_a_run(folder: Path) -> None:
    """The config file of a stranger's run is not the user's own."""
    invoke("train", evil(folder) / "config.yaml", "--output", folder / "own")


def options_of_a_run(folder: Path) -> None:
    """Options of the stranger's environment, for an environment that the user names."""
    run = evil(folder, "CartPole-v1", env_kwargs={"inner": {"a": ["evil:Evil-v0"]}})
    invoke("data", "collect", run, "--env", "Acrobot-v1", "--steps", 8, "--out", "options.npz")


def nested(folder: Path) -> None:
    value: Any = "evil:Evil-v0"
    for _ in range(200):
        value = [value]
    rl_training.evaluate_checkpoint(evil(folder, "CartPole-v1", env_kwargs={"inner": value}))


def dreamed(folder: Path) -> None:
    """A world model that is asked for dreams; every other kind of agent is refused before."""
    agent = load_agent(evil(folder))
    _play(agent, 4, 2, 0)


def pickled_npz(folder: Path) -> Path:
    array = np.empty(3, object)
    array[:] = [Bomb()] * 3
    columns: dict[str, Any] = dict.fromkeys(("obs", "actions", "rewards", "next_obs", "dones"), array)
    np.savez(folder / "pickled.npz", **columns)
    return folder / "pickled.npz"


def huge_npz(folder: Path) -> Path:
    """Headers that promise 8 TB in a file of some bytes."""
    data = io.BytesIO()
    np.lib.format.write_array_header_1_0(data, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
    with zipfile.ZipFile(folder / "huge.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("obs", "actions", "rewards", "next_obs", "dones"):
            archive.writestr(f"{name}.npy", data.getvalue() + bytes(1000))
    return folder / "huge.npz"


def pickled_obs(folder: Path) -> None:
    np.save(folder / "obs.npy", np.array([Bomb()], object), allow_pickle=True)
    invoke("predict", forge(folder, "obs"), "--obs-file", folder / "obs.npy")


def pickled_weights(folder: Path) -> Path:
    data = io.BytesIO()
    torch.save({"weight": Bomb()}, data)
    return forge(folder, f"weights_{len(list(folder.iterdir()))}", {"learner.safetensors": data.getvalue()})


def tagged_yaml(folder: Path) -> None:
    run = forge(folder, "tagged")
    with (run / "config.yaml").open("a") as file:
        file.write('env_kwargs: !!python/object/apply:os.system ["touch executed"]\n')
    invoke("resume", run)


def source_record(folder: Path) -> None:
    """A run that names files of its own choice as the source of its environment."""
    run = evil(folder)
    (run / "run.json").write_text(json.dumps({"env_source": {"module": "evil", "file": "/dev/zero", "sha256": "0"}}))
    rl_training.evaluate_checkpoint(run)


def trusted_now(folder: Path) -> Any:
    return rl_training.evaluate_checkpoint(evil(folder), num_episodes=1, trust="evil")


def loaded(folder: Path, **changes: Any) -> rl_training.ManagedAlgorithm:
    return rl_training.ManagedAlgorithm.load(evil(folder, **changes))


REFUSED: dict[str, Case] = {
    "evaluate_checkpoint": lambda folder: rl_training.evaluate_checkpoint(evil(folder)),
    "resume_training": lambda folder: rl_training.resume_training(evil(folder)),
    "load, evaluate": lambda folder: loaded(folder).evaluate(),
    "load, learn": lambda folder: loaded(folder).learn(),
    "collect_dataset": lambda folder: collect_dataset(str(evil(folder)), rows=10),
    "ExperimentManager.resume": lambda folder: ExperimentManager(
        parse_config({"algo": "dqn", "env_id": "CartPole-v1", "output_dir": str(evil(folder))})
    ).resume(),
    "module in a package": partial(try_id, "pkg.sub:Evil-v0"),
    "module in a namespace": partial(try_id, "spread.inner:Evil-v0"),
    "module with the name of one of Python's": partial(try_id, "this:Evil-v0"),
    "module with the name of a loaded one": partial(try_id, "json:Evil-v0"),
    "one of Python's own modules": partial(try_id, "antigravity:X-v0"),
    "module in an archive": partial(try_id, "zipped:Evil-v0"),
    "module that is not there": partial(try_id, "absent:Evil-v0"),
    "module in the options": lambda folder: loaded(
        folder, env_id="CartPole-v1", env_kwargs={"inner": ["evil:Evil-v0"]}
    ).evaluate(),
    "module of a dataset recipe": recipe_in,
    "name of a trusted module": moved,
    "link in place of a trusted file": linked,
    "record of another file": source_record,
    "config file of a run": config_of_a_run,
    "module in the options, other environment": options_of_a_run,
    "module deep in the options": nested,
    "dreams of a world model": dreamed,
    **{f"env_id {env_id[:40]!r}": partial(try_id, env_id) for env_id in ODD_IDS},
}
DAMAGED: dict[str, Case] = {
    "pickled dataset, checked": lambda folder: invoke("data", "check", pickled_npz(folder)),
    "pickled dataset, loaded": lambda folder: rl_training.load_transition_dataset(pickled_npz(folder)),
    "pickled observations": pickled_obs,
    "pickled weights, evaluated": lambda folder: invoke("evaluate", pickled_weights(folder)),
    "pickled weights, resumed": lambda folder: invoke("resume", pickled_weights(folder)),
    "file outside the checkpoint": lambda folder: rl_training.evaluate_checkpoint(
        forge(folder, "outside", {"../../../outside.json": b"{}"})
    ),
    "YAML with Python tags": tagged_yaml,
}
HARMLESS: dict[str, Case] = {
    "dataset of 8 TB": lambda folder: rl_training.load_transition_dataset(huge_npz(folder)),
}
ALLOWED: dict[str, Case] = {
    "predict_checkpoint": lambda folder: rl_training.predict_checkpoint(evil(folder), [0.0] * 4),
    "load, predict": lambda folder: loaded(folder).predict([0.0] * 4),
    "policy in another environment": policy_of,
}
COMMANDS = dict(command_cases())
CONTROL = "trusted now"
CASES = {**REFUSED, **DAMAGED, **HARMLESS, **ALLOWED, **COMMANDS}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    return opened(__file__, tmp_path_factory.mktemp("stranger"))


@pytest.mark.parametrize("case", CASES)
def test_a_strangers_file_runs_nothing(found, case):
    assert found[case][1] == []


@pytest.mark.parametrize("case", REFUSED)
def test_a_module_of_a_strangers_run_is_refused_in_one_sentence(found, case):
    outcome = found[case][0]
    assert outcome.startswith("refused ")
    assert "--trust " in outcome
    assert "\n" not in outcome.strip()


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_or_malicious_file_is_refused_in_one_sentence(found, case):
    outcome = found[case][0]
    assert outcome.startswith("refused ")
    assert "\n" not in outcome.strip()


@pytest.mark.parametrize("case", HARMLESS)
def test_a_file_that_claims_more_than_the_memory_raises_an_error(found, case):
    assert not found[case][0].startswith("returned ")


@pytest.mark.parametrize("case", ALLOWED)
def test_a_strangers_agent_predicts_without_its_environment(found, case):
    assert found[case][0].startswith("returned ")


@pytest.mark.parametrize("command", ["evaluate", "resume", "verify", "data collect"])
def test_commands_refuse_a_module_with_exit_code_2(found, command):
    assert found[command][0].startswith("refused with exit code 2: error: ")
    assert "--trust evil" in found[command][0]


def test_the_hook_sees_a_module_that_is_trusted_now(found):
    outcome, events = found[CONTROL]
    assert outcome.startswith("returned ")
    assert any(event.startswith("exec ") and event.endswith("evil.py") for event in events)


def test_pickles_of_this_file_would_run_their_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickle.dumps(Bomb()))
    assert (tmp_path / "unpickled").exists()


if __name__ == "__main__":
    main({**CASES, CONTROL: trusted_now})
