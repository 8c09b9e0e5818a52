from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import distribution
from tests.support.distribution import LABS, choose

if TYPE_CHECKING:
    from collections.abc import Mapping

LAB_OF = {"system/a": "tranche", "system/b": "tranche", "webhook/c": "control_plane", "lab/d": "own_layout"}
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


def item(nodeid: str, *fixtures: str) -> Any:
    """Return what the distribution reads of a test."""
    return SimpleNamespace(nodeid=nodeid, fixturenames=list(fixtures))


def test_the_labs_of_modules_are_read_from_their_fixtures() -> None:
    """The process that distributes the tests gets the lab of each module; the message is removed."""
    tests = [item("p.py::test_z", "tmp_path"), item("s.py::test_x[1]", "namespace", "tranche"), item("s.py::test_y")]
    distribution.write("test-run", tests)
    assert distribution.read("test-run") == {"s.py": "tranche"}
    with pytest.raises(FileNotFoundError):
        distribution.read("test-run")


def test_a_module_uses_one_lab() -> None:
    """Otherwise the process that has one of them would start the other, too, whoever has it."""
    with pytest.raises(ValueError, match=r"s\.py uses the labs .*; make it two modules"):
        distribution.write("test-run", [item("s.py::test_x", "tranche"), item("s.py::test_y", "control_plane")])
