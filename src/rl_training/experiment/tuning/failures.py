"""Failed trials: one that diverged is part of a study, but a mistake in the command fails every trial alike."""

from rl_training.experiment.tuning.study import Study

SAME_ERRORS = 3  # first trials with the same user error, after which the study stops


class Failures:
    """Records failures in the journal.

    The first user errors wait until another trial has ended otherwise. If all are alike, they are never recorded, so
    that the same command repeats these trials once the cause is removed.
    """

    def __init__(self, study: Study, trials: int) -> None:
        self._study, self._limit = study, min(SAME_ERRORS, trials)
        self._waiting: list[tuple[int, str]] = []
        self.hopeless = False

    @property
    def error(self) -> str:
        return self._waiting[-1][1]

    def add(self, number: int, error: str, *, user_error: bool) -> None:
        self._waiting.append((number, error))
        if not user_error or len({error for _, error in self._waiting}) > 1 or self._has_others():
            self.record()
        elif len(self._waiting) >= self._limit:
            self.hopeless = True

    def _has_others(self) -> bool:
        return any(trial.state in ("done", "pruned", "failed") for trial in self._study.trials())

    def record(self) -> None:
        for number, error in self._waiting:
            self._study.fail(number, error)
        self._waiting.clear()
