"""`train` starts or continues a run; `resume` continues a run directory."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_training.cli.data import ActionRange, Allow, Columns, read_options
from rl_training.cli.executors import given_options, takes_executor
from rl_training.cli.options import DATA, LIST, Json, Trust, number
from rl_training.cli.output import print_json, print_profile, print_report, stdout_for_results
from rl_training.cli.tables import takes_table_options
from rl_training.experiment.executors.base import ExecutorOptions
from rl_training.experiment.user_errors import message_of
from rl_training.waiting import garbage_collection_off, show_line, waiting_for

if TYPE_CHECKING:
    from rl_training.experiment.config.train_config import TrainConfig
    from rl_training.experiment.run import TrainResult
    from rl_training.runtime.callbacks.profile import Profile
    from rl_training.runtime.engine import Callback


def one_seed(text: str) -> int:
    if not text.isdecimal():
        hint = f"; several seeds are --seeds {text}" if re.fullmatch(r"\d+([,-]\d+)+", text) else ""
        raise typer.BadParameter(f"{text!r} is not a whole number of at least 0{hint}")
    return int(text)


Target = Annotated[
    str, typer.Argument(metavar="CONFIG|ALGO", help="Packaged config (iql/pendulum), .yaml file or algorithm.")
]
Env = Annotated[str | None, typer.Argument(metavar="ENV", help="Environment, such as CartPole-v1 or my_envs:Grid.")]
Dataset = Annotated[
    str | None,
    typer.Option(metavar="SRC", help="Dataset: file, glob, Minari id, or '{kind: random, rows: 50000}'."),
    DATA,
]
Steps = Annotated[int | None, number("Train for at least N environment steps (offline: updates).")]
TotalSteps = Annotated[
    int | None,
    number(
        "Total steps at which to stop, counted from the start of the run (offline: updates). "
        "May be above or below the original budget."
    ),
]
OnlineSteps = Annotated[int | None, number("Fine-tune online in ENV for N steps after offline training.")]
Seed = Annotated[int | None, typer.Option(metavar="S", parser=one_seed, help="Random seed of the run.")]
Seeds = Annotated[
    str | None, typer.Option(metavar="0-4", help="Several seeds, 0-4 or 0,2,5; one run each in DIR/seed_<s>."), LIST
]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a config key or an algorithm option.")
]
Output = Annotated[
    str | None, typer.Option(metavar="DIR", help="Run directory.", show_default="runs/<algo>-<env>-s<seed>")
]
Device = Annotated[str | None, typer.Option(metavar="auto|cpu|cuda", help="Device of the networks.")]
Threads = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="CPU threads for PyTorch (default: 1, 2 or 4, by timing).")
]
Compile = Annotated[
    str | None, typer.Option("--compile", metavar="auto|on|off", help="Use torch.compile; auto: long runs, by timing.")
]
Jobs = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, help="With --seeds: processes that train in parallel.",
        show_default="one population, or one process per core",
    ),
]  # fmt: skip
Fresh = Annotated[bool, typer.Option("--fresh", help="Delete the run in DIR and start over.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the result only, no progress.")]
Profiled = Annotated[
    bool, typer.Option("--profile", help="Report the time spent in env, act, sample, update and other parts.")
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="Run directory, or a checkpoint in it.")]


@takes_executor
@takes_table_options
def train(
    target: Target, env: Env = None, dataset: Dataset = None, columns: Columns = None, action_range: ActionRange = None,
    allow: Allow = None, steps: Steps = None, online_steps: OnlineSteps = None, seed: Seed = None, seeds: Seeds = None,
    overrides: Overrides = None, output: Output = None, device: Device = None, threads: Threads = None,
    compile_: Compile = None, jobs: Jobs = None, fresh: Fresh = False, quiet: Quiet = False, profile: Profiled = False,
    trust: Trust = None, as_json: Json = False, *, executor: ExecutorOptions, table: dict[str, Any],
) -> None:  # fmt: skip
    """Train an agent. Repeat the command to continue a stopped run, or to print the result of a finished one."""
    from rl_training.cli.seeds import parse_seeds, seed_configs, summary

    if seed is not None and seeds is not None:
        raise ValueError("give --seed or --seeds, not both")
    executor = replace(executor, jobs=jobs)
    check_executor(executor, several=seeds is not None, profile=profile)
    if dataset is not None and env is not None and Path(env).is_file():
        raise ValueError(f"{env} is a file, not an environment; put a pattern of several data files in quotes")
    given: dict[str, Any] = {
        "env_id": env, "dataset": dataset, "total_timesteps": steps, "online_steps": online_steps, "seed": seed,
        "output_dir": output, "device": device, "threads": threads, "compile": compile_, "table": table or None,
    }  # fmt: skip
    with stdout_for_results():
        given |= {key: value or None for key, value in read_options(columns, action_range, allow).items()}
        with garbage_collection_off(), waiting_for("importing PyTorch", None if quiet else show_line):
            config = read_config(target, given, overrides or [], trust or [])
        chosen = None if seeds is None else parse_seeds(seeds)
        configs = [config] if chosen is None else seed_configs(config, chosen)
        watch = profile_of(configs) if profile else None
        if given_options(executor):
            results = train_elsewhere(configs, executor, fresh=fresh, quiet=quiet)
        else:
            watches = [] if watch is None else [watch]
            shown = [] if quiet else [introduction(configs, chosen_options(target, overrides or []))]
            results = train_all(configs, fresh=fresh, quiet=quiet, callbacks=[*watches, *shown])
    report = results[0].report() if chosen is None else summary(chosen, results)
    if watch is not None:
        report["profile"] = watch.summary()
    conclude(results, report, config, as_json=as_json)


def resume(run: Run, steps: TotalSteps = None, trust: Trust = None, as_json: Json = False) -> None:
    """Resume a stopped run. The result is the same as without the stop. --steps extends a finished run."""
    with stdout_for_results():
        from rl_training.cli.introduction import Introduction
        from rl_training.experiment.agent import run_of
        from rl_training.experiment.run import resume_run
        from rl_training.experiment.run_directory import RunDirectory

        run_dir = run_of(run)
        config = RunDirectory(run_dir).config(trust or ())
        shown = [] if config is None else [Introduction(config)]
        result = resume_run(run_dir, steps=steps, callbacks=shown, quiet=False, trust=trust or ())
    conclude([result], result.report(), config, as_json=as_json)


def read_config(target: str, given: dict[str, Any], overrides: list[str], trust: list[str]) -> TrainConfig:
    from rl_training.experiment.config.train_config import parse_config

    return parse_config(merge_config(target, given, overrides, trust))


def merge_config(target: str, given: dict[str, Any], overrides: list[str], trust: list[str]) -> dict[str, Any]:
    """Merges the config, the options and --set, not yet validated; later ones override earlier ones."""
    from rl_training.experiment.config.train_config import ConfigError, apply_overrides, load_config
    from rl_training.experiment.config.yaml_text import read_yaml
    from rl_training.experiment.trust import approve_typed

    given = {key: value for key, value in given.items() if value is not None}
    named = "/" in target or target.endswith((".yaml", ".yml"))
    values = apply_overrides(load_config(target) if named else {"algo": target}, [])
    if given.get("dataset", "").startswith(("{", "[{")):
        try:
            given["dataset"] = read_yaml(given["dataset"])
        except ConfigError as error:
            raise ConfigError(f"--dataset: {error}") from None
    merged = apply_overrides(values, overrides, **given)
    approve_typed(merged, apply_overrides(given, overrides), Path(target) if named else None, trust)
    return merged


def profile_of(configs: list[TrainConfig]) -> Profile:
    from rl_training.experiment.seeds.sweep import as_population
    from rl_training.runtime.callbacks.profile import Profile

    if len(configs) > 1 and not as_population(configs[0]):
        raise ValueError(
            f"--profile measures one process, and seeds of {configs[0].algo} train in one process each; give one --seed"
        )
    return Profile()


def check_executor(options: ExecutorOptions, *, several: bool, profile: bool) -> None:
    given = given_options(options)
    if given and not several:
        hint = "; --device cuda:1 chooses the GPU of one run" if given[0] == "--devices" else ""
        raise ValueError(f"{given[0]} needs --seeds, because one run is one process{hint}")
    if given and profile:
        raise ValueError(f"--profile measures this process, and with {given[0]} seeds train in others; give one --seed")


def train_elsewhere(
    configs: list[TrainConfig], options: ExecutorOptions, *, fresh: bool, quiet: bool
) -> list[TrainResult]:
    """Trains the seeds by an executor."""
    from rl_training.experiment.executors.opening import for_devices, open_executor
    from rl_training.experiment.seeds.sweep import train_seeds

    with closing(open_executor(for_devices(options, {configs[0].device}))) as executor:
        return train_seeds(configs, fresh=fresh, quiet=quiet, executor=executor)


def train_all(
    configs: list[TrainConfig], *, fresh: bool, quiet: bool, callbacks: Sequence[Callback]
) -> list[TrainResult]:
    from rl_training.experiment.run import run_training
    from rl_training.experiment.seeds.sweep import train_seeds

    if len(configs) == 1:
        return [run_training(configs[0], callbacks=callbacks, fresh=fresh, quiet=quiet)]
    return train_seeds(configs, callbacks=callbacks, fresh=fresh, quiet=quiet)


def introduction(configs: list[TrainConfig], chosen: Collection[str]) -> Callback:
    from rl_training.cli.introduction import Introduction

    return Introduction(configs[0], seeds=[config.seed for config in configs], chosen=chosen)


def chosen_options(target: str, overrides: list[str]) -> Collection[str]:
    """Returns the names of the algorithm's options that the user set, by --set or in a config file."""
    from rl_training.experiment.config.train_config import apply_overrides, load_config

    in_file = load_config(target) if target.endswith((".yaml", ".yml")) else {}
    return apply_overrides(in_file, overrides).get("algo_kwargs") or {}


def draw_curve(run_dir: Path) -> Path | None:
    from rl_training.reporting.plots import save_learning_curve

    try:
        return save_learning_curve(run_dir)
    except Exception as error:  # a plot must not fail a run
        typer.echo(f"{run_dir / 'curve.png'} was not drawn: {message_of(error)}; the run is complete", err=True)
        return None


def held_out(dataset: object) -> str:
    """The test file that `data split` wrote beside the training file, or how to make one."""
    if (
        isinstance(dataset, str)
        and Path(dataset).stem == "train"
        and (test := Path(dataset).with_stem("test")).exists()
    ):
        return shlex.quote(str(test))
    return "TEST  # episodes that it was not trained on; `rl-training data split` makes such a file"


def conclude(results: list[TrainResult], report: dict[str, Any], config: TrainConfig | None, *, as_json: bool) -> None:
    """Plots the learning curves and prints the result; after a signal, only prints it and exits."""
    signal = next((result.signal for result in results if result.signal is not None), None)
    if report.get("profile") == {}:
        typer.echo("the run is already finished, so there is nothing to profile; --fresh trains it again", err=True)
    curves = [draw_curve(result.run_dir) for result in results] if signal is None else []
    if as_json:
        print_json(report)
    else:
        data = None
        if config is not None and config.env_id is None:
            data = held_out(config.dataset)
        print_report(report, curves[0] if len(curves) == 1 else None, data=data)
        if report.get("profile"):
            print_profile(report["profile"])
    if signal is not None:
        raise typer.Exit(128 + signal)
