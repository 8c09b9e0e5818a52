"""The API server's limit: a client that posts the Bindings of a scheduler and decides nothing."""

import time

import msgspec

from allocation import names
from allocation.allocation import Allocation, CardShare
from allocation.request import ContainerRequest, Kind, PodRequest
from benchmarks import cluster, fleets
from cluster.api import Api
from cluster.resource import LEADERSHIPS, PODS
from scheduler.binding.binder import allocation_annotations
from scheduler.cycle.result import Scheduled

_REQUEST = PodRequest((ContainerRequest("main", Kind.REGULAR, "", 1, 3000, 0, 100),))


class _Token(msgspec.Struct):
    epoch: int
    identity: str


class _Leadership(msgspec.Struct):
    spec: _Token


async def bind(api: Api, prefix: str, *, nodes: int, pods: int, at_once: int = 64) -> None:
    """Bind the pods `<prefix>0`, `<prefix>1`, …, `at_once` at a time, with the token of the last leader."""
    leadership = await api.get(LEADERSHIPS, _Leadership, name="tranche-scheduler", namespace=names.SYSTEM_NAMESPACE)
    token = f"{leadership.spec.epoch}/{leadership.spec.identity}"

    async def one(number: int) -> None:
        node, name = fleets.node(number % nodes), f"{prefix}{number}"
        share = CardShare(cluster.card(node, 1), 1, 3000, 100)
        chosen = Scheduled(node, _REQUEST, Allocation(node, {"main": (share,)}), "")
        written = {names.LEADER: token, **allocation_annotations(chosen, unix_seconds=int(time.time()))}
        meta = {"name": name, "annotations": written, "labels": {names.FENCED_LABEL: "true"}}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": {"kind": "Node", "name": node}}
        path = PODS.path(namespace=cluster.NAMESPACE, name=name, subresource="binding")
        await api.request("POST", path, body=body)

    await cluster.at_once((one(number) for number in range(pods)), limit=at_once)
