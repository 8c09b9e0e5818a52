"""A card is cordoned on the exposed page by those who may patch its node, in their own name, and by no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from allocation.names import CORDON
from scheduler.api.namespaced.paths import TOKEN_HEADER
from tests.scheduler.ui.exposing import Exposed, exposing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PATH = "ui/nodes/n1/cordon"
CARD = "GPU-n1-0"
JSON = {"Content-Type": "application/json"}
MAY = ("patch", "nodes/n1")


@pytest.fixture
async def site() -> AsyncIterator[Exposed]:
    """The exposed page; `operator` may patch n1, and `red` has rights in a namespace only."""
    async with exposing() as site:
        site.api.rights["operator"] = {MAY}
        yield site


async def send(site: Exposed, user: str, content: Any = None, **headers: str) -> tuple[int, str]:
    """Request a change as a user."""
    body = msgspec.json.encode({"uuid": CARD, "cordoned": True} if content is None else content)
    return await site.send("POST", PATH, {**JSON, TOKEN_HEADER: user, **headers}, body)


def listed(site: Exposed) -> str | None:
    """Return the list of cordoned cards of n1."""
    found: str | None = site.api.get_object("nodes", "n1")["metadata"].get("annotations", {}).get(CORDON)
    return found


async def test_card_is_cordoned_in_the_readers_name(site: Exposed) -> None:
    """Both the page and the API server know who did it, the entries of others stay, and new pods stay away."""
    node = site.api.get_object("nodes", "n1")
    site.api.put("nodes", {**node, "metadata": {**node["metadata"], "annotations": {CORDON: "GPU-of-others"}}})
    assert await send(site, "operator") == (200, '{"changed":true}')
    assert listed(site) == f"GPU-of-others,{CARD}"
    assert {user for user, _, _ in site.api.sent_by_users} == {"operator"}
    assert (await site.cluster.event("CardCordoned"))["note"] == f"operator has cordoned card {CARD} on the page"
    await site.cluster.until(lambda: CARD in site.cluster.term.ledger.cordon("n1"), "cordon in the ledger")
    assert await send(site, "operator") == (200, '{"changed":false}')
    assert await send(site, "operator", {"uuid": CARD, "cordoned": False}) == (200, '{"changed":true}')
    assert listed(site) == "GPU-of-others"
    await site.cluster.event("CardUncordoned", "operator has uncordoned")


async def test_without_the_right_nothing_is_written(site: Exposed) -> None:
    """Neither for a tenant, nor for one who may see every pod; the review is of exactly this node."""
    site.api.rights["operator of n2"] = {("patch", "nodes/n2")}
    for user in ("red", "administrator", "stranger", "operator of n2"):
        status, text = await send(site, user)
        assert (status, f"{user} cannot patch node n1" in text) == (403, True)
    assert (site.api.sent_by_users, listed(site)) == ([], None)
    asked = site.api.reviewed[-1]["resourceAttributes"]
    assert asked == {"verb": "patch", "group": "", "resource": "nodes", "version": "v1", "name": "n1"}


async def test_nobody_uses_the_rights_of_the_scheduler(site: Exposed) -> None:
    """Even if the review errs, the API server decides about the write as one of the reader."""
    site.api.granted = lambda _user: set()
    status, text = await send(site, "operator")
    assert (status, "the API server refused the change: operator cannot" in text) == (403, True)
    assert listed(site) is None


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({TOKEN_HEADER: "forged"}, 401),
        ({"Authorization": "Basic b3BlcmF0b3I="}, 401),
        ({"Cookie": "token=operator"}, 401),
        ({TOKEN_HEADER: "operator", "Content-Type": "text/plain"}, 415),
        ({TOKEN_HEADER: "operator", "Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Authorization": "Bearer operator", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Authorization": "Bearer operator", "Sec-Fetch-Site": "same-site"}, 403),
        ({"Authorization": "Bearer operator", "Sec-Fetch-Site": "none"}, 403),
        ({"Authorization": "Bearer operator", "Origin": "https://elsewhere.example"}, 403),
        ({"Authorization": "Bearer operator", "Origin": "null"}, 403),
    ],
)
async def test_what_another_site_sends_changes_nothing(site: Exposed, headers: dict[str, str], status: int) -> None:
    """A proxy in front adds the reader's token to whatever the browser sends; a cookie alone is not enough."""
    body = msgspec.json.encode({"uuid": CARD, "cordoned": True})
    assert (await site.send("POST", PATH, {**JSON, **headers}, body))[0] == status
    assert listed(site) is None


async def test_what_the_page_sends_is_accepted(site: Exposed) -> None:
    """With the token of a proxy in front, from a browser that says so, and from one that names its origin only."""
    host = site.url.removesuffix("/")
    for headers in ({"Sec-Fetch-Site": "same-origin", "Origin": "https://rewritten"}, {"Origin": host}):
        body = msgspec.json.encode({"uuid": CARD, "cordoned": True})
        sent = {**JSON, "Authorization": "Bearer operator", **headers}
        assert (await site.send("POST", PATH, sent, body))[0] == 200


@pytest.mark.parametrize(
    ("content", "status"),
    [
        ({"uuid": "GPU-n2-0", "cordoned": True}, 404),
        ({"uuid": "", "cordoned": True}, 404),
        ({"uuid": f"{CARD},GPU-x", "cordoned": True}, 404),
        ({"uuid": "GPU-n1-9", "cordoned": False}, 404),
        ({"uuid": CARD}, 400),
        ({"uuid": CARD, "cordoned": True, "node": "n2"}, 400),
        ({"uuid": "G" * 2000, "cordoned": True}, 413),
        ([], 400),
    ],
)
async def test_only_cards_of_the_node_get_into_its_list(site: Exposed, content: Any, status: int) -> None:
    """Nothing else is written, whatever the request says."""
    assert (await send(site, "operator", content))[0] == status
    assert listed(site) is None


async def test_card_that_is_gone_is_uncordoned(site: Exposed) -> None:
    """Its entry in the list is enough."""
    node = site.api.get_object("nodes", "n1")
    site.api.put("nodes", {**node, "metadata": {**node["metadata"], "annotations": {CORDON: "GPU-gone"}}})
    await site.cluster.until(lambda: "GPU-gone" in site.cluster.term.ledger.cordon("n1"), "cordon in the ledger")
    assert (await send(site, "operator", {"uuid": "GPU-gone", "cordoned": False}))[0] == 200
    assert not listed(site)


async def test_page_knows_who_may_cordon(site: Exposed) -> None:
    """So that it offers that to no others."""
    for user, allowed in (("operator", "true"), ("red", "false")):
        assert await site.get(PATH, {TOKEN_HEADER: user}) == (200, f'{{"allowed":{allowed}}}')
    assert (await site.get(PATH, {}))[0] == 401


async def test_nothing_is_written_while_nobody_can_be_asked(site: Exposed) -> None:
    """Nor by a replica that does not lead, which reviews no callers."""
    site.api.is_away = True
    assert (await send(site, "operator"))[0] == 503
    site.api.is_away, site.decides = False, False
    assert (await send(site, "operator"))[0] == 503
    assert listed(site) is None


async def test_change_of_others_at_the_same_time_is_kept(site: Exposed) -> None:
    """A write applies only to the version that was read; after a conflict the node is read again."""
    others = iter(("GPU-a", "GPU-b"))

    def interfere(method: str, path: str) -> None:
        if method == "PATCH" and path.endswith("nodes/n1") and (uuid := next(others, "")):
            node = site.api.get_object("nodes", "n1")
            site.api.put("nodes", {**node, "metadata": {**node["metadata"], "annotations": {CORDON: uuid}}})

    site.api.on_write = interfere
    assert (await send(site, "operator"))[0] == 200
    assert listed(site) == f"GPU-b,{CARD}"
