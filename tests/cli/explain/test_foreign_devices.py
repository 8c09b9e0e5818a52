"""`explain` and `simulate` count what other DRA drivers have allocated, as the scheduler does."""

from __future__ import annotations

import msgspec
import pytest

from cli.explain import scheduler_state
from cli.installation.rules import Rules
from cluster.resource import GPU_NODE_STATUSES, NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from scheduler.observation_settings import DraSettings
from tests.cli.support.sessions import session_on
from tests.scheduler.support import builders, dra

OBJECTS = {
    NODES.path(): msgspec.to_builtins(builders.node("n1")),
    GPU_NODE_STATUSES.path(): msgspec.to_builtins(builders.status("n1")),
    RESOURCE_SLICES.path(): dra.slice_of("n1", "GPU-n1-0", "GPU-n1-1"),
    RESOURCE_CLAIMS.path(): dra.claim("c", "n1", "gpu-1"),
}
HELD = "dra:default/c"


def test_cards_of_foreign_claims_are_held() -> None:
    """By the slices and claims of the configured drivers."""
    with session_on(OBJECTS) as (session, _):
        state = scheduler_state.read(session, Rules())
    held = state.ledger.reservation(HELD)
    assert held is not None
    assert [charge.uuid for charge in held.charges] == ["GPU-n1-1"]


def test_nothing_is_read_without_foreign_drivers() -> None:
    """Two requests less."""
    with session_on(OBJECTS) as (session, read):
        state = scheduler_state.read(session, Rules(dra=DraSettings(foreign_drivers=())))
    assert state.ledger.reservation(HELD) is None
    assert {RESOURCE_SLICES.path(), RESOURCE_CLAIMS.path()}.isdisjoint(read)


@pytest.mark.parametrize(("status", "printed"), [(404, ""), (403, "DRA drivers have allocated are shown as free")])
def test_cluster_without_the_kinds_or_the_right_is_shown_without_them(
    status: int, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A note says so only where something may be missing."""
    with session_on(OBJECTS, refused=RESOURCE_SLICES.path(), status=status) as (session, _):
        state = scheduler_state.read(session, Rules())
    assert state.ledger.reservation(HELD) is None
    error = capsys.readouterr().err
    assert printed in error
    assert bool(error) == bool(printed)
