"""`explain` and `simulate` count what other DRA drivers have allocated, as the scheduler does."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
import pytest

from cli.explain import scheduler_state
from cli.installation.rules import Rules
from cli.kube.access import Access
from cli.kube.client import Client
from cli.kube.session import Session
from cluster.resource import GPU_NODE_STATUSES, NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from scheduler.settings import DraSettings
from tests.cli.support.http_server import serving
from tests.scheduler.support import builders, dra

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler

OBJECTS = {
    NODES.path(): msgspec.to_builtins(builders.node("n1")),
    GPU_NODE_STATUSES.path(): msgspec.to_builtins(builders.status("n1")),
    RESOURCE_SLICES.path(): dra.slice_of("n1", "GPU-n1-0", "GPU-n1-1"),
    RESOURCE_CLAIMS.path(): dra.claim("c", "n1", "gpu-1"),
}
HELD = "dra:default/c"


@contextmanager
def api_server(status: int = 200) -> Iterator[tuple[Session, list[str]]]:
    """A session with an API server that answers for slices with a status; and the paths that were read."""
    read: list[str] = []

    def respond(request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        path = urlsplit(request.path).path
        read.append(path)
        if path == RESOURCE_SLICES.path() and status != 200:
            return status, b"{}"
        items: list[Any] = [OBJECTS[path]] if path in OBJECTS else []
        return 200, json.dumps({"metadata": {}, "items": items}).encode()

    with serving(respond) as url:
        access = Access(url, None, "", {}, "default", "test")
        yield Session(Client(access), "default", access), read


def test_cards_of_foreign_claims_are_held() -> None:
    """By the slices and claims of the configured drivers."""
    with api_server() as (session, _):
        state = scheduler_state.read(session, Rules())
    held = state.ledger.reservation(HELD)
    assert held is not None
    assert [charge.uuid for charge in held.charges] == ["GPU-n1-1"]


def test_nothing_is_read_without_foreign_drivers() -> None:
    """Two requests less."""
    with api_server() as (session, read):
        state = scheduler_state.read(session, Rules(dra=DraSettings(foreign_drivers=())))
    assert state.ledger.reservation(HELD) is None
    assert {RESOURCE_SLICES.path(), RESOURCE_CLAIMS.path()}.isdisjoint(read)


@pytest.mark.parametrize(("status", "printed"), [(404, ""), (403, "DRA drivers have allocated are shown as free")])
def test_cluster_without_the_kinds_or_the_right_is_shown_without_them(
    status: int, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A note says so only where something may be missing."""
    with api_server(status) as (session, _):
        state = scheduler_state.read(session, Rules())
    assert state.ledger.reservation(HELD) is None
    error = capsys.readouterr().err
    assert printed in error
    assert bool(error) == bool(printed)
