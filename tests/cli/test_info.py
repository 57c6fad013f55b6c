"""`algos`, `explain` and `doctor`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rl_training.algorithms import CATALOGUE
from rl_training.algorithms.core.network import NetworkConfig
from rl_training.cli.info import EXTRAS, allowed
from rl_training.experiment.config.train_config import TrainConfig


def test_algos_as_json_has_a_row_for_each(cli):
    rows = json.loads(cli("algos", "--json").stdout)["algorithms"]
    assert [row["name"] for row in rows] == sorted(CATALOGUE)
    assert rows[0].keys() == {"name", "lane", "action_spaces", "pixels", "summary"}


def test_algos_as_a_table_names_each(cli):
    lines = cli("algos").stdout.splitlines()
    assert {"bc", "iql"} < {line.split()[0] for line in lines if line.strip()}


def test_the_paper_is_in_the_explanation_and_not_in_the_table(cli):
    assert "arXiv" not in (table := cli("algos").stdout)
    assert "Implicit Q-learning: offline RL by expectile regression." in table
    assert "arXiv:2110.06169" in cli("explain", "iql").stdout


@pytest.mark.parametrize(("name", "pixels"), [("sac", "partly"), ("ppo", "yes"), ("td3", "no")])
def test_algos_has_whether_images_are_taken(cli, name, pixels):
    (line,) = [line for line in cli("algos").stdout.splitlines() if line.startswith(f"{name} ")]
    assert re.split(r"\s{2,}", line)[3] == pixels
    (row,) = [row for row in json.loads(cli("algos", "--json").stdout)["algorithms"] if row["name"] == name]
    assert row["pixels"] is (pixels != "no")


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_explain_lists_every_option_with_its_description(cli, name):
    printed = cli("explain", name).stdout
    for option, field in CATALOGUE[name].config_type.model_fields.items():
        assert option in printed
        assert str(field.description) in printed


@pytest.mark.parametrize(
    ("name", "left_out"),
    [
        ("ppo", {"critic_hidden_sizes"}),
        ("sac", {"memory", "memory_size"}),
        ("bc", {"critic_hidden_sizes", "memory", "memory_size"}),
    ],
)
def test_explain_leaves_out_keys_of_network_that_are_refused(cli, name, left_out):
    printed = set(re.findall(r"^network\.(\w+)", cli("explain", name).stdout, re.MULTILINE))
    assert printed == NetworkConfig.model_fields.keys() - left_out


def test_explain_lists_the_options_of_every_run(cli):
    rows = [re.split(r" {3,}", line.strip()) for line in cli("explain", "ppo").stdout.splitlines()]
    for name, field in TrainConfig.model_fields.items():
        printed = [row for row in rows if row[0] == name]
        assert [row[2] for row in printed] == ([] if name in ("algo", "algo_kwargs") else [field.description])
    assert ["keep_checkpoints", "3", "number of newest checkpoints to keep, besides the best"] in rows
    assert ["early_stopping.patience", "required", "evaluations without improvement before the run stops"] in rows
    assert ["schedules.NAME.fraction", "1.0", "fraction of training that the change takes"] in rows
    assert ["dataset.kind", "required", "behaviour policy: random, or policy (a trained one)"] in rows


def test_explain_shows_defaults_ranges_configs_and_an_example(cli):
    lines = cli("explain", "iql").stdout.splitlines()
    expectile = next(line for line in lines if line.startswith("expectile"))
    assert expectile.split()[1:7] == ["0.7", "number", ">", "0", "and", "<"]
    assert "configs     iql/cartpole, iql/halfcheetah, iql/hopper, iql/hopper_mixture, iql/pendulum" in lines
    # the one among them that brings its own data
    assert "example     rl-training train iql/cartpole --set learning_rate=0.0003" in lines


def test_explain_lists_the_options_of_a_class_of_the_user(cli, tmp_path, monkeypatch):
    (tmp_path / "explained_algos.py").write_text(
        "from rl_training.algorithms import BCAlgorithm, BCConfig\n\n"
        "class OwnConfig(BCConfig):\n    extra: int = 3\n\n"
        'class Own(BCAlgorithm):\n    """Own cloning."""\n\n    name = "own"\n    config_type = OwnConfig\n'
    )
    monkeypatch.chdir(tmp_path)
    printed = cli("explain", "explained_algos:Own").stdout
    assert "explained_algos:Own: Own cloning." in printed
    assert re.search(r"^extra +3 +integer", printed, re.MULTILINE)
    assert re.search(r"^network\.activation +none +relu, tanh", printed, re.MULTILINE)
    assert "rl-training train explained_algos:Own ENV" in printed


@pytest.mark.parametrize(
    ("part", "options"),
    [("expectile", ["expectile"]), ("Batch-Size", ["batch_size"]), ("eval_i", ["eval_interval"])],
)
def test_explain_of_a_part_lists_the_options_that_contain_it(cli, part, options):
    lines = cli("explain", "iql", part).stdout.splitlines()
    listed = [line.split()[0] for line in lines if line and not line.startswith(("option ", "─"))]
    assert sorted(listed) == sorted(options)


def test_explain_of_an_unknown_option_names_the_nearest(cli):
    result = cli("explain", "iql", "expectil_")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "error: no option of iql has 'expectil_' in its name; did you mean 'expectile'? "
        "(rl-training explain iql lists all)\n"
    )


def test_explain_of_an_unknown_algorithm_names_the_nearest(cli):
    result = cli("explain", "iqll")
    assert (result.exit_code, result.stderr) == (2, "error: no algorithm 'iqll'; did you mean 'iql'?\n")


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "boolean"}, "true or false"),
        ({"type": "integer", "minimum": 0}, "integer >= 0"),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, "number > 0 and < 1"),
        ({"enum": ["mse", "likelihood"], "type": "string"}, "mse, likelihood"),
        ({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "null"}]}, "number > 0 or none"),
        ({"type": "array", "items": {"type": "integer", "exclusiveMinimum": 0}}, "list, each integer > 0"),
        ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "number"}]}, "list of 2"),
        ({"type": "integer", "const": 1}, "1"),
        ({"type": "number", "minimum": 1, "maximum": 1}, "1"),
    ],
)
def test_allowed_values_in_words(schema, words):
    assert allowed(schema) == words


def test_doctor_passes_on_a_working_machine(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = cli("doctor")
    assert result.exit_code == 0, result.output
    assert [line.split()[0] for line in result.stdout.splitlines()[:5]] == [
        "versions", "cuda", "threads", "env", "runs",
    ]  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_doctor_fails_if_runs_cannot_be_written(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").write_text("a file where the directory should be")
    result = cli("doctor")
    assert (result.exit_code, result.stderr) == (1, "failed: runs\n")


def test_doctor_knows_every_extra_that_users_can_install():
    pyproject = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    _, _, section = pyproject.partition("[project.optional-dependencies]")
    extras = re.findall(r"^([a-z0-9]+) = \[", section.partition("\n[")[0], flags=re.MULTILINE)
    assert list(EXTRAS) == [extra for extra in extras if extra not in ("dev", "docs")]


def test_doctor_prints_how_to_install_a_missing_extra(cli, monkeypatch):
    monkeypatch.setitem(EXTRAS, "log", ("no_such_module",))
    lines = cli("doctor").stdout.splitlines()
    assert '[log]       no_such_module not installed; pip install "rl-training[log]"' in lines


@pytest.mark.parametrize(("algo", "start"), [("ppo", "ppo/cartpole"), ("dqn", "dqn/cartpole"), ("td3", "td3/pendulum")])
def test_explain_offers_a_small_config_as_its_example(cli, algo, start):
    assert f"example     rl-training train {start} --set" in cli("explain", algo).stdout
