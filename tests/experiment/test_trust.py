"""Modules are trusted by name and files once they were used in `train`, or for one call by name."""

from __future__ import annotations

import json
import os
import stat
import sys
from concurrent.futures import ThreadPoolExecutor

import gymnasium as gym
import pytest

from rl_training import DQN, evaluate_checkpoint, modules, resume_training
from rl_training.envs.creation.making import spec_of
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.manager import ExperimentManager
from rl_training.experiment.run import run_training
from rl_training.experiment.trust import (
    approve_typed,
    learner_modules,
    modules_of,
    remember,
    require_trusted,
)
from rl_training.modules import UntrustedModuleError


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("mine", "other"):
        (tmp_path / f"{name}.py").write_text("raise AssertionError('imported')\n")
    return tmp_path


def config(env_id="mine:Own-v0", **options):
    return parse_config({"algo": "dqn", "env_id": env_id, **options})


def is_trusted(module="mine", trust=()):
    try:
        require_trusted([module], trust, "run")
    except UntrustedModuleError:
        return False
    return True


def test_a_module_used_in_training_is_trusted_and_no_other(home):
    assert not is_trusted()
    remember(config(), warn=pytest.fail)
    assert is_trusted()
    assert not is_trusted("other")


def test_a_module_named_now_is_trusted_for_this_call_alone(home):
    assert is_trusted(trust="mine")
    assert is_trusted(trust=["other", "mine"])
    assert not is_trusted(trust=["min", "mine.inner", "min*"])
    assert not is_trusted()


def test_the_same_name_in_another_file_is_not_trusted(home, monkeypatch):
    remember(config(), warn=pytest.fail)
    (home / "stranger").mkdir()
    (home / "stranger" / "mine.py").write_text("")
    with monkeypatch.context() as changed:
        changed.syspath_prepend(home / "stranger")
        assert not is_trusted()
    assert is_trusted()


def test_a_file_replaced_by_a_link_is_not_trusted(home):
    remember(config(), warn=pytest.fail)
    (home / "mine.py").unlink()
    (home / "mine.py").symlink_to(home / "other.py")
    assert not is_trusted()


def test_an_edited_file_stays_trusted(home):
    remember(config(), warn=pytest.fail)
    (home / "mine.py").write_text("raise AssertionError('edited')\n")
    assert is_trusted()


def test_a_parent_package_in_another_file_is_not_trusted(home):
    (home / "package").mkdir()
    (home / "package" / "leaf.py").write_text("")
    remember(config("package.leaf:Own-v0"), warn=pytest.fail)
    assert is_trusted("package.leaf")
    (home / "package" / "__init__.py").write_text("raise AssertionError('imported')\n")
    assert not is_trusted("package.leaf")


def test_the_message_names_the_run_the_module_its_file_and_the_option(home):
    with pytest.raises(UntrustedModuleError) as raised:
        require_trusted(["mine"], (), "runs/theirs")
    for part in ("runs/theirs", "'mine'", str(home / "mine.py"), "--trust mine", "trust='mine'"):
        assert part in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_message_about_a_moved_module_names_its_old_and_its_new_file(home, monkeypatch):
    remember(config(), warn=pytest.fail)
    (home / "new").mkdir()
    (home / "mine.py").rename(home / "new" / "mine.py")
    with pytest.raises(UntrustedModuleError, match=f"trained with {home}/mine.py, which no longer exists.*PYTHONPATH"):
        require_trusted(["mine"], (), "run")
    monkeypatch.syspath_prepend(home / "new")
    moved = f"imported from {home}/new/mine.py; you trained with {home}/mine.py, which no.*If you moved.*--trust mine"
    with pytest.raises(UntrustedModuleError, match=moved):
        require_trusted(["mine"], (), "run")


@pytest.mark.parametrize("trust", [True, None, 3, [1], [None]])
def test_trust_takes_names_only(home, trust):
    with pytest.raises(TypeError, match="trust must be the name of a module or a list of names"):
        require_trusted(["mine"], trust, "run")


def test_the_modules_of_a_config_are_those_of_its_environments_and_their_options(home):
    recipe = {"kind": "random", "rows": 10, "env_id": "other:Own-v0"}
    options = {"a": ["mine:Own-v0", "http://host/", "C:/file", "absent:Own-v0", {"b": "json.tool:x"}], "n": 3}
    assert modules_of(config("CartPole-v1")) == []
    assert modules_of(parse_config({"algo": "bc", "dataset": recipe})) == ["other"]
    assert modules_of(parse_config({"algo": "bc", "dataset": [recipe], "env_id": "mine:Own-v0"})) == ["mine", "other"]
    assert modules_of(config("CartPole-v1", env_kwargs=options)) == ["json.tool", "mine"]


@pytest.mark.parametrize("value", ["absent:Own", ["absent:Own"]])
@pytest.mark.parametrize("key", ["algo", "env_wrappers", "callbacks", "network"])
def test_every_key_that_names_code_is_one_of_its_modules(key, value):
    assert modules_of({key: value}) == ["absent"]


def test_built_in_environments_need_no_trust_and_other_names_of_their_modules_do(monkeypatch):
    monkeypatch.setattr(modules, "_approved", set())
    home = "rl_training.envs.device.minatar"
    assert modules_of({"env_id": f"{home}:Breakout"}) == []
    assert spec_of(f"{home}:Breakout").action_dim == 6
    for name in ("Game", "Tensor", "torch.load"):
        assert modules_of({"env_id": f"{home}:{name}"}) == [home]
        with pytest.raises(UntrustedModuleError, match="not approved"):
            spec_of(f"{home}:{name}")


def test_names_in_mappings_are_modules_too():
    assert modules_of({"env_wrappers": [{"wrapper": "absent:Own", "limit": 3}]}) == ["absent"]
    assert modules_of({"callbacks": [{"callback": "absent:Own"}]}) == ["absent"]
    assert modules_of({"algo_kwargs": {"network": {"kind": "absent:Own"}}}) == ["absent"]
    assert learner_modules({"algo": "a:B", "env_wrappers": ["c:D"], "callbacks": ["e:F"]}) == ["a"]


def test_the_record_is_readable_by_its_owner_alone(home):
    before = os.umask(0)
    try:
        remember(config(), warn=pytest.fail)
    finally:
        os.umask(before)
    folder = home / "config" / "rl_training"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in folder.iterdir())


def test_a_record_that_others_can_write_is_ignored(home):
    remember(config(), warn=pytest.fail)
    (home / "config" / "rl_training" / "trusted.json").chmod(0o620)
    assert not is_trusted()
    remember(config("other:Own-v0"), warn=pytest.fail)
    assert is_trusted("other")
    assert not is_trusted()


@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "[]", "3", '{"modules": 3}', '{"modules": {"mine": 3}}', '{"modules": {"mine": [3]}}', "\x00",
     '{"modules": {"mine": null}}', "[" * 100_000, '{"modules": [["mine"]]}'],
)  # fmt: skip
def test_a_damaged_record_trusts_nothing_and_is_replaced_by_the_next_training(home, text):
    store = home / "config" / "rl_training" / "trusted.json"
    store.parent.mkdir(parents=True)
    store.write_text(text)
    store.chmod(0o600)
    assert not is_trusted()
    remember(config(), warn=pytest.fail)
    assert is_trusted()


def test_training_goes_on_where_nothing_can_be_remembered(home):
    (home / "config").write_text("a file, where a folder is needed")
    warnings: list[str] = []
    remember(config(), warn=warnings.append)
    assert len(warnings) == 1
    assert "--trust mine" in warnings[0]
    assert not is_trusted()


def test_processes_that_train_at_once_forget_nothing(home):
    for number in range(8):
        (home / f"env_{number}.py").write_text("")
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: remember(config(f"env_{n}:Own-v0"), warn=pytest.fail), range(8)))
    assert all(is_trusted(f"env_{number}") for number in range(8))
    store = home / "config" / "rl_training" / "trusted.json"
    assert len(json.loads(store.read_text())["modules"]) == 8
    assert sorted(file.name for file in store.parent.iterdir()) == ["trusted.json", "trusted.lock"]


ENVIRONMENT = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

class Pole(CartPoleEnv):
    pass

gymnasium.register("TrustedPole-v0", Pole, max_episode_steps=10)
"""


@pytest.fixture
def pole(home):
    sys.modules.pop("pole", None)  # of an earlier test
    gym.registry.pop("TrustedPole-v0", None)
    (home / "pole.py").write_text(ENVIRONMENT)
    options = {"total_timesteps": 40, "eval_interval": 0, "output_dir": str(home / "run"), "device": "cpu"}
    return config("pole:TrustedPole-v0", **options, algo_kwargs={"hidden_sizes": [8]})


def test_your_own_runs_need_no_option(pole, home):
    run = run_training(pole).run_dir
    assert evaluate_checkpoint(run, num_episodes=1)["lengths"] == [10]
    assert resume_training(run, total_timesteps=44).steps == 44
    assert DQN.load(run).evaluate(num_episodes=1)["lengths"] == [10]


def test_a_run_of_another_user_is_refused_and_runs_with_trust(pole, home, monkeypatch):
    run = run_training(pole).run_dir
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "other_user"))
    for call in (evaluate_checkpoint, resume_training, lambda path: DQN.load(path).learn()):
        with pytest.raises(UntrustedModuleError, match="names the module 'pole'"):
            call(run)
    assert evaluate_checkpoint(run, num_episodes=1, trust="pole")["lengths"] == [10]
    assert resume_training(run, total_timesteps=44, trust=["pole"]).steps == 44
    assert DQN.load(run, trust="pole").evaluate(num_episodes=1)["lengths"] == [10]
    with pytest.raises(UntrustedModuleError):
        evaluate_checkpoint(run)


def test_an_agent_that_has_just_learned_is_evaluated_even_if_nothing_can_be_remembered(pole, home):
    (home / "config").write_text("a file, where a folder is needed")
    assert DQN(pole).learn().evaluate(num_episodes=1)["lengths"] == [10]


def test_an_edited_environment_is_reported_by_every_command_that_uses_the_run(pole, home, capsys):
    run = run_training(pole).run_dir
    record = json.loads((run / "run.json").read_text())["env_source"]
    assert (record["module"], record["file"]) == ("pole", str(home / "pole.py"))
    evaluate_checkpoint(run, num_episodes=1)
    assert "pole.py" not in capsys.readouterr().err
    (home / "pole.py").write_text(ENVIRONMENT + "# edited\n")
    for call in (
        lambda: evaluate_checkpoint(run, num_episodes=1),
        lambda: resume_training(run, total_timesteps=44),
        lambda: run_training(pole),  # has finished
    ):
        call()
        lines = [line for line in capsys.readouterr().err.splitlines() if "pole.py" in line]
        assert len(lines) == 1
        assert "differs from the file that defined the environment when this run started" in lines[0]


def test_finished_seeds_report_an_edited_environment_once(pole, home, capsys):
    seeds = ExperimentManager(pole)
    seeds.sweep([0, 1])
    capsys.readouterr()
    (home / "pole.py").write_text(ENVIRONMENT + "# edited\n")
    seeds.sweep([0, 1])
    assert capsys.readouterr().err.count("pole.py differs") == 1


def test_the_config_file_of_a_run_counts_as_somebody_elses_unless_the_environment_is_typed(home):
    (home / "run.json").write_text("{}")
    with pytest.raises(UntrustedModuleError):
        approve_typed(config(), {"total_timesteps": 10}, home / "config.yaml", ())
    approve_typed(config(), {"env_id": "mine:Own-v0"}, home / "config.yaml", ())
    approve_typed(config(), {}, home / "config.yaml", ["mine"])
    (home / "run.json").unlink()
    approve_typed(config(), {}, home / "config.yaml", ())


def test_a_run_without_a_checksum_is_not_reported(pole, home, capsys):
    run = run_training(pole).run_dir
    record = json.loads((run / "run.json").read_text())
    for text in (json.dumps({**record, "env_source": None}), "{", "[]"):
        (run / "run.json").write_text(text)
        evaluate_checkpoint(run, num_episodes=1)
    assert "pole.py" not in capsys.readouterr().err
