"""The error class of the lab; its message has the object, the cause and the next step."""

from __future__ import annotations


class LabError(Exception):
    """A condition that stops a lab command.

    Args:
        what: the object.
        why: the cause.
        remedy: the next step for the user.
    """

    def __init__(self, what: str, *, why: str, remedy: str) -> None:
        super().__init__(what, why, remedy)
        self.what = what
        self.why = why
        self.remedy = remedy

    def __str__(self) -> str:
        # A multi-line cause, such as the end of a log, is followed by a line break.
        separator = "\n" if "\n" in self.why else "; "
        return f"{self.what}: {self.why}{separator}{self.remedy}"
