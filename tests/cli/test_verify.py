"""`verify` repeats the start of a run and names what differs."""

import json
import shutil

import pytest

from rl_training import DQN
from rl_training.experiment.run_directory import RunDirectory

ONLINE = ["train", "dqn", "CartPole-v1", "--steps", "200", "--set", "learning_starts=50", "--set", "hidden_sizes=[8]",
          "--set", "log_interval=40", "--set", "eval_interval=100", "--set", "eval_episodes=1"]  # fmt: skip


@pytest.fixture(scope="module")
def finished(cli, tmp_path_factory):
    run = tmp_path_factory.mktemp("runs") / "dqn"
    assert cli(*ONLINE, "--output", run).exit_code == 0
    return run


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def test_an_untouched_run_is_byte_identical_and_stays_as_it_was(cli, run):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    result = cli("verify", run)
    assert (result.exit_code, result.stdout) == (
        0,
        "first 120 steps (70 updates), repeated: byte-identical\nstopped half-way and resumed: byte-identical\n",
    )
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_run_that_started_from_another_one_is_repeated_from_there(cli, run):
    DQN.load(run, learning_rate=1e-4, log_interval=40, output_dir=run.with_name("new")).learn(total_timesteps=120)
    result = cli("verify", run.with_name("new"))
    first = "from step 200, where the run started from another one, to step 300, repeated: byte-identical"
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, first)


def test_to_the_end_of_the_run_its_checkpoints_are_compared(cli, run, finished):
    assert cli("verify", run, "--steps", "200").exit_code == 0
    other = shutil.copytree(finished, run.with_name("other"))
    config = (other / "config.yaml").read_text().replace("seed: 0", "seed: 1")
    (other / "config.yaml").write_text(config)
    report = json.loads(cli("verify", other, "--steps", "200", "--json").stdout)
    assert report["identical"] is False
    assert report["resume"] == []
    assert any(difference.startswith("learner.safetensors") for difference in report["repeat"])


def test_what_differs_on_this_machine_is_named(cli, run):
    (run / "config.yaml").write_text((run / "config.yaml").read_text().replace("seed: 0", "seed: 1"))
    directory = RunDirectory(run)
    record = directory.read("run.json") or {}
    directory.write("run.json", {**record, "versions": {**record["versions"], "torch": "1.0"}})
    result = cli("verify", run)
    assert result.exit_code == 1
    assert "repeated: different: metrics.jsonl differs first in row" in result.stdout
    assert "possible cause: torch was 1.0, is " in result.stdout


@pytest.mark.parametrize("name", ["run.json", "result.json", "metrics.jsonl", "checkpoints/*/learner.safetensors"])
def test_a_flipped_bit_in_any_file_is_reported(cli, run, name):
    file = next(run.glob(name))
    content = bytearray(file.read_bytes())
    place = content.index(b"0", len(content) // 4)
    content[place] ^= 1
    file.write_bytes(content)
    result = cli("verify", run)
    assert result.exit_code in (1, 2)
    assert file.name in result.stderr


def test_members_of_a_population_are_repeated_together(cli, tmp_path):
    assert cli(*ONLINE, "--seeds", "0,2", "--output", tmp_path).exit_code == 0
    assert cli("verify", tmp_path / "seed_2").exit_code == 0


@pytest.mark.parametrize("name", ["run.json", "result.json"])
def test_a_flipped_bit_in_the_name_of_the_checksum_is_reported(cli, run, name):
    file = run / name
    file.write_text(file.read_text().replace('"sha256"', '"sha257"'))
    result = cli("verify", run)
    assert result.exit_code == 2
    assert f"{name} is damaged (its checksum does not match)" in result.stderr


def test_a_run_without_rows_is_refused(cli, run):
    for checkpoint in (run / "checkpoints").iterdir():
        shutil.rmtree(checkpoint)
    (run / "metrics.jsonl").write_text("")
    result = cli("verify", run)
    assert result.exit_code == 2
    assert "has no logged rows, so there is nothing to compare; train it further first" in result.stderr
