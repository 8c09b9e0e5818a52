"""Logs a problem once when it begins and once when it ends, however often it is reported."""

import logging

log = logging.getLogger(__name__)


class LogOnce:
    """The last problem of each subject."""

    def __init__(self) -> None:
        self._problems: dict[str, str] = {}

    def report(self, subject: str, problem: str) -> None:
        """Log the `problem` of `subject` if it differs from the last one; an empty one means that it is solved."""
        if self._problems.get(subject, "") == problem:
            return
        self._problems[subject] = problem
        if problem:
            log.warning("%s: %s", subject, problem)
        else:
            log.info("%s: recovered", subject)
