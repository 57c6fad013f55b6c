"""`evaluate`: run a trained agent in its environment, or estimate its return from data."""

from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from rl_training.cli.data import ActionRange, Allow, Columns, read_options
from rl_training.cli.options import DATA, Best, Json, Trust, number
from rl_training.cli.output import print_facts, print_json, score, stdout_for_results
from rl_training.cli.ranking import rank, with_interval
from rl_training.cli.tables import takes_table_options
from rl_training.messages import OPE_CAUTION, many, option_name

Runs = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN",
        help="A run directory (its newest checkpoint) or a checkpoint. With --ope: several, or folders of runs.",
    ),
]
Episodes = Annotated[int | None, number("Episodes to run (default 10).")]
Seed = Annotated[int, typer.Option(metavar="S", min=0, help="Random seed for the episodes or the estimate.")]
Stochastic = Annotated[
    bool | None,
    typer.Option(
        "--stochastic/--deterministic", help="Sample actions, or not (default: eval_stochastic of the run's config)."
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Set env_kwargs.NAME, env_wrappers or eval_… for this evaluation only."
    ),
]
VideoFile = Annotated[
    Path | None, typer.Option("--video", metavar="FILE", help="Record a video of the first episodes (.mp4 or .gif).")
]
VideoEpisodes = Annotated[int | None, number("Episodes in the video (default 3, two minutes at most).")]
Ope = Annotated[
    str | None, typer.Option(metavar="DATASET", help="Estimate the return from data, without an environment."), DATA
]
Updates = Annotated[int | None, number("Updates of the estimate (default 10,000).")]
ActionSamples = Annotated[int | None, number("Evaluate the stochastic policy with N sampled actions per state.")]
Gamma = Annotated[float | None, typer.Option(metavar="G", help="Discount of the estimate (default 0.99).")]


class Playing(NamedTuple):
    """Options of an evaluation in the environment."""

    episodes: int | None
    stochastic: bool | None
    settings: list[str] | None
    video: Path | None
    video_episodes: int | None

    def first_option(self) -> str | None:
        """Returns the first option that was given."""
        stochastic = "--stochastic" if self.stochastic else "--deterministic"
        names = ("--episodes", stochastic, "--set", "--video", "--video-episodes")
        return next((name for name, value in zip(names, self, strict=True) if value is not None), None)


@takes_table_options
def evaluate(
    runs: Runs, best: Best = False, episodes: Episodes = None, seed: Seed = 0, stochastic: Stochastic = None,
    settings: Settings = None, video: VideoFile = None, video_episodes: VideoEpisodes = None, ope: Ope = None,
    updates: Updates = None, gamma: Gamma = None, action_samples: ActionSamples = None, columns: Columns = None,
    action_range: ActionRange = None, allow: Allow = None, trust: Trust = None, as_json: Json = False, *,
    table: dict[str, Any],
) -> None:  # fmt: skip
    """Evaluate a trained agent in its environment. With --ope, estimate its discounted return from data alone; several
    runs are ranked in one table, best first. The data are read with the agent's own dataset options unless others are
    given. Actions are deterministic unless --stochastic or the config's eval_stochastic is set."""
    estimating = {"updates": updates, "gamma": gamma, "action_samples": action_samples}
    given = {name: value for name, value in estimating.items() if value is not None}
    reading = read_options(columns, action_range, allow) | table
    playing = Playing(episodes, stochastic, settings or None, video, video_episodes)
    if ope is None:
        unused = [*given, *(name for name, value in reading.items() if value)]
        if unused:
            option = option_name(unused[0].removeprefix("dataset_"))
            raise ValueError(f"{option} needs --ope DATASET, the estimate from data")
        if len(runs) > 1:
            raise ValueError("give one RUN to play episodes, or --ope DATASET to rank several runs from data")
        play(runs[0], best, seed, playing, trust or [], as_json)
    elif (useless := playing.first_option()) is not None:
        raise ValueError(f"--ope runs no episodes: remove {useless}")
    elif (found := every_run(runs)) != runs or len(runs) > 1:
        rank(found, ope, as_json, best=best, trust=trust or [], seed=seed, reading=reading, **given)
    else:
        estimate(found[0], ope, best, trust or [], as_json, reading=reading, seed=seed, **given)


def every_run(paths: list[Path]) -> list[Path]:
    """The runs and checkpoints at these paths; a folder stands for all runs below it, such as several seeds."""
    from rl_training.experiment.ope.runs import runs_below

    return [run for path in paths for run in runs_below(path)]


def play(run: Path, best: bool, seed: int, playing: Playing, trust: list[str], as_json: bool) -> None:
    if playing.video is None and playing.video_episodes is not None:
        raise ValueError("--video-episodes needs --video FILE")
    with stdout_for_results():
        from rl_training.envs.same_spaces import require_same_spaces
        from rl_training.experiment.agent import load_agent
        from rl_training.experiment.config.overrides import ENVIRONMENT, evaluation_config
        from rl_training.experiment.trust import modules_of
        from rl_training.runtime.video import EPISODES, Video

        video = None
        if playing.video is not None:
            video = Video(playing.video, episodes=playing.video_episodes or EPISODES)
        agent = load_agent(run, best=best, trust=trust)
        config, typed = evaluation_config(agent.config, playing.settings or [])
        agent = agent._replace(config=config, trust=(*agent.trust, *modules_of(typed)))
        if typed.keys() & set(ENVIRONMENT) and (source := agent.trusted_env()) is not None:
            require_same_spaces(agent.spec, source)
        deterministic = None if playing.stochastic is None else not playing.stochastic
        episodes = playing.episodes or typed.get("eval_episodes", 10)
        played = agent.evaluate(episodes, seed=seed, deterministic=deterministic, video=video)
    facts = {"checkpoint": str(agent.path)} | ({} if video is None else {"video": str(video.path)})
    if as_json:
        print_json({**facts, **played})
        return
    lengths = f"{min(played['lengths'])} to {max(played['lengths'])} steps"
    print_facts({"return": score(played), "lengths": lengths, **facts})


def estimate(
    run: Path, source: str, best: bool, trust: list[str], as_json: bool, *, reading: dict[str, Any], **options: Any
) -> None:
    """Prints fitted Q evaluation of a trained agent and the return of the behaviour policy."""
    with stdout_for_results():
        import torch

        from rl_training.experiment.agent import load_agent
        from rl_training.experiment.ope import evaluate_policy_offline, load_dataset_for
        from rl_training.experiment.ope.discounts import describe_discount, discount_notes
        from rl_training.experiment.ope.training_data import EvaluationData
        from rl_training.runtime.callbacks.progress import ShowProgress

        torch.set_num_threads(1)  # as in training: results do not depend on the number of cores
        agent = load_agent(run, best=best, trust=trust)
        dataset = load_dataset_for(agent, source, **reading)
        found = evaluate_policy_offline(agent, dataset, callbacks=[ShowProgress()], **options)
        seen = EvaluationData(source, dataset).seen_by(agent)
        discount = describe_discount(dataset, found.gamma, agent)
    notes, warnings = discount_notes([agent], found.gamma, discount), [*seen.warnings, *found.warnings]
    if as_json:
        added = {"discount": discount, "shared_episodes": seen.shared, "notes": notes, "warnings": warnings}
        print_json({"checkpoint": str(agent.path), "dataset": source, **found._asdict(), **added})
        return
    value = with_interval(found.estimate, found.interval)
    print_facts(
        {
            "estimate": f"{value}, discounted by {discount}, in the rewards of the data",
            "behaviour": f"{with_interval(found.behaviour_return, found.behaviour_interval)} over "
            f"{many(found.episodes, 'episode')}, discounted; "
            f"undiscounted mean {found.behaviour_undiscounted_return:.5g}",
            "unseen": f"{found.unseen_actions:.0%} of the policy's actions differ from the data's in similar states",
            "checkpoint": str(agent.path),
        }
    )
    for kind, texts in (("note", notes), ("warning", warnings)):
        for text in texts:
            typer.echo(f"{kind:<12}{text}")
    typer.echo(f"caution     {OPE_CAUTION}")
