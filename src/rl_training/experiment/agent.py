"""Loads a trained agent from a checkpoint: policy, spaces and config."""

from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
import torch
from torch import Tensor

from rl_training import streams
from rl_training.algorithms import Learner
from rl_training.algorithms.core.updater import load_tensors
from rl_training.data.datasets.actions import unscale_actions
from rl_training.data.spaces import (
    batched,
    is_named,
    is_pair_of_reset,
    named_rows,
    observations_of,
    own_actions,
    require_pixels,
)
from rl_training.envs.creation.given import Given
from rl_training.envs.creation.making import EnvFactory
from rl_training.envs.same_spaces import require_same_spaces
from rl_training.experiment.config.registry import build_learner
from rl_training.experiment.config.train_config import TrainConfig, parse_stored_config
from rl_training.experiment.machine import device_of, using_threads
from rl_training.experiment.result import is_run
from rl_training.experiment.trust import (
    Trust,
    env_modules,
    learner_modules,
    require_trusted,
    trusted_names,
    warn_of_changed_source,
)
from rl_training.files import read_json
from rl_training.messages import Warn, command, first_few, print_warning
from rl_training.runtime.checkpoints.format import MANIFEST, STATE, Manifest, UnreadableCheckpointError, step_name
from rl_training.runtime.checkpoints.reading import Checkpoint, list_checkpoints, newest_checkpoint, read_checkpoint
from rl_training.runtime.evaluation import evaluate
from rl_training.runtime.memory import Memory
from rl_training.runtime.policies import require_valid_actions
from rl_training.runtime.video import Video
from rl_training.types import EnvSpec

CHECKPOINTS = "checkpoints"
_without_memory: WeakKeyDictionary[Learner, int] = WeakKeyDictionary()  # predictions of recurrent policies

_warned_of_ignored: WeakSet[Learner] = WeakSet()  # agents whose observations had further columns


class Agent(NamedTuple):
    learner: Learner
    spec: EnvSpec
    config: TrainConfig
    path: Path
    trust: tuple[str, ...] = ()  # modules that its environment may import, besides those trained with before
    step: int = 0
    threads: int | None = None  # of PyTorch while it acts; None: the current number
    manifest: Manifest | None = None  # of its checkpoint

    @torch.no_grad()
    def predict(
        self, obs: Any, *, deterministic: bool = True, generator: torch.Generator | None = None,
        memory: Memory | None = None,
    ) -> Any:  # fmt: skip
        """Returns actions for observations, both in the environment's own form and with the same leading shape.

        Dict observations are dicts of arrays, Tuple observations tuples of arrays, and so are such actions.
        An agent trained from a table takes dicts and DataFrames with its columns too, and returns the names of actions,
        of several columns as a dict. Further columns are ignored, with a warning at the first call.
        A recurrent policy reads and updates `memory`; without it, every observation is the first of an episode.
        Call `memory.forget` when an episode ends.
        """
        if not isinstance(memory, Memory | None):
            raise TypeError(f"memory must be a Memory of rl_training or None, got {type(memory).__name__}")
        if not isinstance(deterministic, bool | np.bool_):  # such as the state that other libraries take here
            raise TypeError(f"deterministic must be True or False, got {deterministic!r:.60}")
        flat, lead = self.batch(obs)
        require_valid_actions(self.learner.model, self.spec, flat)
        known = None if memory is None else memory.of(len(flat), self.learner.initial_memory)
        with using_threads(self.threads):
            action = self.learner.act(flat, known, deterministic=deterministic, generator=generator)
        if memory is not None and action.memory is not None:
            memory.keep(action)
        elif action.memory is not None:
            _warn_of_repeated_starts(self.learner)
        return own_actions(unscale_actions(action.actions, self.spec).cpu().numpy(), self.spec, lead)

    @property
    def run_dir(self) -> Path:
        """The directory of its run, if its checkpoint is in one."""
        return self.path.parent.parent

    def batch(self, obs: Any) -> tuple[Tensor, tuple[int, ...]]:
        """Returns observations as one batch [rows, ...] on the policy's device, and their leading shape."""
        rows = self.rows(obs)
        device = next(self.learner.parameters()).device
        return torch.as_tensor(rows.reshape(-1, *self.spec.obs_shape)).to(device), self._lead_of(rows)

    def rows(self, obs: Any) -> np.ndarray[Any, Any]:
        """Checks observations in the environment's own form and converts them to rows of the library."""
        obs = self.unnamed(obs)
        converter = observations_of(self.spec)
        if is_pair_of_reset(obs, None if converter is None else converter.space):
            raise ValueError("obs is the pair (obs, info) that reset() returns; pass the observation alone")
        if converter is not None:
            return converter.rows(batched(obs, converter.space))
        if isinstance(obs, Mapping):
            raise ValueError(f"obs must be an array that ends in shape {self.spec.obs_shape}, got a dict of {[*obs]}")
        values = self._array(obs)
        if self.spec.obs_dtype == "uint8":
            require_pixels(values, "obs")
        with np.errstate(over="ignore"):  # becomes infinite, which is refused below
            rows = values.astype(self.spec.obs_dtype, copy=False)
        if rows.shape[len(self._lead_of(rows)) :] != self.spec.obs_shape:
            raise ValueError(f"obs must end in shape {self.spec.obs_shape}, got {rows.shape}")
        if not (finite := np.isfinite(rows)).all():
            names = self.spec.obs_names or ()
            bad = [
                name
                for name, holds in zip(names, finite.reshape(-1, len(names) or 1).all(0), strict=False)
                if not holds
            ]
            raise ValueError(f"obs holds NaN or infinite values{f' in {first_few(bad)}' if bad else ''}")
        return rows

    def unnamed(self, obs: Any) -> Any:
        """Returns observations by column name as one array, and others as they are."""
        if not is_named(obs, self.spec):
            return obs
        found: list[str] = []
        rows = named_rows(obs, self.spec, found.append)
        if found and self.learner not in _warned_of_ignored:
            _warned_of_ignored.add(self.learner)
            print_warning(found[0])
        return rows

    def _array(self, obs: Any) -> np.ndarray[Any, Any]:
        try:
            values = np.asarray(obs)
        except ValueError as error:
            raise ValueError("obs must be one array of numbers, got parts of different shapes") from error
        if values.dtype.kind == "O" and all(isinstance(each, Real) for each in values.flat):
            values = values.astype(np.float64)  # such as a row of a DataFrame
        if values.dtype.kind not in "biuf":
            wanted = f"an array of numbers that ends in shape {self.spec.obs_shape}"
            raise ValueError(f"obs must be {wanted}, got {obs!r:.60}")
        return values

    def lead(self, obs: Any) -> tuple[int, ...]:
        """Leading shape of observations: () for a single one."""
        return self._lead_of(self.rows(obs))

    def _lead_of(self, rows: np.ndarray[Any, Any]) -> tuple[int, ...]:
        return rows.shape[: rows.ndim - len(self.spec.obs_shape)]

    def evaluate(
        self, episodes: int, *, seed: int = 0, deterministic: bool | None = None, video: Video | None = None
    ) -> dict[str, Any]:
        """Plays whole episodes with fixed seeds in the training environment.

        `deterministic` defaults to the opposite of the config's `eval_stochastic`. `video` records the first episodes.
        """
        episodes, seed = require_integer("num_episodes", episodes, 1), require_integer("seed", seed, 0)
        source = self.trusted_env()
        if source is None:
            raise ValueError(
                "this agent was trained from data and has no environment to evaluate it in; "
                "use --ope DATASET to estimate its return from data"
            )
        with using_threads(self.threads):
            return evaluate(
                self.learner, source, episodes=episodes, seed=seed,
                deterministic=not self.config.eval_stochastic if deterministic is None else deterministic,
                device=next(self.learner.parameters()).device, max_steps=self.config.eval_max_steps,
                like=self.spec, video=video,
            ).summary(self.config.env_id)  # fmt: skip

    def trusted_env(self) -> EnvFactory | None:
        """Returns how to create the training environment, after checking that its modules may be imported."""
        given = None if self.config.given is None else self.config.given.values
        if given is None:
            modules = env_modules([self.config.env_id], self.config.env_kwargs, self.config.env_wrappers)
        else:  # the user has given the environment, but maybe not the wrappers
            modules = env_modules([], given.get("env_kwargs"), given.get("env_wrappers"))
        require_trusted(modules, self.trust, self.path)
        warn_of_changed_source(read_record(self.run_dir), warn=print_warning)
        return self.config.environment()


def require_integer(name: str, value: Any, least: int) -> int:
    """Returns an integer, also one of NumPy, as an int."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return int(value)


def _warn_of_repeated_starts(learner: Learner) -> None:
    """Warns at the second prediction of a recurrent policy without a `Memory`, which is probably the next step."""
    count = _without_memory[learner] = _without_memory.get(learner, 0) + 1
    if count == 2:
        print_warning(
            f"this {learner.name} policy is recurrent, and predict without a memory treats every observation as the "
            "first of an episode; pass memory=rl_training.Memory(), the same one at every step, and call its forget() "
            "at the end of an episode"
        )


def with_environment(agent: Agent, given: Given, *, own: bool = False) -> Agent:
    """Returns the agent with an environment given in Python; `own`: the user has given the wrappers as well."""
    wrappers = env_modules([], {}, given.values.get("env_wrappers")) if own else []
    changed = agent._replace(config=agent.config.with_given(given), trust=(*agent.trust, *wrappers))
    source = changed.trusted_env()
    if source is not None:
        require_same_spaces(agent.spec, source, guessed=agent.config.env_id is None)
    return changed


def read_record(run: Path) -> dict[str, Any]:
    return read_json(run / "run.json")


def find_checkpoint(path: Path, *, best: bool = False, warn: Warn = print_warning) -> Checkpoint:
    """Returns the checkpoint at `path`, or the newest intact one of a run, or its best one by evaluation."""
    if not path.exists():
        raise FileNotFoundError(f"no run or checkpoint at {path}")
    if is_run(path) and not list_checkpoints(path / CHECKPOINTS):
        raise ValueError(f"the run {path} has no checkpoint; train it further with `{command('resume', path)}`")
    if not (path / CHECKPOINTS).is_dir():
        if not (path.name.startswith("step_") or any((path / name).exists() for name in (MANIFEST, STATE))):
            raise ValueError(_not_a_run(path))
        if best:
            raise ValueError(f"--best needs a run, but {path} is a checkpoint")
        return read_checkpoint(path)
    newest = newest_checkpoint(path / CHECKPOINTS, on_damaged=warn)
    if newest is None:
        raise UnreadableCheckpointError(f"the run {path} has no intact checkpoint")
    if not best:
        return newest
    best_evaluation = newest.state["trainer"]["best"]
    if best_evaluation is None:
        raise ValueError(f"the run {path} has no best checkpoint because it was never evaluated; remove --best")
    return read_checkpoint(path / CHECKPOINTS / step_name(best_evaluation[0]))


def _not_a_run(path: Path) -> str:
    problem = f"{path} is neither a checkpoint nor a run with checkpoints"
    if path.name == CHECKPOINTS:
        return f"{problem}; use its run {path.parent}"
    seeds = [found.parent for found in path.glob(f"seed_*/{CHECKPOINTS}")]
    if len(seeds) > 1:
        ordered = sorted(seeds, key=lambda seed: (len(seed.name), seed.name))
        return f"{path} holds runs of {len(seeds)} seeds; use one of them: {first_few(ordered)}"
    patterns = ("*/", "*/*/", "*/*/*/")  # folders of runs, of seeds and of benches
    first = next((min(found).parent for each in patterns if (found := [*path.glob(f"{each}{CHECKPOINTS}")])), None)
    return problem if first is None else f"{problem}; use one of its runs, such as {first}"


def run_of(path: Path) -> Path:
    """Returns the run to resume, given the run or its newest checkpoint."""
    if (path / "config.yaml").exists():
        return path
    run = find_checkpoint(path).path.parent.parent
    if not (run / "config.yaml").exists():
        raise ValueError(f"{path} is a checkpoint outside a run; pass the run directory to resume")
    newest = list_checkpoints(run / CHECKPOINTS)[-1].name
    if newest != path.name:
        raise ValueError(f"{path.name} is not the newest checkpoint of {run}; pass the run to resume from {newest}")
    return run


def load_agent(path: Path | str, *, best: bool = False, device: str = "cpu", trust: Trust = ()) -> Agent:
    """Loads an agent from a run or a checkpoint, after verifying every file. Imports no environment.

    `trust` names modules that the agent's environment may import when it is evaluated.
    """
    return agent_from(find_checkpoint(Path(path), best=best), device=device, trust=trust)


def agent_from(checkpoint: Checkpoint, *, device: str, trust: Trust) -> Agent:
    info = checkpoint.info
    require_trusted(learner_modules(info["config"]), trust, checkpoint.path)
    config, spec = parse_stored_config(info["config"]), EnvSpec.from_json(info["spec"])
    with streams.fork(0, "load"):
        learner = build_learner(config.algo, spec, config.options()).to(device_of(device))
    saved = checkpoint.group("learner")
    load_tensors(dict(learner.named_parameters()), saved["parameters"])
    load_tensors(dict(learner.named_buffers()), saved.get("buffers", {}))
    return Agent(
        learner.eval(), spec, config, checkpoint.path, trusted_names(trust), checkpoint.step,
        manifest=checkpoint.manifest,
    )  # fmt: skip
