"""Lists of names for people."""

from typing import Final

_NAMED: Final = 5


def some(names: tuple[str, ...], *, wide: bool) -> str:
    """Return the first names, or all of them if `wide`."""
    shown = names if wide else names[:_NAMED]
    return ",".join(shown) + (",…" if len(shown) < len(names) else "")
