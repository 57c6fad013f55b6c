"""`tune` searches for better values of config keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_training.cli.executors import takes_executor
from rl_training.cli.options import LIST, Json, Trust, number
from rl_training.cli.output import stdout_for_results
from rl_training.cli.train import Dataset, Env, Overrides, Steps, Target, merge_config
from rl_training.experiment.executors.base import ExecutorOptions
from rl_training.messages import command, many

if TYPE_CHECKING:
    from rl_training.experiment.config.train_config import TrainConfig
    from rl_training.experiment.tuning.plan import TunePlan

Search = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUES", help="Key to tune: KEY=LOW:HIGH, LOW:HIGH:log, LOW:HIGH:STEP or A,B,C; repeatable."
    ),
]
Trials = Annotated[int, number("Number of trials; a larger N extends the study.")]
Seeds = Annotated[
    str, typer.Option(metavar="0-2", help="Random seeds of each trial; its score is their mean return."), LIST
]
Sampler = Annotated[str, typer.Option(metavar="tpe|random", help="How Optuna suggests values: TPE or random search.")]
SamplerSeed = Annotated[int, typer.Option(metavar="S", min=0, help="Random seed of the sampler.")]
NoPrune = Annotated[bool, typer.Option("--no-prune", help="Train every trial to the end.")]
FinalSeeds = Annotated[
    str | None,
    typer.Option(
        metavar="100-104",
        help="Seeds that score the best config; none of --seeds.",
        show_default="from 100, at least 5",
    ),
    LIST,
]
Episodes = Annotated[int, number("Evaluation episodes per final seed.")]
Baseline = Annotated[
    bool, typer.Option("--baseline/--no-baseline", help="Score the untuned config on the final seeds too.")
]
Jobs = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Trials run in parallel.", show_default="as the cores allow")
]
Output = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Output directory.", show_default="runs/tune-<algo>-<env>")
]
QUEUED_TRIALS = 10  # trials at a time on a cluster, unless --jobs is given


@takes_executor
def tune(
    target: Target, env: Env = None, search: Search = None, trials: Trials = 30, seeds: Seeds = "0-2",
    dataset: Dataset = None, steps: Steps = None, overrides: Overrides = None, sampler: Sampler = "tpe",
    sampler_seed: SamplerSeed = 0, no_prune: NoPrune = False, final_seeds: FinalSeeds = None, episodes: Episodes = 50,
    baseline: Baseline = True, jobs: Jobs = None, output: Output = None, trust: Trust = None, as_json: Json = False,
    *, executor: ExecutorOptions,
) -> None:  # fmt: skip
    """Tune config keys and algorithm options with Optuna. Repeat the command to continue."""
    require_optuna()
    from rl_training.cli.bench import watching_cells
    from rl_training.cli.seeds import parse_seeds
    from rl_training.cli.tune_output import finish, watching_trials
    from rl_training.experiment.executors.opening import open_executor
    from rl_training.experiment.tuning.plan import FinalPlan, parse_plan
    from rl_training.experiment.tuning.plan import final_seeds as other_seeds
    from rl_training.experiment.tuning.tuning import Tuning

    tuned = parse_seeds(seeds)
    chosen = None if final_seeds is None else parse_seeds(final_seeds, "--final-seeds")
    final = FinalPlan(seeds=other_seeds(tuned, chosen), episodes=episodes, baseline=baseline)
    typed = {"--search": search, "--trials": trials, "--seeds": seeds, "--dataset": dataset, "--steps": steps,
             "--set": overrides, "--sampler": sampler, "--sampler-seed": sampler_seed, "--no-prune": no_prune,
             "--final-seeds": final_seeds, "--episodes": episodes}  # fmt: skip
    with stdout_for_results():
        given = {"env_id": env, "dataset": dataset, "total_timesteps": steps}
        values = merge_config(target, given, overrides or [], trust or [])
        what = searched(values, search or [], given_keys(given, overrides or []), trials)
        how = {"seeds": tuned, "sampler": sampler, "sampler_seed": sampler_seed, "prune": not no_prune}
        plan = parse_plan({**what, **how})
        output = output or default_output(plan.train_config())
        words = [target, *([env] if env else [])]
        study = Tuning(plan, output, trials, repeated_command(words, {**typed, "--output": str(output)}))
        options = trial_options(replace(executor, jobs=jobs), plan)
        study.run(lambda: open_executor(options), final, watching_trials, watching_cells)
    finish(study, as_json=as_json)
    if study.status != "done":
        raise typer.Exit(1 if study.signal is None else 128 + study.signal)


def require_optuna() -> None:
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise ImportError('tune needs optuna: pip install "rl-training[tune]"') from error


def given_keys(given: dict[str, Any], overrides: Sequence[str]) -> list[str]:
    """The config keys that the command line sets."""
    from rl_training.experiment.config.messages import key_and_value

    typed = [key_and_value(text, what="--set")[0] for text in overrides]
    return [*(key for key, value in given.items() if value is not None), *typed]


def searched(values: dict[str, Any], search: Sequence[str], fixed: Sequence[str], trials: int) -> dict[str, Any]:
    """The config of the trials, without a seed and with evaluations, and the search space, both validated."""
    from rl_training.experiment.config.messages import key_and_value
    from rl_training.experiment.config.train_config import parse_config
    from rl_training.experiment.tuning.plan import with_evaluations
    from rl_training.experiment.tuning.space import checked, parse_search

    values = {key: value for key, value in values.items() if key not in ("seed", "output_dir")}
    space = parse_search(search)
    every = with_evaluations(parse_config(values))
    if every is not None:
        typer.echo(
            f"eval_interval is 0, but tuning needs evaluations; runs are evaluated every {many(every, 'step')}",
            err=True,
        )
        values["eval_interval"] = every
    size = checked(space, values, fixed).size
    if trials > size:
        raise ValueError(f"--search allows {size:.0f} different configs, so --trials must be at most {size:.0f}")
    texts = [key_and_value(text, what="--search")[1] for text in search]
    return {"config": values, "search": dict(zip(space.dimensions, texts, strict=True))}


def trial_options(executor: ExecutorOptions, plan: TunePlan) -> ExecutorOptions:
    """The options of the executor, with the trials at a time limited unless --jobs is given.

    On this machine each process of a trial has a core: one for a population, otherwise one per seed. A cluster would
    take all trials at once, before any score could guide them.
    """
    from rl_training.experiment.executors.capacity import cores
    from rl_training.experiment.executors.opening import check_options, for_devices
    from rl_training.experiment.seeds.sweep import as_population

    check_options(executor)
    config = plan.train_config()
    processes = 1 if as_population(config) else len(plan.seeds)
    if executor.jobs is None and executor.name != "local":
        executor = replace(executor, jobs=QUEUED_TRIALS)
    elif executor.jobs is None and executor.cpus is None:
        executor = replace(executor, cpus=min(processes, cores()))
    return for_devices(executor, {config.device})


def default_output(config: TrainConfig) -> Path:
    from rl_training.experiment.run_directory import default_directory

    run = default_directory(config)
    return run.with_name(f"tune-{run.name.removesuffix(f'-s{config.seed}')}")


def repeated_command(words: Sequence[str], options: dict[str, Any]) -> str:
    """The command as it can be typed again."""
    flags: list[str] = []
    for name, value in options.items():
        each = value if isinstance(value, list) else [] if value in (None, False) else [value]
        flags += [word for one in each for word in ([name] if one is True else [name, str(one)])]
    return command("tune", *words, *flags).replace("\n", " ")  # it becomes a comment of one line
