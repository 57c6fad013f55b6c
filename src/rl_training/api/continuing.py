"""Continues training after `load`, in the run of the agent or in a new run."""

from pathlib import Path

from rl_training.experiment.agent import CHECKPOINTS, Agent
from rl_training.experiment.config.train_config import ConfigError, TrainConfig, parse_config
from rl_training.experiment.other_options import require_same_seed
from rl_training.experiment.run_directory import CONFIG, default_directory, new_name
from rl_training.runtime.checkpoints.format import UnreadableCheckpointError
from rl_training.runtime.checkpoints.reading import Checkpoint, list_checkpoints, read_checkpoint


def is_newest_of_a_run(checkpoint: Path) -> bool:
    """Whether training from this checkpoint continues its run; False outside a run, and an error for an older one."""
    run = checkpoint.parent.parent
    if checkpoint.parent.name != CHECKPOINTS or not (run / CONFIG).exists():
        return False
    newest = list_checkpoints(checkpoint.parent)[-1].name
    if newest != checkpoint.name:
        raise ValueError(
            f"{checkpoint.name} is not the newest checkpoint of {run}, which is {newest}; "
            "to train from it in a new run, pass output_dir to load()"
        )
    return True


def checkpoint_of(agent: Agent) -> Checkpoint:
    """Returns the checkpoint of an agent; raises an error if it is damaged or another one has replaced it."""
    found = read_checkpoint(agent.path)
    if agent.manifest not in (None, found.manifest):
        raise UnreadableCheckpointError(f"{agent.path} was replaced after this agent was loaded", "load it again")
    return found


def new_run_from(start: Checkpoint, config: TrainConfig, steps: int | None, output: str | None) -> TrainConfig:
    """Returns the config of a new run from a checkpoint, `steps` longer if given, in a directory without a run."""
    require_same_seed(start, config)
    done = start.step
    if config.online_steps and not start.info["config"]["online_steps"]:  # `learn` may have trained more offline steps
        config = config.model_copy(update={"total_timesteps": max(config.total_timesteps, done)})
    if steps is None and done >= config.duration:
        raise ConfigError(f"the agent has already trained all {done:,} steps; learn(total_timesteps=N) trains N more")
    total = config.duration if steps is None else done + steps
    offline = config.total_timesteps
    if config.online_steps and total <= offline:
        raise ConfigError(f"{offline - done:,} offline steps are left; learn(total_timesteps=N) needs more than that")
    longer = {"online_steps": total - offline} if config.online_steps else {"total_timesteps": total}
    target = new_name(default_directory(config)) if output is None else output
    return parse_config(config.model_copy(update={**longer, "output_dir": str(target)}))
