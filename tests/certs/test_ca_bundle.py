"""The caBundle: written where it belongs, and nothing else."""

import base64
import copy
from typing import Any

import pytest

from certs.ca_bundle import publish, published
from cluster.errors import ClusterError, NotFoundError

PATH = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/tranche"


def configuration(*bundles: str | None) -> dict[str, Any]:
    """Make a configuration with an entry per bundle."""
    return {
        "metadata": {"name": "tranche"},
        "webhooks": [
            {
                "name": f"w{number}.gpu.scheduling",
                "clientConfig": {"service": {"name": "s"}, **({} if bundle is None else {"caBundle": bundle})},
                "failurePolicy": "Ignore",
            }
            for number, bundle in enumerate(bundles)
        ],
    }


async def test_every_entry_gets_it_and_nothing_else_changes(api: Any) -> None:
    """Entries without and with another bundle alike."""
    sent = configuration(None, "b2xk")
    api.objects[PATH] = copy.deepcopy(sent)
    assert await publish(api, bundle=b"PEM")
    for webhook in sent["webhooks"]:
        webhook["clientConfig"]["caBundle"] = base64.b64encode(b"PEM").decode()
    assert api.objects[PATH] == sent
    assert await published(api) == {"w0.gpu.scheduling": b"PEM", "w1.gpu.scheduling": b"PEM"}


async def test_nothing_is_written_where_it_is_right(api: Any) -> None:
    """A replica that starts causes no write."""
    api.objects[PATH] = configuration("UEVN", "UEVN")
    assert not await publish(api, bundle=b"PEM")
    assert api.requests == [("GET", PATH)]


async def test_a_change_meanwhile_is_read_again(api: Any) -> None:
    """Another entry moved in front between read and write: the bundle still reaches ours, and the new one."""
    api.objects[PATH] = configuration(None)

    def other(method: str, _path: str) -> None:
        if method == "PATCH" and len(api.objects[PATH]["webhooks"]) == 1:
            new = configuration(None)["webhooks"][0] | {"name": "new.gpu.scheduling"}
            api.objects[PATH]["webhooks"].insert(0, new)

    api.before = other
    assert await publish(api, bundle=b"PEM")
    assert set((await published(api)).values()) == {b"PEM"}
    assert [method for method, _ in api.requests].count("PATCH") == 2


async def test_endless_changes_are_reported(api: Any) -> None:
    """Two tools that fight over the bundle are named as what they are."""
    api.objects[PATH] = configuration(None)

    def other(_method: str, _path: str) -> None:
        api.objects[PATH]["webhooks"][0]["name"] += "x"

    api.before = other
    with pytest.raises(ClusterError, match="another certificate tool"):
        await publish(api, bundle=b"PEM")


async def test_a_missing_configuration_is_an_error(api: Any) -> None:
    """It is the manifests' to create."""
    with pytest.raises(NotFoundError):
        await publish(api, bundle=b"PEM")
