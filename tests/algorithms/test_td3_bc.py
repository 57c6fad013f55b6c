"""TD3+BC: its losses by hand, its delayed policy, and where gradients go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from rl_training.algorithms import TD3BCAlgorithm, TD3BCConfig, td3_bc_loss
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.run import resume_run, run_training
from rl_training.runtime.callbacks.training import StopAtStep


def test_the_critic_is_weighed_by_its_own_size_and_cloning_is_a_mean():
    q, chosen, actions = torch.tensor([1.0, -3.0]), torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.zeros(2, 2)
    loss = td3_bc_loss(q, chosen, actions, 2.5)
    assert loss.metrics["q_weight"].item() == 2.5 / 2  # the mean of 1 and 3
    assert loss.terms["actor_loss"].item() == -1.25 * (1 - 3) / 2
    assert loss.terms["bc_loss"].item() == 1 / 4  # over rows and dimensions


def test_no_gradient_passes_through_the_weight():
    q = torch.tensor([1.0, -3.0], requires_grad=True)
    (slope,) = torch.autograd.grad(td3_bc_loss(q, torch.zeros(2, 1), torch.zeros(2, 1), 2.5).terms["actor_loss"], q)
    assert slope.tolist() == [-1.25 / 2, -1.25 / 2]


def test_the_target_is_the_smaller_critic_at_the_target_actors_action(box, draw):
    learner, rows = (
        TD3BCAlgorithm.build(box, hidden_sizes=(8,), target_noise=0.0, gamma=0.9, normalize_obs=False),
        draw(box, 3),
    )
    with torch.no_grad():
        for parameter in learner.target.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        actions = learner.target["actor"](rows["next_obs"]).mode()
        next_q = torch.minimum(*learner.target["critic"](rows["next_obs"], actions))
    continues, terminates, runs_out = learner.target_q(rows)  # so `draw` ends its rows, in this order
    assert continues.item() == pytest.approx((rows["rewards"][0] + 0.9 * next_q[0]).item(), abs=1e-6)
    assert terminates.item() == rows["rewards"][1].item()
    assert runs_out.item() == pytest.approx((rows["rewards"][2] + 0.9 * next_q[2]).item(), abs=1e-6)


def test_each_term_trains_its_own_network_alone(box, draw, reached):
    learner, rows = TD3BCAlgorithm.build(box, hidden_sizes=(8,)), draw(box, 4)
    assert reached(learner.critic_loss(rows).total, learner) == {"critic"}
    for term in learner.actor_loss(rows).terms.values():
        assert reached(term, learner) == {"actor"}


def test_the_actor_climbs_the_first_critic_alone(box, draw):
    learner, rows = TD3BCAlgorithm.build(box, hidden_sizes=(8,)), draw(box, 4)
    before = learner.actor_loss(rows).terms["actor_loss"].item()
    with torch.no_grad():
        learner.model.critic.net[2].bias[1] += 5.0
    assert learner.actor_loss(rows).terms["actor_loss"].item() == before


def test_actor_and_targets_move_at_every_second_update(box, draw, changed_parts):
    learner = TD3BCAlgorithm.build(box, hidden_sizes=(8,))
    critic, everything = {"model.critic"}, {"model.actor", "model.critic", "target.actor", "target.critic"}
    assert changed_parts(learner, draw(box, 4), 4) == [critic, everything, critic, everything]


def test_observations_are_standardised_unless_asked_otherwise(box, draw):
    learner, rows = TD3BCAlgorithm.build(box, hidden_sizes=(8,)), draw(box, 50)
    learner.prepare(rows)
    mean, std = rows["obs"].mean(0), rows["obs"].std(0, unbiased=False) + 1e-3
    plain = learner.model.actor((rows["obs"] - mean) / std).mode()
    torch.testing.assert_close(learner.act(rows["obs"]).actions, plain)


@pytest.mark.parametrize(("option", "value"), [("alpha", 0), ("policy_delay", 0), ("target_noise", -0.1), ("tau", 2)])
def test_bad_values_are_refused_by_the_name_of_their_option(option, value):
    with pytest.raises(ValueError, match=option):
        TD3BCConfig(**{option: value})


def fine_tuning(folder: Path, **options: Any) -> Any:
    return parse_config(
        {"algo": "td3_bc", "env_id": "Pendulum-v1", "dataset": {"kind": "random", "rows": 200}, "total_timesteps": 10,
         "online_steps": 40, "eval_interval": 0, "checkpoint_interval": 10, "keep_checkpoints": 9,
         "output_dir": str(folder), "algo_kwargs": {"hidden_sizes": [8], "batch_size": 8, **options}}
    )  # fmt: skip


def tensors_at(folder: Path, step: int) -> dict[str, Tensor]:
    return load_file(folder / f"checkpoints/step_{step:09}/learner.safetensors")


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(value.equal(second[name]) for name, value in first.items())


def test_exploration_noise_changes_the_online_phase_alone_and_resumes_exactly(tmp_path):
    noise = {"action_noise": "gaussian", "action_noise_scale": 0.3}
    run_training(fine_tuning(tmp_path / "greedy"))
    run_training(fine_tuning(tmp_path / "noisy", **noise))
    run_training(fine_tuning(tmp_path / "halved", **noise), callbacks=[StopAtStep(25)])
    resume_run(tmp_path / "halved")
    assert same(tensors_at(tmp_path / "greedy", 10), tensors_at(tmp_path / "noisy", 10))
    assert not same(tensors_at(tmp_path / "greedy", 50), tensors_at(tmp_path / "noisy", 50))
    assert same(tensors_at(tmp_path / "halved", 50), tensors_at(tmp_path / "noisy", 50))
    assert TD3BCConfig().action_noise == "none"
