"""docs/interfaces.md and the code have the same names."""

import re
import tomllib
from pathlib import Path

import pytest

from allocation import limits, names
from allocation.allocation import Allocation, CardShare
from allocation.fabric import VARIABLES
from allocation.isolation import Isolation
from allocation.settings import ResourceNames
from allocation.wire import environment
from allocation.wire.record import decode
from cluster.configuration import DEFAULT_PATH, SECTIONS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "interfaces.md").read_text()


def test_every_shared_name_is_documented() -> None:
    """The page shows every constant of allocation/names.py."""
    values = [value for key, value in vars(names).items() if key.isupper() and isinstance(value, str)]
    missing = [value for value in values if value not in PAGE]
    assert not missing


def test_every_documented_key_exists() -> None:
    """The page shows only keys that the code has."""
    known = {value for value in vars(names).values() if isinstance(value, str)}
    shown = set(re.findall(r"`(gpu\.scheduling/[a-z-]+|hami\.io/[a-z-]+)`", PAGE))
    assert shown <= known


def test_every_variable_is_documented_with_its_key() -> None:
    """The page shows each variable of a container with one card, of the fabric and of isolations, next to its key."""
    for isolation in Isolation:
        for name, key in environment.references("main", 1, fabric=VARIABLES, isolation=isolation).items():
            assert f"| `{name}` | `{key}` |" in PAGE


@pytest.mark.parametrize("name", ResourceNames().managed())
def test_every_resource_is_documented(name: str) -> None:
    """The page has the default resource names."""
    assert f"`{name}`" in PAGE


def test_documented_allocation_is_readable() -> None:
    """The example on the page decodes to an allocation."""
    example = re.search(r"`(\{\"v\":1.*?\}\}?)`", PAGE)
    assert example is not None
    assert decode(example[1]) == Allocation("n1", {"main": (CardShare("GPU-a", 0, 3000, 300),)})


def test_processes_and_configuration_are_documented() -> None:
    """The page has the console scripts, the configuration sections and the default path."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert all(f"`{script}`" in PAGE for script in scripts)
    assert all(f"`{section}`" in PAGE for section in SECTIONS)
    assert DEFAULT_PATH in PAGE


def test_every_limit_of_a_pod_is_documented() -> None:
    """The page shows exactly the numbers of allocation/limits.py, in the order of that file."""
    table = PAGE.partition("\n## Limits of a pod\n")[2].partition("\n## ")[0]
    shown = [int(number.replace(",", "")) for number in re.findall(r"^\| ([\d,]+) \|", table, re.MULTILINE)]
    assert shown == [number for name, number in vars(limits).items() if name.isupper()]
