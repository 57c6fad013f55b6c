"""Networks from outside: mistakes in a class from the user's module, and runs with it."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import rl_training
from rl_training import modules, streams
from rl_training.algorithms import PPOAlgorithm
from rl_training.experiment.agent import load_agent
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.run import resume_run, run_training
from rl_training.experiment.seeds.sweep import train_seeds
from rl_training.experiment.verify import compare_runs
from rl_training.models import custom
from rl_training.modules import UntrustedModuleError
from rl_training.runtime.callbacks.training import StopAtStep
from rl_training.types import EnvSpec

SMALL: dict[str, Any] = {"total_timesteps": 96, "eval_episodes": 1, "checkpoint_interval": 32, "num_steps": 16,
                         "batch_size": 16, "epochs": 2}  # fmt: skip
MODULE = """
import torch
from torch import nn

class Trunk(nn.Module):
    role = "trunk"

    def __init__(self, inputs, width=4, hidden_sizes=()):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(inputs, width), nn.Tanh())

    def forward(self, x):
        return self.net(x)

class Dropout(Trunk):
    def __init__(self, inputs):
        super().__init__(inputs)
        self.net.append(nn.Dropout(0.9))

class ThreeAxes(Trunk):
    def forward(self, x):
        return self.net(x)[None]

class Misspelt(Trunk):
    def forward(self, x):
        return self.nett(x)

class OverRows(Trunk):
    def __init__(self, inputs):
        super().__init__(inputs)
        self.lstm = nn.LSTM(inputs, inputs)

    def forward(self, x):
        return self.net(self.lstm(x)[0])

class Squeezed(Trunk):
    def forward(self, x):
        first, second = x
        return self.net(torch.stack((first, second)))

class NoRowAxis(Trunk):
    def forward(self, x):
        return self.net(x).squeeze()

class Frozen(Trunk):
    def __init__(self, inputs):
        super().__init__(inputs)
        self.frozen = nn.Dropout().eval()

    def forward(self, x):
        return self.net(self.frozen(x))

class Noisy(Trunk):
    def forward(self, x):
        return self.net(x + torch.randn_like(x))

class BatchNorm(Trunk):
    def __init__(self, inputs):
        super().__init__(inputs)
        self.norm = nn.BatchNorm1d(4)

class Tied(Trunk):
    def __init__(self, inputs):
        super().__init__(inputs)
        self.again = self.net

class NoRole(nn.Module):
    pass

class NoBuild(Trunk):
    role = "model"

class NoModule:
    pass

def function():
    pass
"""


def parsed(**changes: Any) -> Any:
    return parse_config({"algo": "ppo", "env_id": "CartPole-v1", **changes})


@pytest.fixture
def own_nets(own_module, monkeypatch):
    monkeypatch.setattr(custom, "_given", {})
    return own_module("own_nets", MODULE)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (
            "ThreeAxes",
            r"must return a float tensor \[rows, n\], here \[2, n\] for inputs of shape \[2, 4\], got .*\[1, 2, 4\]",
        ),
        ("Misspelt", r"fails on inputs of shape \[2, 4\]: AttributeError: .* no attribute 'nett'"),
        ("OverRows", r"gives a row other outputs alone than in a batch; .* set network\.memory"),
        ("Squeezed", r"fails on inputs of zeros or ones of shape \[1, 4\]: ValueError: not enough values to unpack"),
        ("NoRowAxis", r"must return \[1, (\d+)\] for inputs of shape \[1, 4\], got \[\1\]; keep the axis of rows"),
        ("BatchNorm", "has batch norm, .*; use layer norm"),
        ("Tied", "uses one parameter under two names"),
        ("NoRole", "needs a class attribute role: one of features, trunk, model, got None"),
        ("NoBuild", r"needs a class method build\(spec, config\)"),
        ("NoModule", "must be a subclass of torch.nn.Module, got the class NoModule"),
        ("function", "must be a subclass of torch.nn.Module, got a function"),
        ("Absent", "own_nets has no Absent"),
        (
            {"kind": "own_nets:Trunk", "widht": 3},
            r"could not be created: TypeError: .* argument 'widht'; did you mean 'width'\?$",
        ),
        ({"kind": "own_nets:Trunk", "input": 3}, "could not be created: TypeError: .* argument 'input'$"),
    ],
)
def test_a_mistake_in_the_class_is_named_before_training(own_nets, network, message):
    modules.approve(["own_nets"])
    options: dict[str, Any] = {"network": network if isinstance(network, dict) else f"own_nets:{network}"}
    with pytest.raises(ValueError, match=message):
        PPOAlgorithm.build(EnvSpec((4,), "discrete", 2), **options)


@pytest.mark.parametrize("kind", ["Noisy", "Dropout"])
def test_random_outputs_are_accepted_and_the_class_stays_in_training(own_nets, kind):
    modules.approve(["own_nets"])
    learner = PPOAlgorithm.build(EnvSpec((4,), "discrete", 2), network=f"own_nets:{kind}")
    assert all(module.training for module in learner.modules())


def test_a_part_in_eval_mode_stays_so(own_nets):
    modules.approve(["own_nets"])
    learner = PPOAlgorithm.build(EnvSpec((4,), "discrete", 2), network="own_nets:Frozen")
    modes = {type(module).__name__: module.training for module in learner.modules()}
    assert (modes["Dropout"], modes["Frozen"]) == (False, True)


def test_a_run_with_a_class_of_the_user_resumes_and_loads(own_nets):
    options = {**SMALL, "network": {"kind": "own_nets:Trunk", "width": 5}}
    whole, halved = (rl_training.PPO("CartPole-v1", output_dir=name, **options) for name in ("whole", "halved"))
    whole.learn()
    halved.learn(callbacks=[StopAtStep(48)])
    assert resume_run("halved").status == "finished"
    assert compare_runs(own_nets / "whole", own_nets / "halved") == []
    obs = np.ones((3, 4))
    np.testing.assert_array_equal(rl_training.PPO.load("whole").predict(obs), whole.predict(obs))
    assert whole.config.algo_kwargs["network"]["width"] == 5


@pytest.mark.parametrize("seeds", [1, 2])  # two train as one population
def test_evaluations_in_training_have_no_dropout(own_nets, seeds):
    modules.approve(["own_nets"])
    values = {"algo": "dqn", "network": "own_nets:Dropout", "total_timesteps": 96,
              "algo_kwargs": {"learning_starts": 32, "batch_size": 16}}  # fmt: skip
    configs = [parsed(**values, seed=seed, output_dir=f"run_{seed}") for seed in range(seeds)]
    for config, result in zip(configs, train_seeds(configs), strict=True):
        agent, seed = load_agent(result.run_dir), streams.derive(config.seed, "selection")
        assert (result.evaluation or {})["returns"] == agent.evaluate(config.eval_episodes, seed=seed)["returns"]


def test_a_strangers_run_imports_nothing_without_trust(own_nets, monkeypatch):
    trained = rl_training.PPO("CartPole-v1", output_dir="run", network="own_nets:Trunk", **SMALL).learn()
    monkeypatch.setattr(modules, "_approved", set())
    monkeypatch.setenv("XDG_CONFIG_HOME", str(own_nets / "another user"))
    del sys.modules["own_nets"]
    for use in (load_agent, resume_run, rl_training.PPO.load):
        with pytest.raises(UntrustedModuleError, match=r"names the module 'own_nets'.*--trust own_nets"):
            use("run")
    config = parse_config(trained.config)  # parsing alone imports nothing
    with pytest.raises(UntrustedModuleError):
        PPOAlgorithm.build(EnvSpec((4,), "discrete", 2), **config.algo_kwargs)
    assert "own_nets" not in sys.modules
    assert load_agent("run", trust="own_nets").predict(np.zeros(4)).shape == ()


def test_a_local_class_trains_and_loads_in_this_process_only(own_nets, monkeypatch):
    class Local(nn.Module):
        role = "trunk"

        def __init__(self, inputs: int) -> None:
            super().__init__()
            self.net = nn.Linear(inputs, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x).relu()

    agent = rl_training.PPO("CartPole-v1", output_dir="run", network=Local, **SMALL).learn()
    assert agent.predict(np.zeros(4)).shape == ()
    assert load_agent("run").predict(np.zeros(4)).shape == ()
    monkeypatch.setattr(custom, "_given", {})
    with pytest.raises(ValueError, match=r"Local was defined in a script or a function.*network: module:Class"):
        load_agent("run")


def test_a_class_of_a_script_is_found_there(own_nets, monkeypatch):
    modules.approve(["own_nets"])
    kind = modules.load_object("own_nets:Trunk", "network")
    main = type("Trunk", (kind,), {"__module__": "__main__"})
    rl_training.PPO("CartPole-v1", output_dir="run", network=main, **SMALL).learn()
    monkeypatch.setattr(custom, "_given", {})
    with pytest.raises(ValueError, match="this process has no such class"):
        load_agent("run")
    monkeypatch.setattr(sys.modules["__main__"], "Trunk", main, raising=False)
    assert load_agent("run").config.algo_kwargs["network"]["kind"] == "<script>:Trunk"


@pytest.mark.slow
def test_seeds_in_processes_import_the_class_too(own_nets):
    options = {"num_steps": 32, "batch_size": 32}
    values = {"algo": "ppo", "env_id": "CartPole-v1", "network": "own_nets:Trunk", "algo_kwargs": options}
    modules.approve(["own_nets"])
    runs = [{"seed": seed, "output_dir": f"seed_{seed}", "total_timesteps": 64} for seed in (0, 1)]
    configs = [parse_config({**values, **run}) for run in runs]
    assert [result.status for result in train_seeds(configs)] == ["finished", "finished"]


def test_a_run_of_a_config_file_with_a_network_trains(own_nets):
    values = {"algo": "ppo", "env_id": "CartPole-v1", "network": {"layer_norm": True, "hidden_sizes": [6]}}
    options = {key: value for key, value in SMALL.items() if key not in ("total_timesteps", "eval_episodes")}
    options.pop("checkpoint_interval")
    result = run_training(parse_config({**values, "total_timesteps": 32, "algo_kwargs": options, "output_dir": "run"}))
    assert sum(isinstance(each, nn.LayerNorm) for each in load_agent(result.run_dir).learner.modules()) == 2
