"""The version of Tranche that is installed where this runs."""

from importlib import metadata

import msgspec


class Version(msgspec.Struct, frozen=True):
    """What `/version` returns."""

    version: str


def own() -> Version:
    """Return the version of this installation."""
    return Version(metadata.version("tranche"))
