"""The lab's one error: it meets a person, so it says what, why and what to do."""

from __future__ import annotations


class LabError(Exception):
    """Something the lab cannot go on without.

    Args:
        what: the object and what is wrong with it.
        why: what was found, as far as it is known.
        remedy: the next step for the person who reads it.
    """

    def __init__(self, what: str, *, why: str, remedy: str) -> None:
        super().__init__(what, why, remedy)
        self.what = what
        self.why = why
        self.remedy = remedy

    def __str__(self) -> str:
        # Several lines, the end of a log for example, stand for themselves.
        separator = "\n" if "\n" in self.why else "; "
        return f"{self.what}: {self.why}{separator}{self.remedy}"
