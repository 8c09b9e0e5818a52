"""Which targets there are, and the inputs that each begins with."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Final

Target = Callable[[bytes], None]
"""Takes any bytes. What is refused as documented is swallowed; what it raises is a defect."""

HERE: Final = Path(__file__).parent
NAMES: Final = tuple(sorted(path.stem for path in (HERE / "targets").glob("*.py") if path.stem != "__init__"))
SEEDS: Final = HERE / "seeds"
"""A folder for each target: small inputs of every form that it reads."""
FOUND: Final = HERE / "found"
"""The same: inputs that once broke it. Whatever is found is written here, and tested from then on."""


def load(name: str) -> Target:
    """Answer the target of that name; what it tests is imported now."""
    target: Target = import_module(f"fuzz.targets.{name}").try_bytes
    return target


def inputs(name: str) -> list[Path]:
    """Answer the files of a target's seeds and found inputs."""
    return sorted(path for folder in (SEEDS, FOUND) for path in (folder / name).glob("*") if path.is_file())
