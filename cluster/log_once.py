"""Logs a problem once when it begins and once when it ends, however often it is reported."""

import logging

log = logging.getLogger(__name__)


class LogOnce:
    """The present problem of each subject that has one."""

    def __init__(self) -> None:
        self._problems: dict[str, str] = {}

    def report(self, subject: str, problem: str) -> None:
        """Log the `problem` of `subject` if it differs from the last one; an empty one means that it is solved."""
        if self._problems.get(subject, "") == problem:
            return
        if problem:
            self._problems[subject] = problem
            log.warning("%s: %s", subject, problem)
        else:
            del self._problems[subject]
            log.info("%s: recovered", subject)

    def forget(self, subject: str) -> None:
        """Forget a subject that is gone, with the problem that it had."""
        self._problems.pop(subject, None)
