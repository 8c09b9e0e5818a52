"""An API server with the project's policies and a leader, for tests of Evictions."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from allocation.names import SYSTEM_NAMESPACE
from cluster.api import Api
from cluster.connect import connect
from lab import kubeconfig, manifests
from lab.client import client
from tests.scheduler.support.evicting import NODE, OURS, THEIRS, EvictionServer
from tests.support import namespaces

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from lab.layout import Layout


@pytest.fixture(autouse=True)
def _log_of_the_evictor(caplog: pytest.LogCaptureFixture) -> None:
    """Record how each eviction ended."""
    caplog.set_level(logging.INFO, logger="scheduler.preemption.evictor")


@pytest.fixture(scope="module")
def installed(control_plane: Layout) -> Iterator[Layout]:
    """The suite's API server with the project's policies, two namespaces, and a node.

    Without the Node object the garbage collector of pods would delete the victims after 40 seconds.
    """
    manifests.install(control_plane)
    client(control_plane).apply(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}},
        *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in (OURS, THEIRS)),
    )
    namespaces.usable(control_plane, OURS, THEIRS)
    yield control_plane
    client(control_plane).delete("node", NODE)
    client(control_plane).delete("leadership", "tranche-scheduler", namespace=SYSTEM_NAMESPACE, missing_ok=True)


@pytest.fixture
async def server(installed: Layout) -> AsyncIterator[EvictionServer]:
    """The API server, with the test as the leader of a new term."""
    identity = kubeconfig.service_account_kubeconfig(installed, namespace=SYSTEM_NAMESPACE, name="tranche-scheduler")
    async with (
        connect(program="tranche-test", kubeconfig=str(identity)) as connection,
        connect(program="tranche-test", kubeconfig=str(installed.kubeconfig)) as admin,
    ):
        made = EvictionServer(Api(connection, timeout=10), Api(admin))
        await made.lead()
        yield made
        await made.clear()
