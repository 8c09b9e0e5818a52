"""Capacity over HTTP, for administrators and for users with rights in one namespace."""

import asyncio
from typing import Any

import msgspec
import pytest

from scheduler.api.namespaced.paths import CAPACITY as OWN_CAPACITY
from scheduler.api.openapi import CAPACITY
from tests.scheduler.api.namespaced import test_http as namespaced_http
from tests.scheduler.api.namespaced.test_http import Site as NamespacedSite
from tests.scheduler.api.test_capacity import without_changes
from tests.scheduler.api.test_http import Site, manifest, site  # noqa: F401 -- a fixture
from tests.scheduler.support.builders import allocated, state

own_site = namespaced_http.site


def counts(content: dict[str, Any]) -> dict[str, int]:
    """Return the counts of a response by shape."""
    return {shape["name"]: shape["count"] for shape in content["shapes"]}


async def test_whole_cards_and_common_slices_are_counted(site: Site) -> None:  # noqa: F811
    """Without a pod, with what is stranded; nothing changes."""
    site.state.set_pod(allocated("a", node="n1", memory=250))
    before = without_changes(site.state)
    status, content = await site.send("GET", CAPACITY)
    assert (status, counts(content)) == (200, {"whole card": 3, "250 MiB": 15})
    assert content["largest"] == {"memoryMiB": 1000, "cores": 100, "model": "", "node": "n1"}
    assert content["stranded"] == []
    assert without_changes(site.state) == before


async def test_pods_like_one_are_counted(site: Site) -> None:  # noqa: F811
    """As admission leaves them; one that it refuses does not fit, one of another scheduler is 422."""
    status, content = await site.send("POST", CAPACITY, msgspec.json.encode(manifest(500)))
    assert (status, counts(content)) == (200, {"submitted": 8})
    assert {each["name"]: each["count"] for each in content["shapes"][0]["nodes"]} == {"n1": 4, "n2": 4}
    status, content = await site.send("POST", CAPACITY, msgspec.json.encode(manifest("10Gi")))
    assert (status, counts(content)) == (200, {"submitted": 0})
    assert "refused at creation" in content["shapes"][0]["why"]
    plain = manifest(500)
    plain["metadata"]["namespace"] = "plain"
    assert (await site.send("POST", CAPACITY, msgspec.json.encode(plain)))[0] == 422
    assert (await site.send("POST", CAPACITY, b"x: ["))[0] == 400


async def test_in_extender_mode_nothing_is_reserved_for_a_count(site: Site) -> None:  # noqa: F811
    """kube-scheduler's requests would see the copies; the response says what counts instead."""
    site.state = state("n1", has_queue=False)
    status, content = await site.send("GET", CAPACITY)
    assert status == 501
    assert "kubectl gpu capacity" in content["error"]


async def test_no_decision_is_made_while_pods_are_counted(site: Site) -> None:  # noqa: F811
    """The count waits for the decision in progress, and decisions for the count (`ClusterState.alone`)."""
    async with site.state.decision:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(site.send("GET", CAPACITY), 0.2)
    assert (await site.send("GET", CAPACITY))[0] == 200


async def test_a_user_of_one_namespace_sees_counts_and_no_use_of_others(own_site: NamespacedSite) -> None:
    """Neither the sizes of other users' slices, nor on which nodes pods fit, nor what is stranded."""
    own_site.set_pod(allocated("a", node="n1", memory=250, namespace="other"))
    own_site.set_pod(allocated("b", node="n1", memory=500, card=1, namespace="team"))
    status, content = await own_site.ask("GET", OWN_CAPACITY, token="editor")  # noqa: S106
    assert (status, counts(content)) == (200, {"whole card": 2, "500 MiB": 6})
    assert [shape["nodes"] for shape in content["shapes"]] == [[], []]
    assert content["largest"] == {"memoryMiB": 1000, "cores": 100, "model": "", "node": ""}
    assert content["stranded"] is None
    body = namespaced_http.manifest(500)
    status, content = await own_site.ask("POST", OWN_CAPACITY, token="editor", body=body)  # noqa: S106
    assert (status, counts(content)) == (200, {"asks": 6})


async def test_capacity_needs_the_right_to_create_pods(own_site: NamespacedSite) -> None:
    """As a simulation does, with and without a pod."""
    for token, expected in (("viewer", 403), ("x", 401)):
        assert (await own_site.ask("GET", OWN_CAPACITY, token=token))[0] == expected
        body = namespaced_http.manifest(500)
        assert (await own_site.ask("POST", OWN_CAPACITY, token=token, body=body))[0] == expected
    own_site.state = state("n1", has_queue=False)
    assert (await own_site.ask("GET", OWN_CAPACITY, token="editor"))[0] == 501  # noqa: S106
