"""Half precision: bfloat16 matrix products in losses."""

import pytest
import torch

from rl_training.algorithms import CATALOGUE, SACAlgorithm, TQCAlgorithm, Updater
from rl_training.algorithms.discrete_sac import DiscreteSAC

TAKERS = {
    name: learner
    for name, learner in CATALOGUE.items()
    if "precision" in learner.config_type.model_fields and learner.lane != "sequence"
}
TAKERS["discrete_sac"] = DiscreteSAC
BOUNDS = {"fqf": 0.1}  # its fraction loss is a sum of differences of nearly equal values
CHANGED = {"cql": "cql_gap", "cal_ql": "cql_gap"}  # the only metric of the critics' products that is no mean of rewards


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("name", TAKERS)
def test_half_precision_changes_the_loss_by_rounding_alone(name, members, box, discrete, draw):
    kind, spec = TAKERS[name], box if "box" in TAKERS[name].action_kinds else discrete
    rows = draw(spec, 8)
    rows |= {column.name: torch.rand(8, *column.layout(rows)[0]) for column in kind.needs}
    batch = rows if members == 1 else {name: torch.stack([column] * members) for name, column in rows.items()}
    metrics = []
    for precision in ("float32", "bfloat16"):
        torch.manual_seed(0)
        learners = [kind.build(spec, hidden_sizes=(16, 16), precision=precision) for _ in range(members)]
        metrics.append(Updater(learners).update(batch).metrics)
    full, half = metrics
    changed = CHANGED.get(name, "critic_loss" if "critic_loss" in full else "q_value_mean")
    assert not torch.equal(full[changed], half[changed])
    for metric, value in full.items():
        assert half[metric].dtype == torch.float32
        message = f"{metric}: {half[metric]}, {value}"
        torch.testing.assert_close(half[metric], value, rtol=0.05, atol=BOUNDS.get(name, 0.02), msg=message)


def test_policies_and_values_are_in_full_precision(box):
    learner = TQCAlgorithm.build(box, hidden_sizes=(8,), critic_hidden_sizes=(8,), precision="bfloat16")
    with torch.no_grad():
        learner.model.critic.net[-1].bias.fill_(100.1)  # bfloat16 has 100 and 100.5
        learner.model.critic.net[-1].weight.zero_()
    rows = {"obs": torch.zeros(1, 3), "rewards": torch.zeros(1), "actions": torch.zeros(1, 2)}
    with learner.precision(rows):
        quantiles = learner.model.critic(rows["obs"], rows["actions"])
        policy = learner.model.actor(rows["obs"])
    torch.testing.assert_close(quantiles, torch.full((5, 1, 25), 100.1))
    assert {each.dtype for each in policy} == {torch.float32}


def test_acting_is_in_full_precision(box):
    obs = torch.rand(4, 3)
    actions = []
    for precision in ("float32", "bfloat16"):
        torch.manual_seed(0)
        learner = SACAlgorithm.build(box, hidden_sizes=(8,), precision=precision)
        actions.append(learner.act(obs, deterministic=True).actions)
    assert actions[0].equal(actions[1])
