"""The names of fields in the JSON of the HTTP API."""

from typing import Final

_UNITS: Final = {"mib": "MiB", "gbps": "GBps"}


def json_name(name: str) -> str:
    """Return the name of a field in JSON: `freeMiB` for `free_mib`."""
    head, *rest = name.split("_")
    return head + "".join(_UNITS.get(part, part.capitalize()) for part in rest)
