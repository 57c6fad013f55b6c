"""`data collect` records transitions of an agent or of random actions."""

from __future__ import annotations

import json
import os

import pytest

from rl_training.data import load_transition_dataset
from rl_training.experiment import collection


def test_collected_random_transitions_are_usable_for_training(cli, tmp_path):
    result = cli("data", "collect", "random", "--env", "CartPole-v1", "--steps", "80", "--out", tmp_path / "rows.npz")
    assert result.stdout.startswith(f"data        {tmp_path}/rows.npz: 80 transitions, "), result.stderr
    report = json.loads(cli("data", "check", tmp_path / "rows.npz", "--json").stdout)
    assert (report["rows"], report["trainable"]) == (80, True)


def test_collect_is_refused_before_it_starts_where_nothing_can_be_written(cli, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    monkeypatch.setattr(collection, "collect_dataset", lambda *_, **__: pytest.fail("collected"))
    out = tmp_path / "rows.npz"
    result = cli("data", "collect", "random", "--env", "CartPole-v1", "--steps", "80", "--out", out)
    message = f"error: {out}: Permission denied; change its permissions, or give another path\n"
    assert (result.exit_code, result.stderr) == (2, message)


def test_collect_counts_complete_and_truncated_episodes(cli, tmp_path):
    def report(steps: int) -> list[str]:  # of eight Pendulums side by side, whose episodes have 200 steps
        options = ["--env", "Pendulum-v1", "--steps", steps, "--out", tmp_path / f"{steps}.npz"]
        return [line.split(": ")[-1] for line in cli("data", "collect", "random", *options).stdout.splitlines()[:2]]

    truncated = "truncated   8 unfinished episodes, marked as truncated"
    assert report(1600)[0] == "1,600 transitions, 8 complete episodes"
    assert report(1608) == ["1,608 transitions, 8 complete episodes", truncated]
    assert report(80) == ["80 transitions, 0 complete episodes", truncated]


def test_collect_from_a_run_repeats_with_its_seed(cli, pendulum, tmp_path):
    def rows(name: str, *options: str) -> str:
        result = cli("data", "collect", pendulum, "--steps", "16", "--out", tmp_path / name, *options)
        assert result.exit_code == 0, result.stderr
        return load_transition_dataset(tmp_path / name).fingerprint()

    first = rows("first.npz")  # in the environment the run was trained in
    assert first == rows("again.npz", "--env", "Pendulum-v1")
    others = {rows("a.npz", "--seed", "1"), rows("b.npz", "--epsilon", "0.9"), rows("c.npz", "--stochastic")}
    assert len(others | {first}) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["random"], "no environment given; add one, such as --env CartPole-v1"),
        (
            ["random", "--env", "CartPole-v1", "--epsilon", "0.5"],
            "--epsilon and --stochastic need a run; remove them for random actions",
        ),
        (["absent", "--env", "CartPole-v1"], "no run or checkpoint at absent"),
    ],
)
def test_collect_reports_what_is_missing(cli, tmp_path, arguments, message):
    result = cli("data", "collect", *arguments, "--steps", "8", "--out", tmp_path / "rows.npz")
    assert (result.exit_code, result.stderr) == (2, f"error: {message}\n")


def test_collect_rejects_an_environment_with_other_spaces(cli, pendulum, tmp_path):
    result = cli("data", "collect", pendulum, "--env", "CartPole-v1", "--steps", "8", "--out", tmp_path / "rows.npz")
    assert (result.exit_code, result.stderr) == (
        2,
        "error: CartPole-v1 has observations of shape (4,) and 2 actions, but the agent was trained for observations "
        "of shape (3,) and 1 action dimension\n",
    )


def test_an_unsupported_file_is_reported_before_collecting(cli, tmp_path):
    result = cli("data", "collect", "random", "--env", "Absent-v0", "--steps", "8", "--out", tmp_path / "rows.txt")
    assert result.stderr == (
        f"error: cannot write {tmp_path}/rows.txt: supported are .npz, .parquet files, or a new Minari directory\n"
    )
