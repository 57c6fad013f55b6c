"""Checks that hold for every algorithm. Each raises an AssertionError with the reason."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from rl_training.algorithms import Learner, Updater
from rl_training.algorithms.core.updater import compiled as compiled_loss
from rl_training.api.managed import ManagedAlgorithm
from rl_training.data.spaces import observations_of
from rl_training.envs.pools.pool import EnvPool
from rl_training.experiment.config.train_config import TrainConfig, parse_config
from rl_training.experiment.run import resume_run, run_population, run_training
from rl_training.experiment.verify import compare_runs
from rl_training.runtime.callbacks.training import StopAtStep
from rl_training.runtime.lanes import lane_class
from rl_training.testing.cases import AlgorithmCase, random_observations
from rl_training.types import Batch, EnvSpec

UPDATES = 2  # with policy_delay = 2 they include the actor's
SEEDS = (0, 3)


def require(holds: bool, reason: str) -> None:
    if not holds:
        raise AssertionError(reason)


def check_updates(case: AlgorithmCase) -> None:
    """Updates move every trained tensor, and losses and metrics are finite."""
    learner = case.build()
    before = {name: value.detach().clone() for name, value in learner.named_parameters()}
    batch = case.batch(learner)
    results = [learner.update(batch, global_step=step) for step in range(3)]
    unmoved = [name for name, value in learner.named_parameters() if value.requires_grad and value.equal(before[name])]
    require(not unmoved, f"updates do not change {', '.join(unmoved)}: the loss has no gradient for them")
    bad = sorted({name for each in results for name, value in each.metrics.items() if not value.isfinite().all()})
    require(not bad, f"NaN or infinite after three updates: {', '.join(bad)}")
    require(results[-1].num_gradient_steps == 1, "update() must run one gradient step")


def check_update_equals_updater(case: AlgorithmCase) -> None:
    """`update` of a learner is one update of its `Updater`."""
    learner, other = case.build(), case.build()
    batch = case.batch(learner)
    other.load_state_dict(learner.state_dict())
    torch.manual_seed(1)
    learner.update(batch, global_step=7)
    torch.manual_seed(1)
    Updater([other]).update(batch)
    require(_same(learner, other), "update() and Updater.update() lead to different weights")


def check_state(case: AlgorithmCase) -> None:
    """A learner that gets the state of another one takes the same next update."""
    learner = case.build()
    check_loaded_state(learner, case.build(seed=7), case.batch(learner))


def check_loaded_state(learner: Learner, other: Learner, batch: Batch) -> None:
    """After `other` has loaded the state of `learner`, both take the same next update."""
    mine, theirs = Updater([learner]), Updater([other])
    mine.update(batch)
    theirs.load_state_dict(mine.state_dict())
    noise = torch.get_rng_state()
    mine.update(batch)
    torch.set_rng_state(noise)
    theirs.update(batch)
    require(
        _same(learner, other), "an update after loading the state differs; keep all state in parameters and buffers"
    )


def check_actions(case: AlgorithmCase) -> None:
    """Actions have the shape of the space and stay in its bounds."""
    spec = case.spec
    actions = case.build().act(random_observations(spec, 64, scale=100)).actions
    wanted = (64,) if case.kind == "discrete" else (64, spec.action_dim)
    require(tuple(actions.shape) == wanted, f"act() must return actions {wanted}, got {tuple(actions.shape)}")
    if case.kind == "box":
        require(actions.abs().max().item() <= 1, "Box actions must be in [-1, 1]")
        return
    require(actions.dtype == torch.int64, f"actions must be int64, got {actions.dtype}")
    for choices, size in zip(actions.view(64, -1).unbind(1), spec.choice_sizes, strict=True):
        require(set(choices.tolist()) <= set(range(size)), f"actions must be 0 to {size - 1}")


def check_random_streams(case: AlgorithmCase) -> None:
    """Deterministic actions use no random numbers; exploration uses its own generator alone."""
    learner, obs = case.build(), random_observations(case.spec, 8)
    noise = torch.get_rng_state()
    first, second = (learner.act(obs, deterministic=True).actions for _ in range(2))
    require(first.equal(second), "deterministic actions differ from call to call")
    require(torch.get_rng_state().equal(noise), "deterministic actions use PyTorch's default generator")
    first, second = (learner.act(obs, generator=torch.Generator().manual_seed(3)).actions for _ in range(2))
    require(first.equal(second), "actions with equally seeded generators differ: pass `generator` to every sample")
    require(torch.get_rng_state().equal(noise), "exploration uses PyTorch's default generator instead of `generator`")


def check_targets(case: AlgorithmCase) -> None:
    """Target networks start as copies and have no gradients."""
    learner = case.build()
    for part in learner.targets:
        copied = dict(learner.target[part].named_parameters())
        online = getattr(learner.model, part).named_parameters()
        require(all(value.equal(copied[name]) for name, value in online), f"target {part} does not start as a copy")
        require(not any(value.requires_grad for value in copied.values()), f"target {part} has gradients")


def check_normalized(case: AlgorithmCase) -> None:
    """With `normalize_obs`, observations are fitted and normalised. Algorithms without the option are left out."""
    if "normalize_obs" not in case.learner.config_type.model_fields or len(case.spec.obs_shape) > 1:
        return
    learner = case.build(normalize_obs=True)  # which checks that `act` normalises
    before, calls = copy.deepcopy(learner.normalizer.state_dict()), []
    hook = learner.normalizer.register_forward_pre_hook(lambda *each: calls.append(each))
    batch = case.batch(learner)
    moved = any(not value.equal(before[name]) for name, value in learner.normalizer.state_dict().items())
    require(
        moved or learner.lane not in ("offline", "rollout"),
        "prepare() does not fit the normalizer: call super().prepare(batch), or self.normalizer.merge(rows)",
    )
    if learner.lane != "rollout":  # which may be normalised when it is prepared
        calls.clear()
    for phase in (name for name in learner.phases(UPDATES - 1) if name != "targets"):
        learner(batch, phase)
    hook.remove()
    require(bool(calls), "losses ignore normalize_obs: read self.normalized(batch), or self.normalizer(batch['obs'])")


def check_population(case: AlgorithmCase) -> None:
    """A population equals its members updated alone, each with the same noise."""
    members = [case.build(seed=seed, max_grad_norm=1.0) for seed in range(3)]
    batch = stacked(case, members)
    singles = [Updater([copy.deepcopy(member)]) for member in members]
    population = Updater(members)
    for optimizer in (each for updater in (population, *singles) for each in updater.optimizers):
        optimizer.group = optimizer.group._replace(eps=1e-3)  # else Adam makes whole steps of rounding errors
    same = mock.patch.object(torch, "vmap", lambda one, randomness: torch.func.vmap(one, randomness="same"))
    for seed in range(UPDATES):
        with same:
            torch.manual_seed(seed)
            together = population.update(batch).metrics
            for i, single in enumerate(singles):
                torch.manual_seed(seed)
                alone = single.update({name: column[i] for name, column in batch.items()}).metrics
                require(alone.keys() == together.keys(), "a population has other metrics than its members")
                for name, value in alone.items():
                    torch.testing.assert_close(together[name][i], value, atol=1e-4, rtol=1e-4)
    for i, single in enumerate(singles):
        for name, value in single.params.items():
            torch.testing.assert_close(population.params[name][i], value, atol=1e-5, rtol=0)


def check_compiled(case: AlgorithmCase, backend: str = "eager", members: int = 1) -> None:
    """The compiled loss and its gradients equal the eager ones, for one learner or a population."""
    learners = [case.build(seed=seed) for seed in range(members)]
    batch = case.batch(learners[0]) if members == 1 else stacked(case, learners)
    torch.compiler.reset()  # its limit of compilations holds for the whole process
    eager = Updater(copy.deepcopy(learners))
    with mock.patch.object(torch, "compile", partial(torch.compile, backend=backend)):
        compiled = Updater(learners, compile=True)
        if compiled.fused is not None:  # whole updates on a CPU; a GPU compiles the loss
            compiled.loss = compiled_loss(compiled.loss, compiled.device)
        for phase in (phase for phase in learners[0].phases(UPDATES - 1) if phase != "targets"):
            expected, found = (_gradients(updater, batch, phase) for updater in (eager, compiled))
            require(found.keys() == expected.keys(), f"the compiled {phase} has other terms or gradients")
            for name, value in expected.items():
                torch.testing.assert_close(found[name], value, rtol=1e-5, atol=2e-5)


def _gradients(updater: Updater, batch: Batch, phase: str) -> dict[str, Any]:
    """The terms of a phase's loss, and the gradients of their sum."""
    parameters = [value for value in updater.params.values() if value.requires_grad]
    torch.manual_seed(1)
    loss = updater.loss(batch, phase)
    slopes = torch.autograd.grad(loss.total.sum(), parameters, allow_unused=True)
    return {**loss.terms, **{str(number): slope for number, slope in enumerate(slopes) if slope is not None}}


def stacked(case: AlgorithmCase, members: list[Any]) -> Batch:
    """A batch for each member, stacked on a leading axis."""
    batches = [case.batch(member, seed=seed) for seed, member in enumerate(members)]
    return {name: torch.stack([batch[name] for batch in batches]) for name in batches[0]}


def check_seeds(case: AlgorithmCase, folder: Path) -> None:
    """The same seed gives the same bytes, and another seed another run."""
    first = train(case, folder / "first")
    found = compare_runs(first, train(case, folder / "again"))
    require(not found, f"two runs of one seed differ: {'; '.join(map(str, found[:3]))}")
    require(bool(compare_runs(first, train(case, folder / "other", seed=1))), "seeds 0 and 1 give the same run")


def check_resume(case: AlgorithmCase, folder: Path, whole: Path | None = None) -> None:
    """A run that was stopped twice and resumed equals one that was never stopped."""
    early, late = case.stops
    warnings: list[str] = []
    whole = whole or train(case, folder / "whole")
    config = parse_config(case.config(output_dir=str(folder / "halved")))
    halved = run_training(config, callbacks=[StopAtStep(early)])
    again = resume_run(halved.run_dir, callbacks=[StopAtStep(late)], warn=warnings.append)
    steps = [(each.status, each.steps) for each in (halved, again)]
    require(steps == [("stopped", early), ("stopped", late)], f"the run did not stop at {early} and {late}: {steps}")
    require(resume_run(halved.run_dir, warn=warnings.append).status == "finished", "the resumed run did not finish")
    require(not warnings, f"resume warned: {'; '.join(warnings)}")
    found = compare_runs(whole, halved.run_dir)
    require(not found, f"a resumed run differs from one never stopped: {'; '.join(map(str, found[:3]))}")


def check_population_resume(case: AlgorithmCase, folder: Path, whole: list[Path] | None = None) -> None:
    """Several seeds as one population resume byte for byte. Lanes without populations are left out."""
    if not lane_class(case.learner).takes_population:
        return
    whole = whole or train_population(case, folder / "whole")
    halved = train_population(case, folder / "halved", stop=case.stops[1])
    train_population(case, folder / "halved")
    found = [each for a, b in zip(whole, halved, strict=True) for each in compare_runs(a, b)]
    require(not found, f"a resumed population differs from one never stopped: {'; '.join(map(str, found[:3]))}")


def check_saved_agent(case: AlgorithmCase, folder: Path) -> None:
    """An agent loaded from its run predicts what the trained one does."""
    trained = ManagedAlgorithm(case.config(output_dir=str(folder / "run"))).learn()
    loaded = ManagedAlgorithm.load(trained.save(folder / "agent"))
    obs = observations_for(trained.agent.spec, case.env_id)
    first, second = ([agent.predict(each) for each in obs] for agent in (trained, loaded))
    np.testing.assert_equal(second, first, "a loaded agent predicts other actions than the trained one")


def observations_for(spec: EnvSpec, env_id: str) -> list[Any]:
    """Five random observations; for spaces with a form of their own, the first ones of five episodes in that form."""
    if (converter := observations_of(spec)) is None:
        return [*random_observations(spec, 5).numpy()]
    with EnvPool(env_id, 5, like=spec) as pool:
        return [converter.own(row) for row in pool.reset()]


def train(case: AlgorithmCase, folder: Path, **changes: Any) -> Path:
    return run_training(parse_config(case.config(output_dir=str(folder), **changes))).run_dir


def population_configs(case: AlgorithmCase, folder: Path) -> list[TrainConfig]:
    return [parse_config(case.config(seed=seed, output_dir=str(folder / f"seed_{seed}"))) for seed in SEEDS]


def train_population(case: AlgorithmCase, folder: Path, *, stop: int | None = None) -> list[Path]:
    results = run_population(population_configs(case, folder), callbacks=[] if stop is None else [StopAtStep(stop)])
    wanted = {("finished", results[0].steps)} if stop is None else {("stopped", stop)}
    found = {(result.status, result.steps) for result in results}
    require(found == wanted, f"the population ended with {found}, expected {wanted}")
    return [result.run_dir for result in results]


def _same(learner: Any, other: Any) -> bool:
    theirs = dict(other.named_parameters())
    return all(value.equal(theirs[name]) for name, value in learner.named_parameters())
