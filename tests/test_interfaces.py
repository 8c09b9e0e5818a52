"""docs/interfaces.md and the code name the same things."""

import re
import tomllib
from pathlib import Path

import pytest

from allocation import environment, names
from allocation.allocation import Allocation, CardShare
from allocation.record import decode
from allocation.settings import ResourceNames
from cluster.configuration import DEFAULT_PATH, SECTIONS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "interfaces.md").read_text()


def test_every_shared_name_is_documented() -> None:
    """A constant of allocation/names.py that the page does not show is unknown to users."""
    values = [value for key, value in vars(names).items() if key.isupper() and isinstance(value, str)]
    missing = [value for value in values if value not in PAGE]
    assert not missing


def test_every_documented_key_of_ours_exists() -> None:
    """A key that the page shows and the code does not know would mislead."""
    known = {value for value in vars(names).values() if isinstance(value, str)}
    shown = set(re.findall(r"`(gpu\.scheduling/[a-z-]+|hami\.io/[a-z-]+)`", PAGE))
    assert shown <= known


def test_every_variable_is_documented_with_its_key() -> None:
    """The page shows each variable of a container with one card next to the key that it refers to."""
    for name, key in environment.references("main", 1).items():
        assert f"| `{name}` | `{key}` |" in PAGE


@pytest.mark.parametrize("name", ResourceNames().managed())
def test_every_resource_is_documented(name: str) -> None:
    """The default resource names are on the page."""
    assert f"`{name}`" in PAGE


def test_the_documented_allocation_can_be_read() -> None:
    """The example on the page is a real one."""
    example = re.search(r"`(\{\"v\":1.*?\}\}?)`", PAGE)
    assert example is not None
    assert decode(example[1]) == Allocation("n1", {"main": (CardShare("GPU-a", 0, 3000, 300),)})


def test_processes_and_configuration_are_documented() -> None:
    """Console scripts, configuration sections and the default path are on the page."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert all(f"`{script}`" in PAGE for script in scripts)
    assert all(f"`{section}`" in PAGE for section in SECTIONS)
    assert DEFAULT_PATH in PAGE
