"""The labs of the suite: how many processes may start each, and the ports and folder of each.

A control plane costs its start, memory and processor time, so a new one is a decision.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from lab import cluster
from lab.layout import PORT_BLOCK, Layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pytest

LABS: Final[Mapping[str, int]] = {
    "installable": 1,
    "empty_cluster": 1,
    "own_layout": 1,
    "tranche": 2,
    "control_plane": 2,
}
"""The fixtures that start labs, and how many processes may do so; the modules of the first are given out first."""
_KEPT_BY: Final[Mapping[str, str]] = {"empty_cluster": "emptied_lab"}
"""The fixture that keeps a lab for the next module, where it is not the one that modules use."""

# Not the lab's default ports. Each of the processes in which `make test` runs the tests has labs of its own.
_WORKER: Final = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_BASE_PORT: Final = int(os.environ.get("LAB_TEST_BASE_PORT", "22000")) + 1000 * _WORKER


def end_unneeded(item: pytest.Function, following: pytest.Item | None) -> None:
    """End the labs of a test that the following one does not use: an idle lab takes a tenth of a processor.

    The modules of a lab have been given out one after the other; one that comes all the same starts it again.
    """
    if following is None:  # pytest itself ends what is left
        return
    for lab in LABS.keys() & set(item.fixturenames) - set(getattr(following, "fixturenames", ())):
        for definition in item._fixtureinfo.name2fixturedefs[_KEPT_BY.get(lab, lab)]:
            definition.finish(item._request)


@contextmanager
def reserved(fixture: str, folders: pytest.TempPathFactory) -> Iterator[Layout]:
    """Yield the layout of a fixture's lab; everything that runs in it is stopped afterwards.

    The name of its folder is short, because paths of sockets are limited.
    """
    base_port = _BASE_PORT + PORT_BLOCK * list(LABS).index(fixture)
    layout = Layout(root=folders.mktemp("lab"), base_port=base_port)
    try:
        yield layout
    finally:
        cluster.down(layout)
