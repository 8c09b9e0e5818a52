"""What `kubectl gpu top` reads, from an API server that does not serve or permit all of it."""

from __future__ import annotations

import msgspec
import pytest

from cli import arguments
from cli.top import top, watch
from cluster.resource import GPU_NODE_STATUSES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.cli.support.sessions import session_on
from tests.scheduler.support import builders, dra

OBJECTS = {
    NODES.path(): msgspec.to_builtins(builders.node("n1")),
    GPU_NODE_STATUSES.path(): msgspec.to_builtins(builders.status("n1")),
    PODS.path(): msgspec.to_builtins(builders.allocated("p", node="n1", memory=100, card=1)),
    RESOURCE_SLICES.path(): dra.slice_of("n1", "GPU-n1-0", "GPU-n1-1"),
    RESOURCE_CLAIMS.path(): dra.claim("c", "n1", "gpu-1"),
}


def shown(capsys: pytest.CaptureFixture[str], *line: str, status: int = 200) -> tuple[str, str, list[str]]:
    """Run `top` against a server that answers for claims with a status; return both outputs and the paths it read."""
    with session_on(OBJECTS, refused=RESOURCE_CLAIMS.path(), status=status) as (session, read):
        assert top.run(session, arguments.parse(["top", *line])) == 0
    return *capsys.readouterr(), read


@pytest.mark.parametrize("line", [["--cards"], ["n1"], ["-o", "json"]])
def test_double_booked_cards_are_marked_where_cards_are_shown(
    line: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """By the claims of all namespaces; tables say in a note which claim it is, JSON with the card."""
    output, error, _ = shown(capsys, *line)
    assert "DoubleBooked" in output
    assert "ResourceClaim default/c of another DRA driver has card GPU-n1-1" in output + error


@pytest.mark.parametrize("line", [[], ["--cards", "--watch"]])
def test_rows_of_nodes_and_watches_do_without_claims(
    line: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fleet may have many devices, and a viewer may not watch them."""
    monkeypatch.setattr(watch, "run", lambda *_, **__: 0)
    output, _, read = shown(capsys, *line)
    assert "n1" in output
    assert {RESOURCE_SLICES.path(), RESOURCE_CLAIMS.path()}.isdisjoint(read)


@pytest.mark.parametrize(("status", "printed"), [(404, False), (403, True)])
def test_cards_are_shown_without_the_claims(status: int, *, printed: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """A cluster without the kind has no claims; without the right a note says what is missing."""
    output, error, _ = shown(capsys, "--cards", status=status)
    assert "default/p/main" in output
    assert "DoubleBooked" not in output + error
    assert ("cards that ResourceClaims have, too, are not marked" in error) is printed
