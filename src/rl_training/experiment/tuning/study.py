"""An Optuna study in a journal file: suggests values, records scores, decides which trials to prune.

Every change is one line of the journal, so a kill at any moment leaves a journal that the same command continues.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optuna
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState

from rl_training.experiment.config.messages import ConfigError
from rl_training.experiment.tuning.space import SearchSpace
from rl_training.messages import quiet_logger

JOURNAL = "journal.jsonl"
NAME = "tune"
ERROR = "error"  # attribute of a failed trial
FULL_TRIALS = 5  # trials that must finish before one is pruned
WARM_UP = 0.25  # of the steps of a run, in which no trial is pruned
MOST_ATTEMPTS = 20  # samples per trial, until one is new
FEWEST_FOR_IMPORTANCE = 4  # finished trials
STATES = {
    TrialState.COMPLETE: "done",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
    TrialState.RUNNING: "running",
    TrialState.WAITING: "waiting",
}


class Trial(NamedTuple):
    """A trial as the journal has it. `value` is the score, or the last evaluation of a pruned trial."""

    number: int
    state: str  # running, done, pruned or failed
    params: dict[str, Any]
    value: float | None
    evaluations: dict[int, float]  # by step
    error: str | None


class _NoLock(JournalFileOpenLock):
    """The directory of the study is locked already, by a lock that the kernel releases at a kill.

    Optuna's own lock is a file: after a kill it would stay and stop the next start for half a minute.
    """

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


class Study:
    """Suggestions for trial N depend on the seed, on N and on the earlier trials, but not on when the study stopped."""

    def __init__(self, directory: Path, space: SearchSpace, *, sampler: str = "tpe", seed: int = 0) -> None:
        self.space, self.sampler, self.seed = space, sampler, seed
        self._distributions = space.distributions()
        file = directory / JOURNAL
        drop_incomplete_line(file)
        with quiet_logger("optuna"):
            try:
                backend = JournalFileBackend(str(file), lock_obj=_NoLock(str(file)))
                self._storage = optuna.storages.JournalStorage(backend)
                if not self._storage.get_all_studies():
                    optuna.create_study(storage=self._storage, study_name=NAME, direction="maximize")
                self._study = optuna.load_study(storage=self._storage, study_name=NAME)
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigError(f"{file} is damaged ({error}); restore it from a copy") from None
        self._id = self._storage.get_study_id_from_name(NAME)

    def trials(self) -> list[Trial]:
        return [self._trial(frozen) for frozen in self._study.get_trials(deepcopy=False)]

    def trial(self, number: int) -> Trial:
        return self._trial(self._storage.get_trial(self._trial_id(number)))

    def best(self) -> Trial | None:
        """The trial with the highest score among those that were trained to the end."""
        done = [trial for trial in self.trials() if trial.state == "done" and trial.value is not None]
        return max(done, key=lambda trial: (trial.value, -trial.number), default=None)

    def create(self, number: int) -> Trial:
        """Suggests the values of the next trial, and records it as running in one write."""
        frozen = optuna.trial.create_trial(
            state=TrialState.RUNNING, params=self._suggest(number), distributions=self._distributions
        )
        created = self._storage.get_trial(self._storage.create_new_trial(self._id, template_trial=frozen))
        assert created.number == number
        return self._trial(created)

    def _suggest(self, number: int) -> dict[str, Any]:
        """Samples values that no trial has: the same ones again would give the same score."""
        earlier = self._study.get_trials(deepcopy=False)
        tried = [trial.params for trial in earlier]
        for attempt in range(MOST_ATTEMPTS):
            suggested = self._sample(earlier, [self.seed, number, attempt])
            if suggested not in tried:
                return suggested
        every = (dict(zip(self._distributions, each, strict=True)) for each in product(*self.space.suggestions()))
        return next((each for each in every if each not in tried), suggested)

    def _sample(self, earlier: list[FrozenTrial], key: list[int]) -> dict[str, Any]:
        """Samples in a copy of the study in memory, with a generator of its own."""
        seed = int(np.random.SeedSequence(key).generate_state(1)[0])
        with quiet_logger("optuna"):
            samplers = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
            copy = optuna.create_study(direction="maximize", sampler=samplers[self.sampler](seed=seed))
            copy.add_trials(earlier)
            return copy.ask(self._distributions).params

    def report(self, number: int, step: int, value: float) -> None:
        self._storage.set_trial_intermediate_value(self._trial_id(number), step, value)

    def should_prune(self, number: int, steps: int) -> bool:
        """Whether the best evaluation so far is below the median of finished trials at the same step."""
        pruner = optuna.pruners.MedianPruner(n_startup_trials=FULL_TRIALS, n_warmup_steps=round(WARM_UP * steps))
        return pruner.prune(self._study, self._storage.get_trial(self._trial_id(number)))

    def complete(self, number: int, value: float) -> None:
        self._storage.set_trial_state_values(self._trial_id(number), TrialState.COMPLETE, [value])

    def prune(self, number: int) -> None:
        """Ends a trial with the value of its last evaluation."""
        evaluations = self.trial(number).evaluations
        self._storage.set_trial_state_values(self._trial_id(number), TrialState.PRUNED, [evaluations[max(evaluations)]])

    def fail(self, number: int, error: str) -> None:
        self._storage.set_trial_user_attr(self._trial_id(number), ERROR, error)
        self._storage.set_trial_state_values(self._trial_id(number), TrialState.FAIL)

    def importance(self) -> dict[str, float]:
        """Importance of each key for the best scores, as fractions (PED-ANOVA); empty with too few trials."""
        values = [trial.value for trial in self.trials() if trial.state == "done"]
        if len(values) < FEWEST_FOR_IMPORTANCE or len({*values}) == 1:
            return {}
        if len(self._distributions) == 1:
            return dict.fromkeys(self._distributions, 1.0)
        with quiet_logger("optuna"):
            evaluator = optuna.importance.PedAnovaImportanceEvaluator()
            found = optuna.importance.get_param_importances(self._study, evaluator=evaluator)
        return {key: float(value) for key, value in found.items()}

    def _trial_id(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._id, number)

    def _trial(self, frozen: FrozenTrial) -> Trial:
        return Trial(
            frozen.number, STATES[frozen.state], self.space.params(frozen.params), frozen.value,
            dict(frozen.intermediate_values), frozen.user_attrs.get(ERROR),
        )  # fmt: skip


def drop_incomplete_line(file: Path) -> None:
    """Removes the end of a line whose writing was cut off, for example by a full disk."""
    if not file.exists():
        return
    content = file.read_bytes()
    complete = content.rfind(b"\n") + 1
    if complete < len(content):
        with file.open("r+b") as journal:
            journal.truncate(complete)
