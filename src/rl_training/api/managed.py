"""Managed algorithms: configure, train, evaluate, predict, save and load, the same way for every algorithm."""

from __future__ import annotations  # the stub prints the annotations as they are written

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

import numpy as np
import torch

from rl_training.api.continuing import checkpoint_of, is_newest_of_a_run, new_run_from
from rl_training.api.environments import in_environment, parse_with_env
from rl_training.api.saving import copy_checkpoint
from rl_training.envs.creation.given import Environment
from rl_training.envs.creation.wrapping import Wrapper
from rl_training.experiment.agent import CHECKPOINTS, Agent, load_agent, require_integer, run_of, with_environment
from rl_training.experiment.config.other_libraries import argument_here, attribute_here
from rl_training.experiment.config.sections import with_backend
from rl_training.experiment.config.train_config import ConfigError, TrainConfig, parse_config
from rl_training.experiment.machine import kept_torch_settings
from rl_training.experiment.processes.signals import end_like
from rl_training.experiment.run import TrainResult, resume_run, run_training
from rl_training.experiment.run_directory import RunDirectory
from rl_training.experiment.trust import Trust, env_modules, modules_of, require_trusted
from rl_training.runtime.checkpoints.reading import Checkpoint
from rl_training.runtime.engine import Callback
from rl_training.runtime.memory import Memory
from rl_training.runtime.metrics_table import Table, read_metrics
from rl_training.runtime.video import Video

NEW_RUN = ", or to load() for a new run with another value"
Managed = TypeVar("Managed", bound="ManagedAlgorithm")


class ManagedAlgorithm:
    """Create with `X(env, **options)` or `X(config)`. Options are those of the run and of the algorithm.

    `env` is an environment id, a `gymnasium.Env`, or a class or function that creates one. `wrappers` are classes,
    functions or names such as `module:Wrapper`; each is called with the environment, in this order.
    """

    algorithm: ClassVar[str] = ""

    def __init__(
        self, config: TrainConfig | Mapping[str, Any] | Environment | None = None, *others: Any,
        env: Environment | None = None, wrappers: Sequence[Wrapper] = (), **options: Any,
    ) -> None:  # fmt: skip
        self._refuse_other_arguments(config, others)
        self.config = self._configured(config, env, wrappers, options)
        self.result: TrainResult | None = None
        self._agent: Agent | None = None
        self._trust: tuple[str, ...] | None = None  # trusted modules of a loaded config; None: the user's own config
        self._new_run = False  # whether training after `load` starts a new run, even if it could continue one
        self._asked = 0  # sum of the steps that the calls of `learn` have asked for, or those trained if fewer

    if not TYPE_CHECKING:  # type checkers would accept any attribute

        def __getattr__(self, name: str) -> Any:
            if (hint := attribute_here(name)) and not hasattr(type(self), name):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")
            return super().__getattribute__(name)  # raises its error again, such as that of a property of a subclass

    @classmethod
    def _refuse_other_arguments(cls, config: Any, others: Sequence[Any]) -> None:
        if isinstance(config, str) and re.fullmatch(r"\w*Policy", config):
            raise TypeError(
                f"Stable-Baselines3's {config!r} is not needed here: the network is chosen from the spaces, and "
                f"hidden_sizes sets its widths; write {cls.__name__}(env, …)"
            )
        if others:
            raise TypeError(f"{cls.__name__} takes one environment or config, then options by name, such as seed=1")

    @classmethod
    def _configured(
        cls, config: Any, env: Environment | None, wrappers: Sequence[Wrapper], options: dict[str, Any]
    ) -> TrainConfig:
        given: dict[str, Any] = {}
        if isinstance(config, TrainConfig):
            given = config.model_dump(exclude_unset=True)
        elif isinstance(config, Mapping):
            given = dict(config)
        elif config is not None:
            if env is not None:
                raise TypeError("the environment is given twice: as the first argument and as env=")
            env = config
        run = {name: value for name, value in options.items() if name in TrainConfig.model_fields}
        algorithm = {name: value for name, value in options.items() if name not in run}
        given = with_backend({**given, **{key: run[key] for key in ("env_backend",) if key in run}})
        merged = {"algo": cls.algorithm, **given, **run} if cls.algorithm else {**given, **run}
        merged["algo_kwargs"] = {**merged.get("algo_kwargs", {}), **algorithm}
        parsed = parse_with_env(merged, env, wrappers, config.given if isinstance(config, TrainConfig) else None)
        if cls.algorithm and parsed.algo != cls.algorithm:
            raise ConfigError(f"{cls.__name__} trains {cls.algorithm!r}, but the config has algo: {parsed.algo!r}")
        return parsed

    @kept_torch_settings()
    def learn(
        self: Managed, total_timesteps: int | None = None, *, callbacks: Callback | Sequence[Callback] | None = None,
        fresh: bool = False, quiet: bool = True, **others: NoReturn,
    ) -> Managed:  # fmt: skip
        """Trains, or continues training exactly where it stopped.

        | agent | `learn()` | `learn(total_timesteps=N)` |
        |---|---|---|
        | new | trains for the config's `total_timesteps` | trains for N steps |
        | new, with a run in its directory | continues that run to its end | the same, if that run has N steps |
        | trained here, or loaded from a run | continues a run that was stopped | trains N more steps |
        | loaded from a saved agent | trains in a new run, up to `total_timesteps` | trains N more steps in a new run |

        `fresh` deletes the run in the output directory and starts from the beginning. After Ctrl-C, learn saves the
        run and raises KeyboardInterrupt; after SIGTERM, it ends the script with code 143.
        """
        _refuse("learn", others, options=(*TrainConfig.model_fields, *self.config.algo_kwargs))
        if total_timesteps is not None:
            total_timesteps = require_integer("total_timesteps", total_timesteps, 1)
        more: dict[str, Any] = {"callbacks": callbacks or (), "quiet": quiet}
        if self._agent is None or fresh:
            if total_timesteps is not None:
                self.config = parse_config(self.config.model_copy(update={"total_timesteps": total_timesteps}))
            self.result, self._asked = self._run(fresh=fresh, **more), self.config.duration
        else:
            self.result = self._continue(self._agent, total_timesteps, more)
        self._asked = min(self._asked, self.result.steps)
        if self.result.checkpoint_path is None:
            raise RuntimeError("Training wrote no checkpoint.")
        checkpoint = self.result.checkpoint_path.absolute()  # still the same after os.chdir
        trained = load_agent(checkpoint, trust=(*modules_of(self.config), *(self._trust or ())))
        trained = trained._replace(threads=torch.get_num_threads())  # those of the training, for the same results
        self._agent = trained if self.config.given is None else with_environment(trained, self.config.given)
        if self.result.signal is not None:
            end_like(self.result.signal, f"saved {self.result.checkpoint_path}; learn() again continues the run")
        return self

    def _run(self, *, start: Checkpoint | None = None, **more: Any) -> TrainResult:
        modules = modules_of(self.config)
        if self._trust is not None and self._agent is not None:
            require_trusted(modules, self._trust, self._agent.path)
        return run_training(self.config, start_from=start, own=self._trust is None, **more)

    def _continue(self, agent: Agent, steps: int | None, more: dict[str, Any]) -> TrainResult:
        """Continues the run of the agent, or starts a new run from a saved agent."""
        if self.result is None and (self._new_run or not is_newest_of_a_run(agent.path)):
            start, chosen = checkpoint_of(agent), self.config.output_dir if self._new_run else None
            self.config = new_run_from(start, self.config, steps, chosen)
            self._asked = self.config.duration
            return self._run(start=start, **more)
        done = agent.step if self.result is None else self._asked
        trust: Trust = modules_of(self.config) if self._trust is None else self._trust  # None: the user's own config
        result = resume_run(agent.run_dir, steps=steps and done + steps, trust=trust, given=self.config.given, **more)
        self._asked = done + steps if steps else result.steps if result.trained else done
        return result

    def evaluate(
        self, num_episodes: int = 10, *, seed: int = 0, deterministic: bool | None = None,
        env: Environment | None = None, wrappers: Sequence[Wrapper] | None = None, video: Path | str | None = None,
        **others: NoReturn,
    ) -> dict[str, Any]:  # fmt: skip
        """Plays whole episodes from fixed seeds and returns their statistics.

        `deterministic=False` samples the actions; None follows the option `eval_stochastic`. `env` replaces the
        environment of the run, as in `load`. `video` is an .mp4 or .gif file to write, with the first three episodes.
        """
        _refuse("evaluate", others)
        agent = in_environment(self.agent, env, wrappers)
        recorded = None if video is None else Video(video)
        return agent.evaluate(num_episodes, seed=seed, deterministic=deterministic, video=recorded)

    def predict(
        self, obs: Any, deterministic: bool = True, memory: Memory | None = None, **others: NoReturn
    ) -> np.ndarray[Any, Any]:
        """Returns actions for one observation or a batch of them, both in the environment's own form.

        An agent that was trained on a table also takes dicts and DataFrames with its columns, and returns the names of
        actions. A recurrent policy reads and updates `memory`; without it, every observation is treated as the first
        of an episode. Call `memory.forget` when an episode ends.
        """
        _refuse("predict", others)
        return self.agent.predict(obs, deterministic=deterministic, memory=memory)

    def metrics(self, *, table: Table | None = None) -> Any:
        """Returns the logged metrics of the run as a data frame; see `read_metrics`."""
        if self.agent.path.parent.name != CHECKPOINTS:
            raise ValueError("a saved agent has no log; read_metrics(RUN) reads that of its run")
        return read_metrics(self.agent.run_dir, table=table)

    def save(self, path: Path | str, *, overwrite: bool = False) -> Path:
        """Copies the agent's checkpoint to the directory `path`; `overwrite` replaces another agent saved there."""
        return copy_checkpoint(checkpoint_of(self.agent), Path(path), overwrite=overwrite)

    def export(
        self, path: Path | str, *, tolerance: float = 1e-5, observations: int = 4_096, data: Path | str | None = None
    ) -> dict[str, Any]:
        """Writes the deterministic policy to a new file (.onnx or .pt2), and a description beside it (.json).

        Raises ParityError, and leaves no file, if its relative error is above `tolerance` on this number of
        observations from the environment, or from `data`. Returns the description.
        """
        from rl_training.experiment.export.exporting import export_agent

        return export_agent(self.agent, path, tolerance=tolerance, observations=observations, data=data).description

    @classmethod
    def load(
        cls: type[Managed], path: Path | str, env: Environment | None = None, *,
        wrappers: Sequence[Wrapper] | None = None, output_dir: Path | str | None = None, best: bool = False,
        device: str = "cpu", trust: Trust = (), **options: Any,
    ) -> Managed:  # fmt: skip
        """Loads an agent from a run or a checkpoint. Every file is verified first, and no environment is imported.

        - `env` replaces the recorded environment, which only Python can create if it was given as an object. It is
          created as given, without the run's `env_kwargs`. The run's `env_wrappers` are applied, unless `env` is an
          object or `wrappers` are given.
        - `learn` continues the run. From a saved agent, with `output_dir` or with other `options`, such as
          `learning_rate=1e-4`, it starts a new run from the checkpoint. The old run stays as it is.
        - `evaluate` and `learn` import modules that the config names only if you have trained with them on this
          machine, or `trust` names them.
        """
        if "config" in options:
            raise TypeError("load() takes no config; pass the options that differ, such as learning_rate=1e-4")
        agent = in_environment(load_agent(path, best=best, device=device, trust=trust), env, wrappers)
        given, is_new = agent.config.given, output_dir is not None or bool(options)
        if is_new:
            recorded = {} if given is None else {"env_wrappers": (), **given.values}
            options = {**recorded, **options, "output_dir": None if output_dir is None else str(output_dir)}
        managed = cls(agent.config, **options)
        if given is not None:
            managed.config = managed.config.with_given(given)
        named = [] if given is None or env is None else [given.values["env_id"]]
        managed._agent = agent._replace(config=managed.config, path=agent.path.absolute())
        managed._new_run = is_new
        managed._trust = (*agent.trust, *env_modules(named, {}))
        return managed

    @property
    def agent(self) -> Agent:
        if self._agent is None:
            raise RuntimeError("The agent is not trained: call learn() first, or load() a trained agent.")
        return self._agent


def _refuse(method: str, others: Mapping[str, Any], options: Collection[str] = ()) -> None:
    """Raises a TypeError for arguments of other libraries, with those to use here, and for `options` of training."""
    for name in others:
        known = ", because a trained agent keeps its seed" if name == "seed" else NEW_RUN
        elsewhere = f"; give it to the constructor{known}"
        hint = argument_here(name) or (elsewhere if name in options else "")
        raise TypeError(f"{method}() has no argument {name!r}{hint}")


def evaluate_checkpoint(
    path: Path | str, *, num_episodes: int = 10, seed: int = 0, deterministic: bool | None = None, best: bool = False,
    env: Environment | None = None, wrappers: Sequence[Wrapper] | None = None, trust: Trust = (),
) -> dict[str, Any]:  # fmt: skip
    """Evaluates an agent from its run directory or checkpoint. `env`, `wrappers` and `trust` are those of `load`."""
    agent = in_environment(load_agent(path, best=best, trust=trust), env, wrappers)
    return agent.evaluate(num_episodes, seed=seed, deterministic=deterministic)


def predict_checkpoint(
    path: Path | str, obs: Any, *, deterministic: bool = True, best: bool = False
) -> np.ndarray[Any, Any]:
    """Returns the actions of a stored agent. To predict more than once, `load` the agent and keep it."""
    return load_agent(path, best=best).predict(obs, deterministic=deterministic)


@kept_torch_settings()
def resume_training(
    path: Path | str, *, total_timesteps: int | None = None, callbacks: Callback | Sequence[Callback] | None = None,
    env: Environment | None = None, wrappers: Sequence[Wrapper] | None = None, trust: Trust = (),
) -> TrainResult:  # fmt: skip
    """Resumes a run as if it had not stopped. `path` is the run or its newest checkpoint.

    `total_timesteps` counts from the start of the run. `env`, `wrappers` and `trust` are those of `load`.
    """
    if total_timesteps is not None:
        total_timesteps = require_integer("total_timesteps", total_timesteps, 1)
    run, given = run_of(Path(path)), None
    if env is not None or wrappers is not None:
        given = in_environment(load_agent(run, trust=trust), env, wrappers).config.given
    return resume_run(run, steps=total_timesteps, callbacks=callbacks or (), trust=trust, given=given)


@kept_torch_settings()
def train_as(
    algorithm: str, config: TrainConfig | Mapping[str, Any], *, run_suffix: str | None = None,
    checkpoint_state: Checkpoint | Path | str | None = None, callbacks: Callback | Sequence[Callback] | None = None,
    fresh: bool = False,
) -> TrainResult:  # fmt: skip
    """Trains `config`, which must have this `algo`. The run directory's name ends in `run_suffix`.

    `fresh` deletes the run in the directory and starts from the beginning.
    """
    parsed = config if isinstance(config, TrainConfig) else parse_with_env({"algo": algorithm, **config})
    if parsed.algo != algorithm:
        raise ConfigError(f"train_{algorithm} trains {algorithm!r}, but the config has algo: {parsed.algo!r}")
    if run_suffix:
        parsed = parsed.model_copy(update={"output_dir": f"{RunDirectory.of(parsed).path}-{run_suffix}"})
    return run_training(parsed, callbacks=callbacks or (), fresh=fresh, start_from=checkpoint_state)
