"""Exported policies: their files, their description and the comparison with the agent."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from rl_training import BC
from rl_training.algorithms import Learner
from rl_training.algorithms.core.config import AlgorithmConfig
from rl_training.data import save_transition_dataset
from rl_training.experiment.agent import Agent, load_agent
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.export import exporting, files
from rl_training.experiment.export.description import describe_policy, rules
from rl_training.experiment.export.exporting import export_agent
from rl_training.experiment.export.parity import Comparison, ParityError
from rl_training.experiment.export.policy import ExportedPolicy
from rl_training.models.masks import INVALID
from rl_training.runtime.recipes import roll_dataset
from rl_training.types import Action, EnvSpec

OLD_RUN = Path(__file__).resolve().parents[1] / "fixtures" / "dqn_run"


@pytest.fixture
def old_agent():
    return load_agent(OLD_RUN)


@pytest.fixture
def perturbed(monkeypatch):
    """Adds this factor to an output of every file that is opened."""

    def change(name, factor):
        def opened(path):
            run = files.open_policy(path)
            return lambda inputs: {key: each * factor if key == name else each for key, each in run(inputs).items()}

        monkeypatch.setattr(exporting, "open_policy", opened)

    return change


def test_an_onnx_file_runs_without_this_package_and_acts_as_the_agent(old_agent, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    found = export_agent(old_agent, tmp_path / "policy.onnx", observations=64)
    session = ort.InferenceSession(str(found.path))
    assert [(each.name, each.shape, each.type) for each in session.get_inputs()] == [
        ("obs", ["batch", 4], "tensor(float)")
    ]
    obs = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
    actions, q_values = session.run(["actions", "q_values"], {"obs": obs})
    np.testing.assert_array_equal(actions, old_agent.predict(obs))
    np.testing.assert_array_equal(actions, q_values.argmax(1))
    assert b"/src/rl_training/" not in found.path.read_bytes()  # no paths or source of this machine


def test_the_description_names_inputs_outputs_and_the_measured_parity(old_agent, tmp_path):
    found = export_agent(old_agent, tmp_path / "policy.pt2", observations=64)
    described = json.loads((tmp_path / "policy.json").read_text())
    assert described == json.loads(json.dumps(found.description))
    assert (described["algorithm"], described["environment"]) == ("dqn", "CartPole-v1")
    (obs,) = described["inputs"]
    assert (obs["name"], obs["shape"], obs["dtype"]) == ("obs", ["batch", 4], "float32")
    assert obs["high"][1] is None  # the cart's speed is unbounded
    actions, q_values = described["outputs"]
    assert (actions["name"], actions["low"], actions["high"], actions["dtype"]) == ("actions", 0, 1, "int64")
    assert q_values["meaning"] == "expected return of each action"
    parity = described["files"]["policy.pt2"]["parity"]
    assert (parity["observations"], parity["source"], parity["holds"]) == (64, "CartPole-v1", True)
    assert described["memory"] == []


def test_both_formats_share_one_description(old_agent, tmp_path):
    pytest.importorskip("onnx")
    for name in ("policy.pt2", "policy.onnx"):
        export_agent(old_agent, tmp_path / name, observations=16)
    assert [*json.loads((tmp_path / "policy.json").read_text())["files"]] == ["policy.pt2", "policy.onnx"]


def test_a_description_of_another_policy_is_not_replaced(old_agent, tmp_path):
    (tmp_path / "policy.json").write_text("{}")
    with pytest.raises(FileExistsError, match="does not describe this policy"):
        export_agent(old_agent, tmp_path / "policy.pt2", observations=16)
    assert not (tmp_path / "policy.pt2").exists()


@pytest.mark.parametrize(("name", "factor"), [("q_values", 1 + 1e-4), ("q_values", np.nan), ("actions", 0)])
def test_a_file_that_differs_is_not_left_behind(old_agent, tmp_path, perturbed, name, factor):
    perturbed(name, factor)
    with pytest.raises(ParityError, match="differs from the agent"):
        export_agent(old_agent, tmp_path / "policy.pt2", observations=64)
    assert [*tmp_path.iterdir()] == []


def test_a_tolerance_is_as_large_as_asked(old_agent, tmp_path, perturbed):
    perturbed("q_values", 1 + 1e-4)
    parity = export_agent(old_agent, tmp_path / "policy.pt2", observations=64, tolerance=1e-3).parity
    assert parity.errors["q_values"] == pytest.approx(1e-4, rel=0.1)


def test_an_existing_file_a_wrong_ending_and_a_missing_folder_are_refused(old_agent, tmp_path):
    (tmp_path / "policy.pt2").write_text("")
    for path, error, message in [
        (tmp_path / "policy.pt2", FileExistsError, "exists; name another file"),
        (tmp_path / "policy.tflite", ValueError, r"the file of a policy must end in \.onnx or \.pt2"),
        (tmp_path / "no" / "policy.pt2", FileNotFoundError, "does not exist"),
    ]:
        with pytest.raises(error, match=message):
            export_agent(old_agent, path)


def test_a_missing_package_names_the_extra(old_agent, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "find_spec", lambda package: None)
    with pytest.raises(ImportError, match=r'pip install "rl-training\[export\]"'):
        export_agent(old_agent, tmp_path / "policy.onnx")


def test_an_agent_without_an_environment_is_compared_on_data(new_agent, tmp_path):
    save_transition_dataset(roll_dataset("Pendulum-v1", rows=100), tmp_path / "data.npz")
    spec = EnvSpec((3,), "box", 1, action_shape=(1,), action_low=(-2.0,), action_high=(2.0,))
    agent = new_agent("bc", spec, hidden_sizes=[8])
    found = export_agent(agent, tmp_path / "policy.pt2", observations=50, data=tmp_path / "data.npz")
    assert (found.parity.observations, found.parity.source) == (50, str(tmp_path / "data.npz"))
    assert found.description["inputs"][0]["low"] is None


def test_a_dataset_of_the_run_with_other_observations_is_refused(new_agent, tmp_path, monkeypatch):
    changed = roll_dataset("Pendulum-v1", rows=10), None
    monkeypatch.setattr("rl_training.experiment.export.observations.load_dataset", lambda config: changed)
    spec = EnvSpec((4,), "box", 1, action_shape=(1,), action_low=(-2.0,), action_high=(2.0,))
    message = r"has observations of shape \(3,\), but the agent was trained on \(4,\); compare .* with --data DATASET"
    with pytest.raises(ValueError, match=message):
        export_agent(new_agent("bc", spec, hidden_sizes=[8]), tmp_path / "policy.pt2", observations=50)


def test_a_dataset_of_the_run_with_other_categories_is_refused(tmp_path):
    file = tmp_path / "log.csv"
    before = "episode,site,action,reward,done\n0,north,0,1,0\n0,south,1,0,0\n0,south,0,1,1\n"
    file.write_text(before)
    values = {"algo": "bc", "dataset": str(file), "dataset_columns": {"obs": "site", "actions": "action"},
              "table": {"categories": ["site"]}, "output_dir": str(tmp_path / "run"), "total_timesteps": 2,
              "algo_kwargs": {"hidden_sizes": [4], "batch_size": 2}}  # fmt: skip
    BC(values).learn()
    agent = load_agent(tmp_path / "run")
    assert export_agent(agent, tmp_path / "policy.pt2").parity.source == "the dataset of the run"
    file.write_text(before.replace("north", "west"))
    message = r"has the observation 'site=south' where the agent was trained on 'site=north'; compare .* --data DATASET"
    with pytest.raises(ValueError, match=message):
        export_agent(agent, tmp_path / "again.pt2")


def fixed(outputs):
    return lambda inputs: outputs


def test_equal_scores_count_as_ties_and_others_do_not(new_agent):
    agent = new_agent("dqn", EnvSpec((3,), "discrete", 3), hidden_sizes=[8])
    with torch.no_grad():
        agent.learner.model.q.head.advantage.layers[-1].weight.zero_()
        agent.learner.model.q.head.advantage.layers[-1].bias.copy_(torch.tensor([1.0, 1.0 - 1e-7, 0.5]))
    q_values = np.array([[1, 1, 0.5]], np.float32)
    for chosen, tied in ((0, 0), (1, 1), (2, 0)):
        exported = {"actions": np.array([chosen]), "q_values": q_values}
        comparison = Comparison(agent, fixed(exported))
        comparison.act(torch.zeros(1, 3))
        parity = comparison.result("a test", 1e-5)
        assert (parity.equal_actions, parity.ties, parity.holds) == (int(chosen == 0), tied, chosen < 2)


def test_means_near_zero_are_compared_in_the_unit_of_the_actions(new_agent):
    agent = new_agent("sac", EnvSpec((3,), "box", 1, action_shape=(1,), action_low=(-1,), action_high=(1,)))
    with torch.no_grad():
        agent.learner.model.actor.net[-1].weight.zero_()
        agent.learner.model.actor.net[-1].bias.fill_(1e-3)
    for error, holds in ((5e-6, True), (5e-5, False)):
        near = np.array([[1e-3 + error]], np.float32)
        comparison = Comparison(agent, fixed({"actions": np.tanh(near), "squashed_mean": near}))
        comparison.act(torch.zeros(1, 3))
        assert comparison.result("a test", 1e-5).holds == holds


def test_invalid_actions_do_not_widen_the_tolerance_of_valid_ones(new_agent):
    agent = new_agent("dqn", EnvSpec((6,), "discrete", 3, action_mask=3), hidden_sizes=[8])
    with torch.no_grad():
        agent.learner.model.q.head.advantage.layers[-1].weight.zero_()
        agent.learner.model.q.head.advantage.layers[-1].bias.copy_(torch.tensor([1.0, 5.0, 0.5]))
    for chosen in (0, 2):
        exported = {"actions": np.array([chosen]), "q_values": np.array([[1, INVALID, 0.5]], np.float32)}
        comparison = Comparison(agent, fixed(exported))
        comparison.act(torch.tensor([[0.0, 0, 0, 1, 0, 1]]))  # the second action is invalid
        parity = comparison.result("a test", 1e-5)
        assert (parity.ties, parity.holds) == (0, chosen == 0)


@pytest.mark.parametrize(
    ("algo", "rule"),
    [("iqn", "midpoints of 32 equal intervals of [0, 1]"), ("fqf", "those that the network proposes")],
)
def test_the_rule_of_the_fractions_is_stated(new_agent, algo, rule):
    agent = new_agent(algo, EnvSpec((3,), "discrete", 3), hidden_sizes=[8])
    assert rules(agent)["fractions"].startswith(rule)


def test_the_rule_of_the_noise_of_fql_is_stated(new_agent):
    assert rules(new_agent("fql", EnvSpec((3,), "box", 2), hidden_sizes=[8]))["noise"].startswith("0")


def test_a_recurrent_policy_has_its_memory_as_inputs_and_outputs(new_agent, tmp_path):
    agent = new_agent("dreamer", EnvSpec((3,), "discrete", 3), "CartPole-v1", size="tiny")
    described = describe_policy(agent, ExportedPolicy(agent.learner, agent.spec), with_env=False)
    names = {each["name"] for each in described["inputs"]}, {each["name"] for each in described["outputs"]}
    assert {each["initial"] for each in described["memory"]} == {0, 1}
    for part in described["memory"]:
        assert part["input"] in names[0]
        assert part["output"] in names[1]
    assert "most likely class" in described["rules"]["latents"]


@pytest.mark.parametrize("ending", [pytest.param("onnx", marks=pytest.mark.slow), "pt2"])
def test_a_policy_with_an_lstm_is_compared_in_its_environment(new_agent, tmp_path, ending):
    network = {"hidden_sizes": [8], "memory": "lstm", "memory_size": 4}
    agent = new_agent("ppo", EnvSpec((4,), "discrete", 2), "CartPole-v1", network=network)
    assert export_agent(agent, tmp_path / f"policy.{ending}", observations=64).parity.holds


def test_the_outputs_of_a_recurrent_policy_are_judged_unless_a_latent_is_tied(new_agent):
    agent = new_agent("dreamer", EnvSpec((3,), "discrete", 3), "CartPole-v1", size="tiny")
    policy = ExportedPolicy(agent.learner, agent.spec)

    def changed(inputs, shift, latent):
        with torch.no_grad():
            made = policy({name: torch.as_tensor(each) for name, each in inputs.items()})
        found = {name: each.numpy().copy() for name, each in made.items()}
        found["logits"] += shift
        found["next_memory_stoch"][0, 0] = (found["next_memory_stoch"][0, 0] + latent) % 8
        return found

    for shift, latent, holds in ((0, 0, True), (0.1, 0, False), (0, 1, False)):
        comparison = Comparison(agent, partial(changed, shift=shift, latent=latent))
        comparison.act(torch.ones(2, 3))
        assert comparison.result("a test", 1e-5).holds == holds


class OwnModel(torch.nn.Linear):
    @classmethod
    def build(cls, spec, config):
        model = cls(spec.obs_shape[0], spec.action_dim)
        model.obs_shape = spec.obs_shape
        return model


class OwnAlgorithm(Learner):
    """An algorithm from outside, whose model has neither an actor nor a Q-network."""

    name, lane, action_kinds = "own", "replay", ("discrete",)
    config_type, model_type = AlgorithmConfig, OwnModel

    def act(self, obs, memory=None, *, deterministic=False, generator=None):
        return Action(self.model(obs).argmax(-1))


def test_an_algorithm_from_outside_is_compared_by_its_actions(tmp_path):
    learner = OwnAlgorithm.build(EnvSpec((3,), "discrete", 4)).eval()
    agent = Agent(learner, EnvSpec((3,), "discrete", 4), parse_config({"algo": "dqn"}), tmp_path)
    files.write_policy(ExportedPolicy(learner, agent.spec), tmp_path / "policy.pt2")
    for run, holds in ((files.open_policy(tmp_path / "policy.pt2"), True), (fixed({"actions": np.full(8, 9)}), False)):
        comparison = Comparison(agent, run)
        comparison.act(torch.randn(8, 3))
        parity = comparison.result("random numbers", 1e-5)
        assert (parity.errors, parity.holds) == ({}, holds)


class ActorModel(torch.nn.Module):
    @classmethod
    def build(cls, spec, config):
        model = cls()
        model.actor, model.obs_shape = torch.nn.Linear(spec.obs_shape[0], spec.action_dim), spec.obs_shape
        return model


class OwnActor(Learner):
    """An algorithm from outside, whose actor returns numbers and no distribution."""

    name, lane, action_kinds = "own_actor", "replay", ("box", "discrete")
    config_type, model_type = AlgorithmConfig, ActorModel

    def act(self, obs, memory=None, *, deterministic=False, generator=None):
        output = self.model.actor(obs)
        return Action(output.argmax(-1) if self.model.actor.out_features == 4 else output.tanh())


@pytest.mark.parametrize(
    "spec",
    [
        EnvSpec((3,), "discrete", 4),
        EnvSpec((3,), "box", 2, action_shape=(2,), action_low=(-1.0, -1.0), action_high=(1.0, 1.0)),
    ],
)
def test_numbers_of_an_actor_from_outside_are_not_exported_as_values(spec):
    learner = OwnActor.build(spec).eval()
    obs = torch.randn(8, 3)
    with torch.no_grad():
        found = ExportedPolicy(learner, spec)({"obs": obs})
    assert found.keys() == {"actions", "policy_outputs"}
    assert found["policy_outputs"].equal(learner.model.actor(obs))


def test_equal_numbers_of_an_actor_from_outside_are_a_tie(tmp_path):
    learner = OwnActor.build(EnvSpec((3,), "discrete", 4)).eval()
    torch.nn.init.zeros_(learner.model.actor.weight)
    learner.model.actor.bias.data = torch.tensor([1.0, 1.0, 0.0, 0.0])
    agent = Agent(learner, EnvSpec((3,), "discrete", 4), parse_config({"algo": "dqn"}), tmp_path)
    outputs = learner.model.actor.bias.detach().expand(8, 4).numpy()
    for chosen, holds in ((1, True), (2, False)):
        comparison = Comparison(agent, fixed({"actions": np.full(8, chosen), "policy_outputs": outputs}))
        comparison.act(torch.randn(8, 3))
        assert comparison.result("random numbers", 1e-5).holds == holds
