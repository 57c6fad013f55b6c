from __future__ import annotations

import pytest

from rl_training.experiment.config.messages import ConfigError
from rl_training.experiment.config.packaged import copy_config, load_config, packaged_config_text, packaged_configs
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.config.yaml_text import read_yaml


def refused(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read_yaml(text)
    return str(caught.value)


@pytest.mark.parametrize("name", packaged_configs())
def test_packaged_configs_are_right(name):
    assert parse_config(load_config(name)).algo == name.split("/")[0]


def test_a_config_is_found_by_name():
    assert load_config("iql/pendulum")["env_id"] == "Pendulum-v1"


def test_a_config_is_found_by_path(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("algo: iql\ntotal_timesteps: 1e4\ncompile: on\n")
    assert load_config(str(path)) == {"algo": "iql", "total_timesteps": 10_000.0, "compile": "on"}


def test_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match="did you mean iql/pendulum"):
        load_config("iql/pendulm")


def test_names_do_not_reach_outside_the_package():
    with pytest.raises(ConfigError, match="no packaged config"):
        packaged_config_text("../../../pyproject")


def test_a_missing_file_is_reported(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        load_config(str(tmp_path / "none.yaml"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"- 1\n", "must be a mapping"),
        (b"", "the file is empty; write one key a line"),
        (b"algo: [", "not YAML"),
        (b"algo: \xff", "not a text file"),
        (b"# " + b"x" * 1_000_000, "larger than"),
    ],
)
def test_files_that_are_no_config_are_refused(tmp_path, content, words):
    path = tmp_path / "wrong.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        load_config(str(path))


def test_alias_bombs_are_refused():
    bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"
    assert refused(bomb) == "anchors and aliases are not allowed, line 1"


@pytest.mark.parametrize("text", ["!!python/object/apply:os.getcwd []", "!!int ''", "!!timestamp x", "!mine 3"])
def test_tags_are_refused(text):
    assert refused(text) == "tags are not allowed, line 1"


def test_a_key_given_twice_is_refused():
    assert refused("seed: 1\nalgo: iql\nseed: 2\n") == "'seed' is given twice, line 1 and after"


def test_bottomless_nesting_is_refused():
    assert refused("[" * 10_000) == "nested deeper than 32 levels, line 1"


def test_numbers_of_absurd_length_are_refused():
    assert "not YAML" in refused("9" * 5000)


def test_copy_goes_into_a_folder_under_its_own_name(tmp_path):
    path = copy_config("iql/pendulum", tmp_path)
    assert path == tmp_path / "pendulum.yaml"
    assert path.read_text() == packaged_config_text("iql/pendulum")


def test_copy_never_overwrites(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("precious")
    with pytest.raises(ConfigError, match="exists"):
        copy_config("iql/pendulum", path)
    assert path.read_text() == "precious"


def test_copying_into_a_missing_folder_is_reported(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        copy_config("iql/pendulum", tmp_path / "none" / "mine.yaml")
