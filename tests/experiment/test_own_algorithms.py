"""Algorithms from outside: `module:Class` in configs, and packages that add theirs by an entry point."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rl_training
from rl_training import modules
from rl_training.algorithms import (
    CATALOGUE,
    BCAlgorithm,
    DQNAlgorithm,
    GAILAlgorithm,
    Learner,
    ModelBasedConfig,
    ModelBasedLearner,
    PPOAlgorithm,
    ReplayConfig,
    SACAlgorithm,
    Updater,
)
from rl_training.envs.creation.making import EnvFactory
from rl_training.envs.pools.pool import EnvPool
from rl_training.experiment.agent import load_agent
from rl_training.experiment.bench.plan import parse_plan
from rl_training.experiment.config import plugins, registry
from rl_training.experiment.config.train_config import ConfigError, parse_config
from rl_training.experiment.run import default_directory, resume_run
from rl_training.models import PPOModel
from rl_training.modules import UntrustedModuleError
from rl_training.runtime.evaluation import evaluate
from rl_training.runtime.lanes.acting import Actor
from rl_training.runtime.state import DivergedError
from rl_training.testing import CHECKS, check_algorithm
from rl_training.types import EnvSpec, Loss

GRADIENT = torch.ones((), requires_grad=True)
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


class Wrong(BCAlgorithm):
    name = "wrong"
    lane = "nowhere"


class WrongKinds(BCAlgorithm):
    action_kinds = ("boxes", "discrete")


class NoModel(Learner):
    name, lane, config_type, model_type, action_kinds = "no_model", "replay", ReplayConfig, object, ("discrete",)


class WrongOptions(Learner):
    name, lane, config_type, model_type, action_kinds = "other", "rollout", ReplayConfig, PPOModel, ("discrete",)


class NotModelBased(SACAlgorithm):
    name, lane_class = "not_model_based", "model_based"


class WithoutModelOptions(ModelBasedLearner, SACAlgorithm):
    name, lane_class = "without_model_options", "model_based"


class WithoutReplayOptions(ModelBasedLearner, SACAlgorithm):
    name, lane_class, config_type = "without_replay_options", "model_based", ModelBasedConfig


class WithoutDiscriminator(PPOAlgorithm):
    name, lane_class, needs_expert = "without_discriminator", "imitation", True


class WithoutExpert(GAILAlgorithm):
    name, needs_expert = "without_expert", False


BOTH = "config_type of the lane model_based must be a subclass of ReplayConfig and ModelBasedConfig, got "
UNFIT_FOR_LANE: list[tuple[Any, str]] = [
    (WrongOptions, "config_type of the lane rollout must be a subclass of BaseRolloutConfig, got ReplayConfig"),
    (NotModelBased, "NotModelBased must be a subclass of ModelBasedLearner for the lane model_based"),
    (WithoutModelOptions, f"{BOTH}SACConfig"),
    (WithoutReplayOptions, f"{BOTH}ModelBasedConfig"),
    (WithoutDiscriminator, "config_type of the lane imitation must be a subclass of GAILConfig, got PPOConfig"),
    (WithoutExpert, "the lane imitation needs an expert's dataset; set needs_expert = True"),
]


@pytest.mark.parametrize(("learner", "message"), UNFIT_FOR_LANE)
def test_a_class_without_what_its_lane_needs_is_not_registered(learner, message):
    with pytest.raises(TypeError, match=message):
        rl_training.register_algorithm(learner)
    assert learner.name not in registry.algorithm_names()


@pytest.mark.parametrize(
    ("learner", "message"),
    [
        (Wrong, "lane must be one of offline, .*, got 'nowhere'"),
        (WrongKinds, r"action_kinds must be a tuple of box, discrete, multi_discrete, got \('boxes', 'discrete'\)"),
        (NoModel, r"model_type needs a class method build\(spec, config\)"),
        (int, "must be a subclass of rl_training.algorithms.Learner"),
        *UNFIT_FOR_LANE,
    ],
)
def test_an_incomplete_class_is_refused_before_its_checks(learner, message):
    with pytest.raises(TypeError, match=message):
        check_algorithm(learner, "CartPole-v1")


class Unseeded(BCAlgorithm):
    """Behaviour cloning that ignores the generator of its actions."""

    name = "unseeded"

    def act(self, obs, memory=None, *, deterministic=False, generator=None):
        return super().act(obs, deterministic=deterministic)


def test_a_target_network_of_a_missing_part_is_refused():
    class Mistaken(DQNAlgorithm):
        name, targets = "mistaken", ("critic",)

    with pytest.raises(TypeError, match=r"targets of mistaken has 'critic', but .* has no such part"):
        Mistaken.build(EnvSpec((4,), "discrete", 2))


def test_parameter_groups_of_another_kind_are_refused():
    class Grouped(DQNAlgorithm):
        def parameter_groups(self):
            return [{"params": self.model.parameters(), "lr": 1e-3}]

    with pytest.raises(TypeError, match=r"Grouped\.parameter_groups must return rl_training\.types\.ParameterGroup"):
        registry.check_policy(Grouped.build(EnvSpec((4,), "discrete", 2)))


def test_an_attribute_that_parameter_groups_lacks_is_named_by_an_update_too():
    class Grouped(DQNAlgorithm):
        def parameter_groups(self):
            return [self.config.rates]

    with pytest.raises(TypeError, match="no attribute 'rates'"):
        Grouped.build(EnvSpec((4,), "discrete", 2)).update({})


class Prepared(PPOAlgorithm):
    """PPO whose rollouts are prepared by a function that a test replaces."""

    name = "prepared"
    change = staticmethod(lambda columns: columns)

    def prepare(self, batch):
        columns = super().prepare(batch)
        values = self.model.values(columns["obs"].flatten(0, 1)).view_as(columns["returns"])
        return self.change({**columns, "returns": columns["returns"] + 0 * values})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda columns: None, r"Prepared\.prepare must return a dict of columns \[time, envs, \.\.\.\], got NoneType"),
        (
            lambda columns: {**columns, "returns": columns["returns"].flatten()},
            r"here \[8, 2\], but 'returns' is \[16\]",
        ),
    ],
)
def test_rollouts_that_are_prepared_otherwise_are_refused(change, message, monkeypatch, tmp_path):
    monkeypatch.setattr(Prepared, "change", staticmethod(change))
    with pytest.raises((TypeError, ValueError), match=message):
        train_prepared(tmp_path)


def test_rollouts_are_prepared_without_gradients(tmp_path):
    train_prepared(tmp_path)  # a column with gradients would be differentiated again in every epoch


def train_prepared(folder: Path) -> None:
    options: dict[str, Any] = {"num_envs": 2, "num_steps": 8, "batch_size": 16, "epochs": 2, "eval_interval": 0}
    managed = rl_training.register_algorithm(Prepared)
    try:
        managed("CartPole-v1", total_timesteps=32, output_dir=str(folder / "run"), **options).learn()
    finally:
        del CATALOGUE["prepared"]


class OwnTerm(SACAlgorithm):
    """SAC with a further loss term: NaN itself, or with a NaN gradient."""

    name = "own_term"
    term: Any

    def loss(self, batch):
        return super().loss(batch).plus({"own_loss": self.term(self.model.actor(batch["obs"]).mode())})


@pytest.mark.parametrize(
    ("term", "message"),
    [
        (lambda a: float("nan") * a.mean(), "in the last update, own_loss was NaN or infinite"),
        (lambda a: (0 * a).sum().sqrt(), "weights of actor are NaN or infinite: check the losses, .* NaN gradients"),
    ],
)
def test_nan_actions_are_reported_with_the_loss_or_the_weights(term, message, monkeypatch, tmp_path):
    monkeypatch.setattr(OwnTerm, "term", staticmethod(term), raising=False)
    monkeypatch.setitem(CATALOGUE, "own_term", OwnTerm)
    options = {"learning_starts": 4, "batch_size": 4, "hidden_sizes": [4]}
    run = {"total_timesteps": 50, "output_dir": str(tmp_path), "log_interval": 50, "algo_kwargs": options}
    with pytest.raises(DivergedError, match=f"actions are NaN or infinite; lower the learning rate; {message}.*; no "):
        rl_training.ManagedAlgorithm({"algo": "own_term", "env_id": "Pendulum-v1", **run}).learn()


@pytest.mark.parametrize("members", [1, 2])
def test_next_values_with_a_further_axis_are_refused(members):
    class Column(DQNAlgorithm):
        def loss(self, batch):
            values = self.model.q(batch["next_obs"]).amax(-1, keepdim=True)
            return Loss({"loss": self.td_target(batch, values).square().mean()})

    spec, lead = EnvSpec((4,), "discrete", 2), (members, 8) if members > 1 else (8,)
    batch = {name: torch.zeros(*lead, 4) for name in ("obs", "next_obs")}
    batch |= {name: torch.zeros(lead) for name in ("rewards", "dones", "truncated")}
    with pytest.raises(ValueError, match=r"Column: td_target needs next values of shape \[8\], got \[8, 1\]; remove"):
        Updater([Column.build(spec) for _ in range(members)]).update(batch)


def test_an_act_that_returns_a_tensor_is_refused():
    class Bare(DQNAlgorithm):
        def act(self, obs, *arguments, **options):
            return torch.zeros(len(obs), dtype=torch.int64)

    pool = EnvPool(EnvFactory("CartPole-v1"))
    actor = Actor(Bare.build(pool.spec), pool, torch.Generator(), torch.device("cpu"))
    message = r"Bare\.act must return rl_training\.types\.Action, such as Action\(actions\), got Tensor"
    with pytest.raises(TypeError, match=message):
        actor.choose()
    with pytest.raises(TypeError, match=message):
        evaluate(actor.policy, "CartPole-v1", episodes=1, seed=0)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (1.5, r"Bare\.loss must return rl_training\.types\.Loss, such as Loss\(.*\), got float"),
        (
            Loss({"loss": torch.ones(3)}),
            r"term 'loss' of Bare\.loss must be a tensor of one number, .* got shape \(3,\)",
        ),
        (Loss({"loss": 0.5}), r"term 'loss' of Bare\.loss must be a tensor of one number, .* got float"),  # type: ignore[dict-item]
        (Loss({"loss": GRADIENT}, {"q": 0.5}), r"metric 'q' of Bare\.loss must be a tensor, got float"),  # type: ignore[dict-item]
        (Loss({"loss": GRADIENT}, {"step": GRADIENT}), r"Bare\.loss returns 'step', the name of another column"),
        (Loss({"loss": torch.ones(())}), r"Bare\.loss has no gradient: its terms depend on no trained parameter"),
    ],
)
def test_a_loss_of_another_kind_is_refused(returned, message):
    class Bare(DQNAlgorithm):
        def loss(self, batch):
            return returned

    updater = Updater([Bare.build(EnvSpec((4,), "discrete", 2))])
    with pytest.raises((TypeError, ValueError), match=message):
        updater.update({})


def test_a_failed_check_is_named_with_its_reason():
    with pytest.raises(AssertionError, match=r"Unseeded fails the check 'random_streams': .* pass `generator`"):
        check_algorithm(Unseeded, "Pendulum-v1", skip=["updates"])
    assert "unseeded" not in registry.algorithm_names()


def test_checks_can_be_left_out_by_their_names():
    check_algorithm(Unseeded, "Pendulum-v1", skip=CHECKS.keys() - {"actions"}, options={"hidden_sizes": [4]})
    with pytest.raises(ValueError, match=r"no check 'resumes'; there are updates, .*resume"):
        check_algorithm(Unseeded, "Pendulum-v1", skip=["resumes"])


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
