"""Half precision: bfloat16 matrix products in the losses of offline algorithms."""

import pytest
import torch

from rl_training.algorithms import CQLAlgorithm, IQLAlgorithm, Updater


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize(
    ("kind", "hidden_sizes", "changed", "relative"),
    [(IQLAlgorithm, (16, 16), "critic_loss", 0.05), (CQLAlgorithm, (16,), "cql_gap", 0.02)],
)
def test_half_precision_changes_the_loss_by_rounding_alone(kind, hidden_sizes, changed, relative, members, box, draw):
    rows = draw(box, 8)
    batch = rows if members == 1 else {name: torch.stack([column] * members) for name, column in rows.items()}
    metrics = []
    for precision in ("float32", "bfloat16"):
        torch.manual_seed(0)
        learners = [kind.build(box, hidden_sizes=hidden_sizes, precision=precision) for _ in range(members)]
        metrics.append(Updater(learners).update(batch).metrics)
    full, half = metrics
    assert not torch.equal(full[changed], half[changed])
    for name, value in full.items():
        assert half[name].dtype == torch.float32
        torch.testing.assert_close(half[name], value, rtol=relative, atol=0.02)
