"""CQL and Cal-QL as published: widths, initial weights, log std, backups and the online weight, each by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from rl_training import CQL, CalQL
from rl_training.algorithms import CalQLAlgorithm, CQLAlgorithm, CQLConfig
from rl_training.experiment.config.train_config import ConfigError, parse_config
from rl_training.experiment.run import resume_run, run_training
from rl_training.experiment.verify import verify_run
from rl_training.runtime.callbacks.training import StopAtStep
from rl_training.types import EnvSpec

BOTH = [CQLAlgorithm, CalQLAlgorithm]


def widths(network: nn.Module) -> list[int]:
    """Output width of each linear layer; the weights of critics have a leading axis of two."""
    weights = [parameter for name, parameter in network.named_parameters() if name.endswith("weight")]
    return [weight.shape[-1] if weight.dim() == 3 else weight.shape[0] for weight in weights]


@pytest.mark.parametrize("kind", BOTH)
def test_actor_and_critics_have_widths_of_their_own(kind, box):
    learner = kind.build(box, hidden_sizes=(8, 8), critic_hidden_sizes=(6, 5, 4))
    assert widths(learner.model.actor.net) == [8, 8, 4]
    assert widths(learner.model.critic.net) == widths(learner.target["critic"].net) == [6, 5, 4, 1]


def test_critics_have_the_actors_widths_unless_asked(box):
    assert widths(CQLAlgorithm.build(box, hidden_sizes=(8, 7)).model.critic.net) == [8, 7, 1]


def test_the_activation_of_the_network_holds_for_critics_of_other_widths(box):
    learner = CQLAlgorithm.build(box, network={"activation": "tanh"}, critic_hidden_sizes=(4,))
    assert type(learner.model.critic.net[1]) is nn.Tanh


def test_widths_of_the_critics_are_refused_beside_a_network_of_the_users_own(box):
    class Trunk(nn.Linear):
        role = "trunk"

        def __init__(self, inputs: int) -> None:
            super().__init__(inputs, 4)

    with pytest.raises(ValueError, match="critic_hidden_sizes cannot change the layers of network"):
        CQLAlgorithm.build(box, network=Trunk, critic_hidden_sizes=(4,))


def gains(weight: Tensor) -> list[float]:
    """Singular values of a weight, which an orthogonal initialisation makes equal to its gain."""
    return torch.linalg.svdvals(weight.detach()).flatten().tolist()


def critic_weights(learner: Any) -> list[Tensor]:
    return [value for name, value in learner.model.critic.named_parameters() if name.endswith("weight")]


@pytest.mark.parametrize("initialization", ["corl", "cal_ql"])
def test_critics_of_the_references_are_orthogonal_with_a_small_last_layer(initialization, box):
    learner = CQLAlgorithm.build(box, hidden_sizes=(8, 8), initialization=initialization)
    first, second, last = critic_weights(learner)
    assert gains(first) == pytest.approx([math.sqrt(2)] * 10)  # five inputs, two critics
    assert gains(second) == pytest.approx([math.sqrt(2)] * 16)
    assert gains(last) == pytest.approx([0.01] * 2)
    assert not first[0].equal(first[1])
    biases = [value for name, value in learner.model.critic.named_parameters() if name.endswith("bias")]
    assert all(not bias.any() for bias in biases)
    torch.testing.assert_close(learner.target["critic"].state_dict(), learner.model.critic.state_dict())


def test_the_actor_of_corl_has_a_small_xavier_output_layer_and_plain_hidden_ones(box):
    actor = CQLAlgorithm.build(box, hidden_sizes=(8, 8), initialization="corl").model.actor.net
    bound = 0.01 * math.sqrt(6 / (8 + 4))  # Xavier: gain * sqrt(6 / (inputs + outputs))
    assert bound / 2 < actor[-1].weight.abs().max().item() <= bound
    assert not actor[-1].bias.any()
    assert actor[0].bias.any()  # PyTorch's own
    assert actor[0].weight.abs().max().item() <= 1 / math.sqrt(3)


def test_the_actor_of_cal_ql_is_orthogonal(box):
    actor = CalQLAlgorithm.build(box, hidden_sizes=(8, 8), initialization="cal_ql").model.actor.net
    assert gains(actor[0].weight) == pytest.approx([math.sqrt(2)] * 3)
    assert gains(actor[-1].weight) == pytest.approx([0.01] * 4)


def test_the_default_draws_the_weights_it_always_drew(box):
    learners, named = [], {"initialization": "default", "log_std_offset": None, "critic_hidden_sizes": None}
    for options in cast("list[dict[str, Any]]", [{}, named]):
        torch.manual_seed(3)
        learners.append(CQLAlgorithm.build(box, hidden_sizes=(8,), **options))
    torch.testing.assert_close(learners[0].state_dict(), learners[1].state_dict(), rtol=0, atol=0)
    assert not [name for name in learners[0].state_dict() if "log_std" in name or "cql_weight" in name]


def test_the_initial_std_of_the_references_is_exp_of_the_offset(box, draw):
    learner = CQLAlgorithm.build(box, hidden_sizes=(8,), initialization="corl", log_std_offset=-1.0)
    std = learner.model.actor(draw(box, 64)["obs"]).log_std.exp()
    torch.testing.assert_close(std, torch.full_like(std, 0.3679), atol=0.02, rtol=0)


def test_log_std_is_a_trained_multiple_of_the_output_plus_a_trained_offset(box, draw):
    learner, rows = CQLAlgorithm.build(box, hidden_sizes=(8,), log_std_offset=-1.0), draw(box, 6)
    actor = learner.model.actor
    with torch.no_grad():
        actor.log_std_multiplier.fill_(2.0)
        actor.log_std_offset.fill_(0.5)
    output = actor.net(rows["obs"]).chunk(2, -1)[1]
    torch.testing.assert_close(actor(rows["obs"]).log_std, (2.0 * output + 0.5).clamp(-20, 2))
    before = [actor.log_std_multiplier.item(), actor.log_std_offset.item()]
    learner.update(rows)
    after = [actor.log_std_multiplier.item(), actor.log_std_offset.item()]
    steps = [abs(new - old) for new, old in zip(after, before, strict=True)]
    assert steps == pytest.approx([1e-4, 1e-4], rel=1e-2)  # Adam's first step, at the actor's learning rate


class Valued(nn.Module):
    """The target critics: Q1 = 10 a, Q2 = 10 a + 1, of one action dimension."""

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        q = 10 * actions.squeeze(-1)
        return torch.stack([q, q + 1])


class Sampled:
    """A policy at next_obs whose three samples and log-probabilities are given; rows are the second axis."""

    def __init__(self, actions: list[list[float]], log_prob: list[list[float]]) -> None:
        self.samples = torch.tensor(actions).unsqueeze(-1), torch.tensor(log_prob)

    def repeated(self, times: int) -> Sampled:
        assert times == 3
        return self

    def sample_with_log_prob(self) -> tuple[Tensor, Tensor]:
        return self.samples


@pytest.mark.parametrize(("entropy", "expected"), [(False, [3.0, 4.0, 1.0]), (True, [3.5, 2.0, 1.0])])
def test_the_entropy_of_the_maximal_backup_is_that_of_its_best_action(entropy, expected):
    """Samples .1, .4, .2 and .6, .5, .0; an action with a lower value and a far lower log-probability never wins."""
    spec = EnvSpec((3,), "box", 1, action_shape=(1,), action_low=(-1.0,), action_high=(1.0,))
    learner = CQLAlgorithm.build(
        spec, hidden_sizes=(4,), gamma=0.5, num_cql_samples=3, max_target_backup=True, backup_entropy=entropy
    )
    learner.target["critic"] = Valued()
    policy: Any = Sampled([[0.1, 0.6, 0.9], [0.4, 0.5, 0.9], [0.2, 0.0, 0.9]],
                          [[-50.0, 2.0, 1.0], [-0.5, -50.0, 1.0], [0.0, 0.0, 1.0]])  # fmt: skip
    rows = {"next_obs": torch.zeros(3, 3), "rewards": torch.ones(3), "dones": torch.tensor([0.0, 0.0, 1.0])}
    # Row 0: 1 + 0.5 * (4 - alpha * -0.5), row 1: 1 + 0.5 * (6 - alpha * 2), row 2 terminates; alpha is 2.
    found = learner.target_q(rows, policy, torch.tensor(2.0))
    torch.testing.assert_close(found, torch.tensor(expected))


@pytest.mark.parametrize(("alpha", "box_weight", "discrete_weight"), [("auto", 5.0, 1.0), (3.0, 3.0, 3.0)])
def test_the_weight_of_the_penalty_depends_on_the_action_space_unless_set(
    alpha, box_weight, discrete_weight, box, discrete, draw
):
    for spec, weight, critics in ((box, box_weight, 2), (discrete, discrete_weight, 1)):
        metrics = CQLAlgorithm.build(spec, hidden_sizes=(8,), cql_alpha=alpha).update(draw(spec, 6)).metrics
        assert metrics["cql_penalty"].item() == pytest.approx(weight * critics * metrics["cql_gap"].item())


def test_a_stored_weight_of_five_stays_with_discrete_actions(discrete):
    learner = CQLAlgorithm.build(discrete, CQLConfig.model_validate({"cql_alpha": 5.0, "hidden_sizes": [8]}))
    assert learner.cql_weight == 5.0


@pytest.mark.parametrize("spec_name", ["box", "discrete"])
@pytest.mark.parametrize("threshold", [None, 1.0])
def test_the_weight_changes_when_fine_tuning_starts(spec_name, threshold, draw, request):
    spec = request.getfixturevalue(spec_name)
    learner = CQLAlgorithm.build(
        spec, hidden_sizes=(8,), cql_alpha=2.0, cql_alpha_online=0.5, lagrange_threshold=threshold
    )
    rows, penalties = draw(spec, 6), []
    for _ in range(2):
        torch.manual_seed(1)
        penalties.append(learner.loss(rows).terms["cql_penalty"].item())
        learner.start_online()
    assert penalties[1] == pytest.approx(penalties[0] / 4)


def fine_tuning(folder: Path, **options: Any) -> Any:
    return parse_config(
        {"algo": "cal_ql", "env_id": "Pendulum-v1", "dataset": {"kind": "random", "rows": 200}, "total_timesteps": 10,
         "online_steps": 40, "env_kwargs": {"max_episode_steps": 10}, "eval_interval": 0, "checkpoint_interval": 10,
         "keep_checkpoints": 9,
         "output_dir": str(folder),
         "algo_kwargs": {"hidden_sizes": [8], "batch_size": 8, "num_cql_samples": 2, "cql_alpha": 3.0, **options}}
    )  # fmt: skip


def tensors_at(folder: Path, step: int) -> dict[str, Tensor]:
    return load_file(folder / f"checkpoints/step_{step:09}/learner.safetensors")


def test_a_run_changes_the_weight_after_its_offline_steps(tmp_path):
    run_training(fine_tuning(tmp_path / "run", cql_alpha_online=0.25))
    assert tensors_at(tmp_path / "run", 10)["buffers/cql_weight"].item() == 3.0
    assert tensors_at(tmp_path / "run", 20)["buffers/cql_weight"].item() == 0.25


@pytest.mark.parametrize("stop", [10, 25])
def test_a_resumed_run_has_the_weight_of_its_phase(stop, tmp_path):
    whole, halved = (fine_tuning(tmp_path / name, cql_alpha_online=0.25, log_std_offset=-1.0) for name in "ab")
    run_training(whole)
    run_training(halved, callbacks=[StopAtStep(stop)])
    resume_run(tmp_path / "b")
    first, second = (tensors_at(tmp_path / name, 50) for name in "ab")
    assert first["buffers/cql_weight"].item() == 0.25
    assert first.keys() == second.keys()
    assert all(value.equal(second[name]) for name, value in first.items())


@pytest.mark.parametrize("kind", [CQL, CalQL])
def test_the_online_weight_may_be_set_or_changed_when_an_agent_is_loaded(kind, tmp_path, monkeypatch):
    def weight_after(source: str | Path, steps: int | None = 4, **options: Any) -> float:
        trained = kind.load(source, **options).learn(total_timesteps=steps)
        return tensors_at(trained.result.run_dir, trained.result.steps)["buffers/cql_weight"].item()

    monkeypatch.chdir(tmp_path)
    tiny: dict[str, Any] = {"hidden_sizes": [8], "batch_size": 8, "cql_alpha": 3.0, "num_cql_samples": 2}
    kind("Pendulum-v1", dataset={"kind": "random", "rows": 64}, output_dir="old", eval_interval=0, **tiny).learn(6)
    with pytest.raises(ConfigError, match="cql_alpha_online is for the online phase; add online_steps"):
        kind.load("old", cql_alpha_online=0.5).learn(total_timesteps=4)
    assert weight_after("old", None, online_steps=8, cql_alpha_online=0.5, output_dir="online") == 0.5
    assert verify_run(Path("online")).resume == []
    assert weight_after("online", cql_alpha_online=0.25) == 0.25
    assert weight_after("online", cql_alpha=2.0) == 0.5
    without = kind.load("online", cql_alpha_online=None).learn(total_timesteps=4)
    assert without.agent.learner.cql_weight == 3.0
    assert weight_after(without.agent.path, cql_alpha_online=0.75, output_dir="set") == 0.75


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0])
def test_a_greedy_discrete_policy_explores_by_epsilon_alone(epsilon, discrete):
    learner = CQLAlgorithm.build(discrete, hidden_sizes=(8,), epsilon=epsilon)
    obs, generator = torch.zeros(4000, 3), torch.Generator().manual_seed(0)
    greedy = learner.act(obs, deterministic=True).actions
    before = generator.get_state()
    sampled = learner.act(obs, generator=generator).actions
    assert (sampled != greedy).float().mean().item() == pytest.approx(epsilon * 3 / 4, abs=0.03)
    assert generator.get_state().equal(before) == (epsilon == 0)


def test_options_of_other_action_spaces_are_refused(box, discrete):
    with pytest.raises(ValueError, match=r"epsilon is for Discrete actions only, got 0\.1\. Leave it at 0\.0 for Box"):
        CQLAlgorithm.build(box, epsilon=0.1)
    with pytest.raises(ValueError, match="critic_hidden_sizes is for Box actions only"):
        CQLAlgorithm.build(discrete, critic_hidden_sizes=(8,))
