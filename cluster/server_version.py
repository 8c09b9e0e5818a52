"""The version of the API server."""

import re

import msgspec


class ServerVersion(msgspec.Struct):
    """The version of the API server, as `/version` returns it; the minor may end in `+`."""

    major: str = ""
    minor: str = ""

    @property
    def numbers(self) -> tuple[int, int] | None:
        """Both as numbers; None if they cannot be read."""
        major, minor = (re.match("[0-9]{1,6}", each) for each in (self.major, self.minor))
        return (int(major[0]), int(minor[0])) if major is not None and minor is not None else None
