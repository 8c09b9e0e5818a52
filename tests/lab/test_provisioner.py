"""The lab's provisioner creates a volume for the selected node and deletes it after its claim, as a real one does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from cluster.api import Api
from cluster.connect import connect
from cluster.errors import NotFoundError
from cluster.resource import NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from lab.provisioner import STORAGE_CLASS, Provisioner
from scheduler.volumes.objects import SELECTED_NODE, Claim, PersistentVolume

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
NAMESPACE = "default"
NODE = "provisioned"


@pytest.fixture
async def api(control_plane: Layout, tmp_path: Path) -> AsyncIterator[Api]:
    """The API, with a running provisioner, its class and a node."""
    async with connect(program="tranche-test", kubeconfig=str(control_plane.kubeconfig)) as connection:
        made = Api(connection)
        storage_class = {
            "metadata": {"name": STORAGE_CLASS},
            "provisioner": "tranche-lab/local",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        classes = "/apis/storage.k8s.io/v1/storageclasses"
        try:
            await made.request("GET", f"{classes}/{STORAGE_CLASS}")
        except NotFoundError:
            await made.request("POST", classes, body=storage_class)
        await made.create(NODES, {"metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE}}})
        task = asyncio.create_task(Provisioner(made, tmp_path).run())
        yield made
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await made.request("DELETE", NODES.path(name=NODE))


async def claim(api: Api, name: str, *, node: str) -> None:
    """Create a claim whose volume is to be provisioned for a node."""
    body: dict[str, Any] = {
        "metadata": {"name": name, "annotations": {SELECTED_NODE: node}},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": STORAGE_CLASS,
            "resources": {"requests": {"storage": "1Mi"}},
        },
    }
    await api.create(PERSISTENT_VOLUME_CLAIMS, body, namespace=NAMESPACE)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110 -- a condition of the API server has no event
            await asyncio.sleep(0.05)


async def test_a_volume_lives_as_long_as_its_claim(api: Api, tmp_path: Path) -> None:
    """It belongs to the selected node; its data are deleted with it."""

    async def is_bound() -> bool:
        return (await api.get(PERSISTENT_VOLUME_CLAIMS, Claim, name="lives", namespace=NAMESPACE)).is_bound

    async def is_gone() -> bool:
        try:
            await api.get(PERSISTENT_VOLUMES, PersistentVolume, name=name)
        except NotFoundError:
            return True
        return False

    await claim(api, "lives", node=NODE)
    await until(is_bound)
    name = (await api.get(PERSISTENT_VOLUME_CLAIMS, Claim, name="lives", namespace=NAMESPACE)).spec.volume_name
    volume = await api.get(PERSISTENT_VOLUMES, PersistentVolume, name=name)
    assert volume.spec.node_affinity is not None
    assert volume.spec.node_affinity.required is not None
    (term,) = volume.spec.node_affinity.required.node_selector_terms
    assert term.match_expressions[0].values == (NODE,)
    (tmp_path / name).mkdir()
    await api.request("DELETE", PERSISTENT_VOLUME_CLAIMS.path(namespace=NAMESPACE, name="lives"))
    await until(is_gone)
    assert not (tmp_path / name).exists()


async def test_a_node_that_does_not_exist_is_rejected(api: Api) -> None:
    """The selection is removed from the claim, so that a scheduler chooses another node."""

    async def is_rejected() -> bool:
        shown = await api.get(PERSISTENT_VOLUME_CLAIMS, Claim, name="rejected", namespace=NAMESPACE)
        return SELECTED_NODE not in shown.metadata.annotations

    await claim(api, "rejected", node="missing")
    await until(is_rejected)
    await api.request("DELETE", PERSISTENT_VOLUME_CLAIMS.path(namespace=NAMESPACE, name="rejected"))
