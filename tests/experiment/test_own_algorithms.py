"""Algorithms from outside: `module:Class` in configs, and packages that add theirs by an entry point."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rl_training
from rl_training import modules
from rl_training.algorithms import BCAlgorithm
from rl_training.experiment.agent import load_agent
from rl_training.experiment.bench.plan import parse_plan
from rl_training.experiment.config import plugins, registry
from rl_training.experiment.config.train_config import ConfigError, parse_config
from rl_training.experiment.run import resume_run
from rl_training.experiment.run_directory import default_directory
from rl_training.modules import UntrustedModuleError
from rl_training.testing import check_algorithm
from rl_training.types import EnvSpec

MODULE = '''
"""Behaviour cloning, twice as much."""

from pydantic import Field
from rl_training.algorithms import BCAlgorithm, BCConfig, Learner


class TwiceConfig(BCConfig):
    factor: float = Field(2.0, description="factor of the loss")
    undescribed: int = 3


class Twice(BCAlgorithm):
    """Behaviour cloning with a scaled loss."""

    name = "twice"
    config_type = TwiceConfig

    def loss(self, batch):
        loss = super().loss(batch)
        return loss.plus({"actor_loss": self.config.factor * loss.terms["actor_loss"]})


class Half(Learner):
    name = "half"


class NoPolicy(BCAlgorithm):
    """Behaviour cloning whose model has no part `actor`."""

    @classmethod
    def build_model(cls, spec, config):
        model = super().build_model(spec, config)
        model.cloned = model.actor
        del model.actor
        return model


class NoLearner:
    pass
'''
SMALL = {"env_id": "Pendulum-v1", "dataset": {"kind": "random", "rows": 100}, "total_timesteps": 10, "eval_episodes": 1}


@pytest.fixture
def own_algos(own_module):
    return own_module("own_algos", MODULE)


def test_a_config_that_names_a_class_trains_resumes_and_loads(own_algos):
    values = {"algo": "own_algos:Twice", **SMALL, "output_dir": "run", "algo_kwargs": {"factor": 3.0}}
    agent = rl_training.ManagedAlgorithm(values).learn()
    assert agent.config.algo == "own_algos:Twice"
    assert agent.config.algo_kwargs["factor"] == 3.0
    assert resume_run("run", steps=15).steps == 15
    assert load_agent("run").predict(np.zeros(3)).shape == (1,)
    spec = rl_training.get_algorithm_spec("own_algos:Twice")
    assert (spec.name, spec.summary) == ("own_algos:Twice", "Behaviour cloning with a scaled loss.")


def test_the_directory_of_its_runs_and_cells_has_no_colon(own_algos):
    modules.approve(["own_algos"])
    config = parse_config({"algo": "own_algos:Twice", **SMALL})
    assert ":" not in str(default_directory(config))
    plan = parse_plan({"algos": "own_algos:Twice,bc", "envs": ["own_envs:Grid-v0"]})
    assert [cell.name for cell in plan.cells()] == ["own_algos-Twice-own_envs-Grid-v0", "bc-own_envs-Grid-v0"]


def test_a_strangers_run_imports_nothing_without_trust(own_algos, monkeypatch):
    rl_training.ManagedAlgorithm({"algo": "own_algos:Twice", **SMALL, "output_dir": "run"}).learn()
    monkeypatch.setattr(modules, "_approved", set())
    monkeypatch.setenv("XDG_CONFIG_HOME", str(own_algos / "another user"))
    del sys.modules["own_algos"]
    for use in (load_agent, resume_run, rl_training.ManagedAlgorithm.load):
        with pytest.raises(UntrustedModuleError, match=r"names the module 'own_algos'.*--trust own_algos"):
            use("run")
    with pytest.raises(UntrustedModuleError, match="algo names the module 'own_algos', which was not approved"):
        parse_config({"algo": "own_algos:Twice", **SMALL})
    assert "own_algos" not in sys.modules
    assert load_agent("run", trust="own_algos").predict(np.zeros(3)).shape == (1,)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_algos:NoLearner", "must be a subclass of rl_training.algorithms.Learner"),
        ("own_algos:Half", "needs the class attribute lane"),
        ("own_algos:Absent", "own_algos has no Absent"),
        ("no_such_module:Algo", "there is no module 'no_such_module'"),
        ("own_algos.Twice", "must be one of awac, .* or module:Class, got 'own_algos.Twice'"),
    ],
)
def test_a_mistake_in_the_name_is_named(own_algos, name, message):
    modules.approve(["own_algos", "no_such_module"])
    with pytest.raises((TypeError, ValueError), match=message):
        parse_config({"algo": name, **SMALL})


def test_an_unknown_option_of_it_is_refused_with_a_suggestion(own_algos):
    modules.approve(["own_algos"])
    with pytest.raises(ConfigError, match=r"factr: unknown key; did you mean factor\?"):
        parse_config({"algo": "own_algos:Twice", **SMALL, "algo_kwargs": {"factr": 1}})


def test_a_learner_may_set_its_policy_in_setup(own_algos):
    modules.approve(["own_algos"])
    learner = registry.get_algorithm_spec("own_algos:NoPolicy").learner
    policy: Any = {"setup": lambda self: setattr(self, "act", lambda obs, memory=None, **options: None)}
    derived: Any = type("PolicyOfSetup", (learner,), policy)
    made = derived.build(EnvSpec((3,), "box", 1))
    assert registry.check_policy(made) is made


def test_a_learner_that_cannot_act_is_refused_before_it_learns(own_algos):
    modules.approve(["own_algos"])
    agent = rl_training.ManagedAlgorithm({"algo": "own_algos:NoPolicy", **SMALL, "output_dir": "run"})
    with pytest.raises(TypeError, match=r"NoPolicy has no policy: define act\(obs, .*\) in NoPolicy"):
        agent.learn()
    assert not list(Path("run").glob("checkpoints/*"))
    learner = registry.get_algorithm_spec("own_algos:NoPolicy").learner
    with pytest.raises(AssertionError, match=r"fails the check 'updates': NoPolicy has no policy"):
        check_algorithm(learner, "Pendulum-v1")


# Packages


def install(folder: Path, package: str, entries: str) -> None:
    """Writes the metadata of an installed package with these entry points."""
    home = folder / f"{package}-1.0.dist-info"
    home.mkdir()
    (home / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (home / "entry_points.txt").write_text(f"[rl_training.algorithms]\n{entries}\n")


@pytest.fixture
def installed(own_algos, monkeypatch):
    monkeypatch.syspath_prepend(own_algos)
    install(own_algos, "doubling", "twice = own_algos:Twice\nbc = own_algos:Twice\nno_good = own_algos:Missing")
    plugins.plugins.cache_clear()
    yield
    plugins.plugins.cache_clear()


def test_an_installed_package_adds_its_algorithm_which_is_imported_when_it_is_used(installed, capsys):
    assert "twice" in registry.algorithm_names()
    assert "own_algos" not in sys.modules
    config = parse_config({"algo": "twice", **SMALL})
    assert config.algo_kwargs["factor"] == 2.0
    agent = rl_training.ManagedAlgorithm({"algo": "twice", **SMALL, "output_dir": "run"}).learn()
    assert agent.result is not None
    assert agent.result.updates == 10
    assert load_agent("run").config.algo == "twice"


def test_a_built_in_name_is_refused_and_a_broken_one_left_out(installed, capsys):
    names = [spec.name for spec in registry.list_algorithm_specs()]
    assert "twice" in names
    assert "no_good" not in names
    assert registry.get_algorithm_spec("bc").learner is BCAlgorithm
    errors = capsys.readouterr().err
    assert "the package doubling adds an algorithm 'bc', which is the name of a built-in one, and is ignored" in errors
    assert "algorithm 'no_good' of the package doubling could not be imported from own_algos:Missing" in errors
    assert errors.count("built-in") == 1
    with pytest.raises(ImportError, match="'no_good' of the package doubling could not be imported"):
        parse_config({"algo": "no_good", **SMALL})


def test_a_close_name_of_a_package_is_suggested(installed):
    with pytest.raises(ValueError, match="did you mean twice"):
        parse_config({"algo": "twise", **SMALL})
