"""A bench whose config file is edited after its cells were trained."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rl_training.experiment.bench.plan import parse_plan
from rl_training.experiment.bench.runner import Bench
from rl_training.experiment.config.train_config import ConfigError

CONFIG: dict[str, Any] = {
    "algo": "bc", "env_id": "Pendulum-v1", "dataset": {"kind": "random", "rows": 200}, "total_timesteps": 4,
    "eval_interval": 0, "algo_kwargs": {"hidden_sizes": [8], "batch_size": 8},
}  # fmt: skip


def bench(folder: Path, *, episodes: int = 1, options: dict[str, object] | None = None, **changes: object) -> Bench:
    """The bench of a config file that has these changes now."""
    config = {**CONFIG, **changes, "algo_kwargs": {**CONFIG["algo_kwargs"], **(options or {})}}
    (folder / "mine.yaml").write_text(json.dumps(config))
    plan = {"configs": ["mine.yaml"], "seeds": [0], "episodes": episodes}
    return Bench(parse_plan(plan), folder / "bench")


@pytest.fixture(scope="module")
def trained(tmp_path_factory, forking):
    folder = tmp_path_factory.mktemp("edited")
    with forking(), pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (done := bench(folder)).run()
    assert done.status == "done"
    return folder


@pytest.fixture
def folder(trained, tmp_path, monkeypatch):
    copy = Path(shutil.copytree(trained, tmp_path / "copy"))
    monkeypatch.chdir(copy)
    return copy


def without_config(folder: Path) -> None:
    """Makes a result.json as earlier versions wrote it."""
    result = json.loads((file := folder / "bench" / "mine" / "result.json").read_text())
    del result["config"], result["sha256"]
    file.write_text(json.dumps(result))


@pytest.mark.parametrize("runs", ["kept", "deleted", "of an earlier version"])
def test_an_edited_config_file_is_refused_by_its_keys(folder, runs):
    if runs == "deleted":
        shutil.rmtree(folder / "bench" / "mine" / "seed_0")
    elif runs == "of an earlier version":
        without_config(folder)
    expected = (
        f"{folder}/bench/mine was trained with another config (algo_kwargs.batch_size: 8 there, 16 here). Undo the "
        "edit of mine.yaml, or choose another --output."
    )
    for episodes in (1, 2):  # of the scores that are stored, and of others
        with pytest.raises(ConfigError) as caught:
            bench(folder, episodes=episodes, options={"batch_size": 16}).run()
        assert str(caught.value) == expected
    (again := bench(folder)).run()
    assert again.status == "done"


def test_another_algorithm_in_the_file_is_named_without_its_options(folder):
    with pytest.raises(ConfigError, match=r"another config \(algo: 'bc' there, 'td3_bc' here\)\. Undo"):
        bench(folder, algo="td3_bc").run()


def test_keys_without_an_effect_may_be_edited_and_others_not(folder):
    (again := bench(folder, log_interval=2)).run()
    assert again.status == "done"
    with pytest.raises(ConfigError, match=r"\(eval_stochastic: False there, True here\)"):
        bench(folder, eval_stochastic=True).run()


def test_a_bench_of_an_earlier_version_without_its_runs_is_still_done(folder):
    without_config(folder)
    shutil.rmtree(folder / "bench" / "mine" / "seed_0")
    (again := bench(folder, options={"batch_size": 16})).run()
    assert again.status == "done"
