"""A pod is bound after its volumes, or everything is given back; on a real API server and its controllers."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

import msgspec
import pytest

from cluster.api import Api
from cluster.connect import connect
from cluster.errors import NotFoundError
from cluster.resource import NAMESPACES, NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS
from lab import kubeconfig, manifests
from lab.processes import Daemon
from scheduler.metrics.labels import Outcome
from scheduler.volumes.objects import BOUND_BY_CONTROLLER, SELECTED_NODE
from tests.scheduler.support.volume_binding import (
    NODE,
    PATIENCE_S,
    STATIC,
    Cut,
    Storage,
    create_classes,
    scheduled,
    until,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lab.layout import Layout
    from scheduler.volumes.bindings import ClaimKey

pytestmark = pytest.mark.apiserver
SERIAL = itertools.count()


@pytest.fixture(scope="module")
def server(control_plane: Layout) -> Layout:
    """An API server with the project's roles and policies, and the controllers of volumes."""
    manifests.install(control_plane)
    return control_plane


@pytest.fixture
async def admin(server: Layout) -> AsyncIterator[Api]:
    """The API, as the administrator."""
    async with connect(program="tranche-test", kubeconfig=str(server.kubeconfig)) as connection:
        yield Api(connection)


@pytest.fixture
async def api(server: Layout) -> AsyncIterator[Api]:
    """The API, as the scheduler."""
    identity = kubeconfig.service_account_kubeconfig(server, namespace="tranche-system", name="tranche-scheduler")
    async with connect(program="tranche-test", kubeconfig=str(identity)) as connection:
        yield Api(connection, timeout=5)


@pytest.fixture
async def storage(admin: Api) -> AsyncIterator[Storage]:
    """A namespace of the test, with the informers, the classes and the node."""
    namespace = f"storage-{next(SERIAL)}"
    await admin.create(NAMESPACES, {"metadata": {"name": namespace}})
    try:
        await admin.request("GET", NODES.path(name=NODE))
    except NotFoundError:
        await admin.create(NODES, {"metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE}}})
        await create_classes(admin)
    made = Storage(admin, namespace)
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await admin.request("GET", f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
                break
            except NotFoundError:
                await asyncio.sleep(0.05)
    async with made.watching():
        yield made
    # These requests give the ends of the watches time to arrive, without which the event loop cannot be closed.
    await admin.request("DELETE", PERSISTENT_VOLUMES.path())
    await admin.request("DELETE", NAMESPACES.path(name=namespace))


async def selected(storage: Storage, key: ClaimKey) -> str:
    """Return the node for which a claim's volume is to be provisioned."""
    return (await storage.read_claim(key)).metadata.annotations.get(SELECTED_NODE, "")


async def until_selected(storage: Storage, key: ClaimKey, *, is_selected: bool = True) -> None:
    """Wait until the informer shows the selected node of a claim, or that it has none."""
    await until(
        lambda: (
            (shown := storage.claims.get(key.name, key.namespace)) is not None
            and (SELECTED_NODE in shown.metadata.annotations) == is_selected
        )
    )


async def test_an_existing_volume_is_bound_before_the_pod(api: Api, storage: Storage) -> None:
    """The scheduler reserves it for the claim, and kube-controller-manager binds both."""
    binder, pod = storage.binder(api), await storage.pod("a")
    key, name = await storage.claim("data", storage_class=STATIC), await storage.volume(f"pv-{storage.namespace}")
    assert await binder.bind(pod, scheduled(matches={key: name})) is None
    claim, volume = await storage.read_claim(key), await storage.read_volume(name)
    assert (claim.is_bound, claim.spec.volume_name) == (True, name)
    assert volume.spec.claim_ref is not None
    assert volume.spec.claim_ref.uid == claim.metadata.uid
    assert BOUND_BY_CONTROLLER in volume.metadata.annotations


async def test_a_volume_is_provisioned_before_the_pod_is_bound(api: Api, storage: Storage) -> None:
    """The claim names the node, and the pod waits until the provisioner has created the volume."""
    binder, pod, key = storage.binder(api), await storage.pod("a"), await storage.claim("data")
    binding = asyncio.create_task(binder.bind(pod, scheduled(provisioned=(key,))))
    await until_selected(storage, key)
    assert await selected(storage, key) == NODE
    assert not binding.done()
    await storage.volume(f"pv-{storage.namespace}", storage_class="late", claim=key)
    assert await binding is None
    assert (await storage.read_claim(key)).is_bound


async def test_everything_is_given_back_when_the_deadline_passes(server: Layout, api: Api, storage: Storage) -> None:
    """The claim names no node, the volume is free, and the message names claim and node."""
    pod, late, key = (
        await storage.pod("a"),
        await storage.claim("late"),
        await storage.claim("data", storage_class=STATIC),
    )
    name = await storage.volume(f"pv-{storage.namespace}")
    with Daemon(server, "kube-controller-manager").paused():  # so that no claim is bound
        result = await storage.binder(api, timeout_seconds=1).bind(
            pod, scheduled(matches={key: name}, provisioned=(late,))
        )
        assert result is not None
        assert result.outcome is Outcome.REFUSED
        assert f"claim {key}" in result.note
        assert name in result.note
        volume = await storage.read_volume(name)
        assert volume.spec.claim_ref is None
        assert BOUND_BY_CONTROLLER not in volume.metadata.annotations
        assert await selected(storage, late) == ""
    await until_selected(storage, late, is_selected=False)
    result = await storage.binder(api, timeout_seconds=0.5).bind(pod, scheduled(provisioned=(late,)))
    assert result is not None
    assert f"claim {late}: no volume was provisioned for it on node {NODE} within 0.5 s" in result.note


async def test_a_rejected_node_is_given_up_at_once(api: Api, storage: Storage) -> None:
    """A provisioner rejects a node by removing the annotation; the pod does not wait for the deadline."""
    binder, pod, key = storage.binder(api, timeout_seconds=600), await storage.pod("a"), await storage.claim("data")
    binding = asyncio.create_task(binder.bind(pod, scheduled(provisioned=(key,))))
    await until_selected(storage, key)
    await storage.change_claim(key, annotations={SELECTED_NODE: None})
    async with asyncio.timeout(PATIENCE_S):
        result = await binding
    assert result is not None
    assert result.outcome is Outcome.REFUSED
    assert f"the provisioner of claim {key} rejected node {NODE}" in result.note


async def test_of_two_pods_one_gets_the_volume(api: Api, storage: Storage) -> None:
    """Two schedulers choose one volume for two claims: one is bound, and the other loses nothing but the race."""
    name = await storage.volume(f"pv-{storage.namespace}")
    keys = [await storage.claim(f"data-{number}", storage_class=STATIC) for number in range(2)]
    pods = [await storage.pod(f"p{number}") for number in range(2)]
    results = await asyncio.gather(
        *(storage.binder(api).bind(pod, scheduled(matches={key: name})) for pod, key in zip(pods, keys, strict=True))
    )
    (lost,) = [each for each in results if each is not None]
    assert lost.outcome is Outcome.REFUSED
    winner, loser = keys if results[0] is None else reversed(keys)
    assert f"chosen for claim {loser}, is reserved for claim {winner}" in lost.note
    assert (await storage.read_claim(winner)).spec.volume_name == name
    assert (await storage.read_claim(loser)).spec.volume_name == ""


async def test_a_deleted_pod_leaves_nothing_behind(api: Api, storage: Storage) -> None:
    """The annotation of its claim is removed, so that the next pod is free to choose a node."""
    binder, pod, key = storage.binder(api), await storage.pod("a"), await storage.claim("data")
    binding = asyncio.create_task(binder.bind(pod, scheduled(provisioned=(key,))))
    await until_selected(storage, key)
    await storage.delete(PODS, "a", namespace=storage.namespace)
    result = await binding
    assert result is not None
    assert result.outcome is Outcome.GONE
    assert await selected(storage, key) == ""


async def test_a_deleted_claim_ends_the_wait(api: Api, storage: Storage) -> None:
    """The pod is scheduled again, which then says that the claim is missing."""
    binder, pod, key = storage.binder(api), await storage.pod("a"), await storage.claim("data")
    binding = asyncio.create_task(binder.bind(pod, scheduled(provisioned=(key,))))
    await until_selected(storage, key)
    await storage.delete(PERSISTENT_VOLUME_CLAIMS, key.name, namespace=key.namespace)
    result = await binding
    assert result is not None
    assert (result.outcome, result.reason) == (Outcome.REFUSED, "FailedScheduling")
    assert f"claim {key} was deleted" in result.note


async def test_a_volume_that_the_node_cannot_use_is_followed(api: Api, storage: Storage) -> None:
    """A provisioner created it elsewhere: the pod is not bound here, and the volume stays the claim's."""
    binder, pod, key = storage.binder(api), await storage.pod("a"), await storage.claim("data")
    binding = asyncio.create_task(binder.bind(pod, scheduled(provisioned=(key,))))
    await until_selected(storage, key)
    name = await storage.volume(f"pv-{storage.namespace}", node="another", storage_class="late", claim=key)
    result = await binding
    assert result is not None
    assert f"got PersistentVolume {name}, which node {NODE} cannot use" in result.note
    assert (await storage.read_claim(key)).spec.volume_name == name


async def test_a_deleted_node_ends_the_wait(api: Api, storage: Storage) -> None:
    """No provisioner could create a volume there."""
    binder, pod, key = storage.binder(api), await storage.pod("a"), await storage.claim("data")
    binding = asyncio.create_task(binder.bind(pod, scheduled(provisioned=(key,))))
    await until_selected(storage, key)
    try:
        await storage.delete(NODES, NODE)
        result = await binding
    finally:
        await storage.node(NODE)
    assert result is not None
    assert f"node {NODE} was deleted" in result.note
    assert await selected(storage, key) == ""


async def test_lost_responses_do_no_harm(server: Layout, api: Api, storage: Storage) -> None:
    """The write is found done, or done again; taking back is repeated likewise."""
    pod, key = await storage.pod("a"), await storage.claim("data", storage_class=STATIC)
    name = await storage.volume(f"pv-{storage.namespace}")
    with Daemon(server, "kube-controller-manager").paused():  # so that no claim is bound
        cut = Cut(api, losses=1)
        binding = asyncio.create_task(
            storage.binder(cut, timeout_seconds=1.5).bind(pod, scheduled(matches={key: name}))
        )
        await until(lambda: not cut.losses)
        cut.losses = 1
        result = await binding
        assert result is not None
        assert result.outcome is Outcome.REFUSED
        assert (await storage.read_volume(name)).spec.claim_ref is None
    assert await storage.binder(Cut(api, losses=1)).bind(pod, scheduled(matches={key: name})) is None


async def test_no_change_by_anybody_else_is_overwritten(api: Api, storage: Storage) -> None:
    """Another scheduler selected a node meanwhile: its selection stays, although the informer did not show it yet."""
    pod, key = await storage.pod("a"), await storage.claim("data")
    binder = storage.binder(api)
    stale = storage.claims.get(key.name, key.namespace)
    await storage.change_claim(key, annotations={SELECTED_NODE: "another"})
    assert stale is not None
    binder._shown = msgspec.structs.replace(binder._shown, claim=lambda _: stale)
    result = await binder.bind(pod, scheduled(provisioned=(key,)))
    assert result is not None
    assert "is being provisioned for node another, not" in result.note
    assert await selected(storage, key) == "another"


async def test_a_leader_that_stops_leaves_everything_to_the_next(api: Api, storage: Storage) -> None:
    """What it wrote stays, so that the next leader continues with it; the pod of the first is not bound."""
    binder, pod, key = storage.binder(api), await storage.pod("a"), await storage.claim("data")
    binding = asyncio.create_task(binder.bind(pod, scheduled(provisioned=(key,))))
    await until_selected(storage, key)
    binder.close()
    with pytest.raises(asyncio.CancelledError):
        await binding
    assert await selected(storage, key) == NODE
    following = asyncio.create_task(storage.binder(api).bind(pod, scheduled(provisioned=(key,))))
    await storage.volume(f"pv-{storage.namespace}", storage_class="late", claim=key)
    assert await following is None


async def test_late_write_of_a_deposed_leader_reserves_no_volume_for_ever(api: Api, storage: Storage) -> None:
    """A new leader had the claim bound to another volume: kube-controller-manager clears the late reservation."""
    pod, key = await storage.pod("a"), await storage.claim("data", storage_class=STATIC)
    late, prompt = [await storage.volume(f"pv-{storage.namespace}-{number}") for number in range(2)]
    stale = storage.claims.get(key.name, key.namespace)
    assert await storage.binder(api).bind(pod, scheduled(matches={key: prompt})) is None
    deposed = storage.binder(api)
    deposed._shown = msgspec.structs.replace(deposed._shown, claim=lambda _: stale)
    result = await deposed.bind(pod, scheduled(matches={key: late}))
    assert result is not None
    assert f"PersistentVolume {late} is not reserved for claim {key} any more" in result.note
    assert (await storage.read_volume(late)).spec.claim_ref is None
    assert (await storage.read_claim(key)).spec.volume_name == prompt


async def test_a_shared_claim_stays_with_the_pod_that_still_waits(api: Api, storage: Storage) -> None:
    """Two pods wait for one claim, and one of them is deleted."""
    binder, key = storage.binder(api), await storage.claim("data")
    pods = [await storage.pod(f"p{number}") for number in range(2)]
    bindings = [asyncio.create_task(binder.bind(pod, scheduled(provisioned=(key,)))) for pod in pods]
    await until_selected(storage, key)
    await storage.delete(PODS, "p0", namespace=storage.namespace)
    result = await bindings[0]
    assert result is not None
    assert await selected(storage, key) == NODE
    await storage.volume(f"pv-{storage.namespace}", storage_class="late", claim=key)
    assert await bindings[1] is None
