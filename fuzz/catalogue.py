"""The targets, and the inputs that each starts from."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Final

Target = Callable[[bytes], None]
"""Takes any bytes. A documented rejection is caught; any exception that the target raises is a bug."""

HERE: Final = Path(__file__).parent
NAMES: Final = tuple(sorted(path.stem for path in (HERE / "targets").glob("*.py") if path.stem != "__init__"))
SEEDS: Final = HERE / "seeds"
"""One folder per target with small inputs of every form that it parses."""
FOUND: Final = HERE / "found"
"""One folder per target with inputs that once broke it. New ones are written here, and the tests try all of them."""


def load(name: str) -> Target:
    """Import a target and return it; this imports the code under test as well."""
    target: Target = import_module(f"fuzz.targets.{name}").try_bytes
    return target


def inputs(name: str) -> list[Path]:
    """Return the files with the seeds of a target and the inputs that once broke it."""
    return sorted(path for folder in (SEEDS, FOUND) for path in (folder / name).glob("*") if path.is_file())
