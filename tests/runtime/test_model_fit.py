"""A fit of the ensemble: known dynamics are learned, each member ends at its best, and elites have the least error."""

from __future__ import annotations

import pytest
import torch

from rl_training.algorithms import Dynamics, Updater
from rl_training.data import TransitionDataset
from rl_training.data.replay.bootstrap import BootstrapSampler
from rl_training.runtime.lanes.model_fit import ModelFit, full_precision
from rl_training.runtime.state import DivergedError

NOISE = 0.2  # of every step of the second number


def lived(rows: int) -> TransitionDataset:
    """Linear steps of two numbers, of which the second is noisy; beyond 1 the episode is over."""
    generator = torch.Generator().manual_seed(0)
    obs, actions = 2 * torch.rand(rows, 2, generator=generator) - 1, 2 * torch.rand(rows, 1, generator=generator) - 1
    noise = NOISE * torch.randn(rows, generator=generator)
    change = torch.stack([0.3 * actions[:, 0] - 0.2 * obs[:, 1], 0.5 * obs[:, 0] + noise], 1)
    columns = {"obs": obs, "actions": actions, "rewards": obs[:, 0] - actions[:, 0], "next_obs": obs + change}
    columns |= {"dones": (obs[:, 0] + change[:, 0] > 1).float(), "truncated": torch.zeros(rows)}
    return TransitionDataset(columns)


def new_fit(dataset: TransitionDataset, **options) -> ModelFit:
    torch.manual_seed(0)
    small = {"model_members": 4, "model_elites": 2, "model_hidden_sizes": (32, 32), "batch_size": 64, **options}
    dynamics = Dynamics.build(dataset.spec, **small)
    rows = BootstrapSampler(dataset, dynamics.model.members, torch.Generator().manual_seed(0))
    return ModelFit(dynamics, Updater([dynamics]), rows)


def finish(fit: ModelFit) -> ModelFit:
    fit.begin()
    while fit.running:
        fit.epoch()
    return fit


@pytest.fixture(scope="module")
def fitted() -> ModelFit:
    return finish(new_fit(lived(2000), model_max_epochs=40))


def test_known_dynamics_are_learned_with_their_noise(fitted):
    fresh = lived(2500).columns
    fresh = {name: column[2000:] for name, column in fresh.items()}
    seen = fitted.dynamics.model(fresh["obs"], fresh["actions"])
    change = fresh["next_obs"] - fresh["obs"]
    share = (seen.mean[..., 0].mean(0) - change[:, 0]).square().mean() / change[:, 0].var()
    assert share < 0.01
    assert (0.5 * seen.log_var[..., 1]).exp().mean().item() == pytest.approx(NOISE, rel=0.2)
    assert (0.5 * seen.log_var[..., 0]).exp().mean() < NOISE / 2  # which has no noise
    correct = (seen.ends > 0).float() == fresh["dones"]
    assert correct.float().mean() > 0.95
    assert correct[:, fresh["dones"] == 1].float().mean() > 0.9
    assert 0.02 < fresh["dones"].mean() < 0.2


def test_members_end_at_their_least_error_and_elites_are_the_best_of_them(fitted):
    errors = fitted.dynamics.errors(fitted.rows.rows(fitted.held))
    torch.testing.assert_close(errors, fitted.least_errors)
    assert set(fitted.dynamics.model.elites.tolist()) == set(errors.argsort()[:2].tolist())


def test_a_fifth_of_the_rows_is_held_out_up_to_a_bound():
    fit = new_fit(lived(100), model_max_epochs=1)
    fit.begin()
    assert (len(fit.held), fit.rows.count) == (20, 80)
    few = new_fit(lived(100), model_max_epochs=1, model_max_holdout=7)
    few.begin()
    assert (len(few.held), few.rows.count) == (7, 93)


def test_inputs_are_scaled_by_the_rows_that_are_learned_from_alone():
    fit = new_fit(lived(50))
    fit.begin()
    learnt = sorted(set(range(50)) - set(fit.held.tolist()))
    expected = fit.rows.rows(torch.tensor(learnt))["obs"].mean(0)
    torch.testing.assert_close(fit.dynamics.model.input_mean[:2], expected)


def test_a_fit_ends_once_no_member_has_got_better_for_longer_than_patience():
    fit = new_fit(lived(100), model_learning_rate=1e-12, model_patience=3)
    finish(fit)
    assert fit.epochs == 1 + 4  # the first pass is better than nothing, four are not


def test_an_epoch_reads_every_row_and_a_last_part_of_a_batch_counts_as_one():
    for rows in (100, 120):  # 32 + 32 + 16, and three whole batches
        fit = new_fit(lived(rows), batch_size=32)
        fit.begin()
        fit.epoch()
        assert (fit.rows.count, fit.updater.updates) == (0.8 * rows, 3)


def test_an_error_that_falls_by_less_than_a_hundredth_is_no_improvement():
    fit = new_fit(lived(100))
    fit.begin()
    fit.dynamics.errors = lambda batch: torch.tensor([1.0, 1.0, 1.0, 1.0])  # type: ignore[method-assign]
    assert fit._keep_improved()
    fit.dynamics.errors = lambda batch: torch.tensor([0.995, 1.0, 1.1, 1.0])  # type: ignore[method-assign]
    assert not fit._keep_improved()
    fit.dynamics.errors = lambda batch: torch.tensor([0.995, 0.985, 1.1, 1.0])  # type: ignore[method-assign]
    assert fit._keep_improved()
    assert fit.least_errors.tolist() == pytest.approx([1, 0.985, 1, 1])


def test_a_member_that_gets_worse_is_put_back_alone():
    fit = new_fit(lived(100))
    fit.begin()
    fit.epoch()
    weight = fit.networks["model.net.0.weight"]
    best = weight.detach().clone()
    with torch.no_grad():
        weight[1].add_(10.0)
    fit._keep_improved()
    fit._end()
    assert weight[1].equal(best[1])


def test_products_are_exact_in_a_fit_and_as_before_after_it():
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        with full_precision():
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)


def test_each_fit_counts_improvements_from_its_own_start():
    fit = new_fit(lived(100))
    fit.least_errors.fill_(1e-9)
    fit.begin()
    assert fit.least_errors.isinf().all()


def test_weights_carry_over_from_fit_to_fit():
    fit = finish(new_fit(lived(500), model_max_epochs=10))
    before = fit.least_errors.mean()
    fit.dynamics.config = fit.dynamics.config.model_copy(update={"model_max_epochs": 1})
    finish(fit)
    assert fit.least_errors.mean() < 1.5 * before


def test_a_fit_that_diverges_says_so():
    dataset = lived(50)
    fit = new_fit(dataset.with_columns(rewards=torch.full((50,), 1e30)), model_max_epochs=2)
    with pytest.raises(DivergedError, match="model_learning_rate"):
        finish(fit)


def test_one_row_is_too_few():
    with pytest.raises(ValueError, match="at least 2 transitions, one of them held out, got 1"):
        new_fit(lived(1)).begin()


def test_a_fit_goes_on_from_its_middle_as_if_it_had_never_stopped():
    whole, halved, resumed = (new_fit(lived(200), model_max_epochs=4) for _ in range(3))
    finish(whole)
    halved.begin()
    halved.epoch()
    resumed.load_state_dict(halved.state_dict())
    resumed.rows.generator.set_state(halved.rows.generator.get_state())
    while resumed.running:
        resumed.epoch()
    assert all(value.equal(whole.updater.params[name]) for name, value in resumed.updater.params.items())
    assert resumed.dynamics.model.elites.equal(whole.dynamics.model.elites)
