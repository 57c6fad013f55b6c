"""The packaged configs, from the command line."""

from __future__ import annotations

import pytest

from rl_training.experiment.config.packaged import packaged_config_text, packaged_configs


def test_ls_names_every_config(cli):
    lines = cli("configs", "ls").stdout.splitlines()
    assert [line.split()[0] for line in lines] == packaged_configs()


def test_ls_prints_the_first_sentence_of_the_comment_in_a_config(cli):
    lines = {line.split()[0]: line for line in cli("configs", "ls").stdout.splitlines()}
    assert lines["redq/walker2d"].endswith("  REDQ on MuJoCo Walker2d, with the settings of the paper.")
    assert all(line.endswith(".") for line in lines.values())


def test_ls_of_a_part_names_the_configs_that_contain_it(cli):
    lines = cli("configs", "ls", "Hopper").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [name for name in packaged_configs() if "hopper" in name]
    assert len(lines) > 10


def test_ls_of_an_unknown_part_is_an_error(cli):
    result = cli("configs", "ls", "hoper")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error: no packaged config has 'hoper' in its name (rl-training configs ls lists all)\n"


@pytest.mark.parametrize("name", packaged_configs())
def test_the_comment_of_a_config_is_short(name):
    head = [line for line in packaged_config_text(name).splitlines() if line.startswith("#")]
    assert 1 <= len(head) <= 3


def test_show_prints_the_file_as_it_is(cli):
    assert cli("configs", "show", "iql/pendulum").stdout == packaged_config_text("iql/pendulum")


def test_copy_writes_the_file_and_prints_how_to_train_it(cli, tmp_path):
    result = cli("configs", "copy", "iql/pendulum", tmp_path)
    assert (tmp_path / "pendulum.yaml").read_text() == packaged_config_text("iql/pendulum")
    assert f"rl-training train {tmp_path / 'pendulum.yaml'}" in result.stdout


def test_copy_never_overwrites(cli, tmp_path):
    (tmp_path / "mine.yaml").write_text("algo: sac\n")
    result = cli("configs", "copy", "iql/pendulum", tmp_path / "mine.yaml")
    assert (result.exit_code, result.stderr) == (
        2,
        f"error: {tmp_path}/mine.yaml already exists; choose another file or remove it first\n",
    )


def test_a_misspelt_name_is_answered_with_the_nearest(cli):
    result = cli("configs", "show", "iql/pendulun")
    assert result.exit_code == 2
    assert result.stderr == (
        "error: no packaged config 'iql/pendulun'; did you mean iql/pendulum? (rl-training configs ls lists them)\n"
    )
