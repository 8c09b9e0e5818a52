from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import distribution
from tests.support.distribution import LABS, choose

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

LAB_OF = {
    "system/a": "tranche",
    "system/b": "tranche",
    "webhook/c": "control_plane",
    "lab/d": "own_layout",
    "build": "long",
}
NONE: Mapping[str, int] = dict.fromkeys(LABS, 0)
ALL_TAKEN: Mapping[str, int] = LABS


@pytest.mark.parametrize(
    ("modules", "own", "taken", "expected"),
    [
        (["plain", "system/a"], {"tranche"}, ALL_TAKEN, "system/a"),
        (["plain", "webhook/c", "system/a"], {"control_plane"}, NONE, "webhook/c"),
        (["plain", "webhook/c", "system/a"], set(), NONE, "system/a"),
        (["plain", "webhook/c", "system/a"], set(), {**NONE, "tranche": LABS["tranche"]}, "webhook/c"),
        (["plain", "system/a"], {"control_plane"}, ALL_TAKEN, "plain"),
        (["system/b", "system/a"], {"tranche"}, ALL_TAKEN, "system/b"),
        (["system/a", "lab/d"], set(), ALL_TAKEN, None),
        (["plain", "build"], {"tranche", "long"}, ALL_TAKEN, "build"),
        (["build", "system/a"], set(), NONE, "system/a"),
    ],
)
def test_a_process_keeps_to_its_labs(
    modules: list[str], own: set[str], taken: Mapping[str, int], expected: str | None
) -> None:
    """A lab that runs comes first, then one that may start, then tests without a lab; others' labs are left alone."""
    assert choose(modules, LAB_OF, own=own, taken=taken) == expected


def test_every_module_is_given_out() -> None:
    """As many processes as may have each lab run all modules, whatever the order in which they ask."""
    left, labs = [*LAB_OF, "plain"], [set[str]() for _ in range(3)]
    ran = []
    for turn in range(3 * len(left)):
        own = labs[turn % 3]
        taken = {lab: sum(lab in each for each in labs) for lab in LABS}
        if module := choose(left, LAB_OF, own=own, taken=taken):
            own.add(LAB_OF.get(module, ""))
            left.remove(module)
            ran.append(module)
    assert sorted(ran) == sorted([*LAB_OF, "plain"])


def item(nodeid: str, *fixtures: str, markers: Collection[str] = ()) -> Any:
    """Return what the distribution reads of a test."""
    return SimpleNamespace(nodeid=nodeid, fixturenames=list(fixtures), keywords=markers)


def test_the_labs_of_modules_are_read_from_their_fixtures() -> None:
    """The process that distributes the tests gets the lab of each module; the message is removed."""
    tests = [item("p.py::test_z", "tmp_path"), item("s.py::test_x[1]", "namespace", "tranche"), item("s.py::test_y")]
    distribution.write("test-run", [*tests, item("l.py::test_z", markers={"long"})])
    assert distribution.read("test-run") == {"s.py": "tranche", "l.py": "long"}
    with pytest.raises(FileNotFoundError):
        distribution.read("test-run")


SUITE = {
    "conftest.py": """
from pathlib import Path

import pytest
from tests.support import labs

def say(text):
    with Path("said").open("a") as file:
        file.write(text + "\\n")

def lab(name, scope):
    @pytest.fixture(scope=scope, name=name)
    def fixture(request):
        say(f"{name} begins")
        yield
        say(f"{name} ends")
    return fixture

tranche, emptied_lab = lab("tranche", "session"), lab("emptied_lab", "session")
own_layout = lab("own_layout", "function")

@pytest.fixture(scope="module")
def empty_cluster(emptied_lab):
    yield

@pytest.fixture(scope="session")
def installed(tranche):
    yield
    say("tranche is cleaned")

@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    yield
    labs.end_unneeded(item, nextitem)
""",
    "test_a.py": "def test(installed): pass",
    "test_b.py": "def test(tranche): pass",
    "test_c.py": "def test(empty_cluster): pass",
    "test_d.py": "def test(empty_cluster): pass",
    "test_e.py": "from conftest import say\ndef test(): say('no lab')",
    "test_f.py": "def test(tranche): pass",
    "test_g.py": "def test(own_layout): pass",
    "test_h.py": "def test(): pass",
}


def test_a_lab_ends_with_its_last_test(tmp_path: Path) -> None:
    """Not before, and after what is built on it; a later test gets it again."""
    for name, text in SUITE.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "--rootdir=.", "-p", "no:cacheprovider"]
    environment = {"PYTHONPATH": str(Path(__file__).parents[1]), "PATH": "/usr/bin:/bin"}
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=60, env=environment)
    said = (tmp_path / "said").read_text().splitlines()
    assert said == [
        *("tranche begins", "tranche is cleaned", "tranche ends", "emptied_lab begins", "emptied_lab ends"),
        *("no lab", "tranche begins", "tranche ends", "own_layout begins", "own_layout ends"),
    ]


def test_a_module_uses_one_lab() -> None:
    """Otherwise the process that has one of them would start the other, too, whoever has it."""
    with pytest.raises(ValueError, match=r"s\.py uses the labs .*; make it two modules"):
        distribution.write("test-run", [item("s.py::test_x", "tranche"), item("s.py::test_y", "control_plane")])
