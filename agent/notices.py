"""Tells the log what is wrong once, and when it is over, however often it is looked at."""

import logging

log = logging.getLogger(__name__)


class Notices:
    """What was last said of each subject."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}

    def tell(self, subject: str, trouble: str) -> None:
        """Say that `subject` has `trouble`, or none where it is empty, if that is news."""
        if self._said.get(subject, "") == trouble:
            return
        self._said[subject] = trouble
        if trouble:
            log.warning("%s: %s", subject, trouble)
        else:
            log.info("%s: well again", subject)
