"""Reads sysfs and procfs without failing: what cannot be read is unknown, and logged once."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from cluster.log_once import LogOnce

T = TypeVar("T")

problems: Final = LogOnce()


def read(path: Path, parse: Callable[[str], T], unknown: T) -> T:
    """Return what `parse` makes of a file, or `unknown`: silently if the file does not exist, else with a reason.

    `parse` raises ValueError for content that it does not know.
    """
    try:
        value = parse(path.read_text(encoding="utf-8", errors="replace").strip())
    except (FileNotFoundError, NotADirectoryError):
        value = unknown
    except (OSError, ValueError) as error:
        problems.report(str(path), f"not read: {error}")
        return unknown
    problems.report(str(path), "")
    return value


def text(path: Path) -> str:
    """Return the content of a file; empty if it does not exist or cannot be read."""
    return read(path, str, "")


def names(folder: Path) -> list[str]:
    """Return the entries of a folder, `mlx5_2` before `mlx5_10`; none if it does not exist or cannot be read."""
    try:
        found = [entry.name for entry in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        found = []
    except OSError as error:
        problems.report(str(folder), f"not read: {error}")
        return []
    problems.report(str(folder), "")
    return sorted(found, key=_natural_order)


def exists(path: Path) -> bool:
    """Return whether a file or folder exists, as far as this can be seen."""
    try:
        return path.exists()
    except OSError:
        return False


def _natural_order(name: str) -> tuple[list[tuple[int, str]], str]:
    parts = re.findall(r"([0-9]+)|([^0-9]+)", name)
    return [(int(number or -1), other) for number, other in parts], name
