"""What every write of a leader has, and what a replica without trust does not begin."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path
from typing import Any

import pytest

from cluster.metadata import ObjectMeta
from cluster.resource import GPU_CLAIMS, LEASES, PODS
from tests.scheduler.support.fencing import fenced

META = ObjectMeta("a", "team", "uid-a", "7")
SCHEDULER = Path(__file__).parents[2] / "scheduler"
HOLDERS = {
    "fenced_api.py": "writes with it",
    "fence.py": "raises the fence itself",
    "informers.py": "watches",
    "kube_scheduler_lease.py": "watches",
    "measurements/agent_pods.py": "watches",
    "api/access_reviews.py": "creates reviews, which change nothing",
    "api/token_reviews.py": "the same",
    "ui/cordon.py": "writes in the name of a reader of the page, with the reader's rights",
    "__main__.py": "passes it on",
    "servers.py": "passes it on",
    "optional_parts.py": "passes it on",
    "term_builder.py": "passes it on",
}
"""The modules with a client that can write, and what they do with it."""


class Server:
    """Accepts every write and keeps it."""

    def __init__(self) -> None:
        self.writes: list[tuple[str, str, dict[str, Any]]] = []

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        """Keep a write."""
        self.writes.append((method, path, how))
        return b"{}"


def test_few_modules_can_write_without_the_fence() -> None:
    """All others have a FencedApi, or a ReadApi, which has no verb that writes."""
    found = {
        path.relative_to(SCHEDULER).as_posix()
        for path in SCHEDULER.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module == "cluster.api"
        if any(each.name == "Api" for each in node.names)
    }
    assert found == HOLDERS.keys()


async def test_what_is_created_has_the_token_beside_its_own_metadata() -> None:
    """The policies of the fence select by the label, and compare the annotation."""
    server, meta = Server(), {"name": "a", "labels": {"mine": "1"}, "annotations": {"also": "2"}}
    await fenced(server, token="4/me").create("/path", {"metadata": meta, "target": {}})  # noqa: S106
    ((method, path, how),) = server.writes
    assert (method, path, how["repeat_if_busy"]) == ("POST", "/path", True)
    assert how["body"] == {
        "metadata": {
            "name": "a",
            "labels": {"mine": "1", "gpu.scheduling/fenced": "true"},
            "annotations": {"also": "2", "gpu.scheduling/leader": "4/me"},
        },
        "target": {},
    }
    assert meta == {"name": "a", "labels": {"mine": "1"}, "annotations": {"also": "2"}}


async def test_the_api_server_abandons_every_write_before_the_leader_does() -> None:
    """So the leader never misses a response by a moment, and nothing arrives after the successor has waited."""
    server = Server()
    writes = fenced(server, timeout_seconds=0.5)
    await writes.create("/path", {"metadata": {}})
    await writes.delete(PODS, META)
    await writes.patch_status(PODS, META, {})
    await writes.write("PATCH", "/path", {})
    assert [method for method, _, _ in server.writes] == ["POST", "DELETE", "PATCH", "PATCH"]
    assert all(how["params"] == {"timeout": "0.5s"} and how["timeout"] > 0.5 for _, _, how in server.writes)


@pytest.mark.parametrize(
    ("unchanged", "expected"), [(False, {"uid": "uid-a"}), (True, {"uid": "uid-a", "resourceVersion": "7"})]
)
async def test_a_deletion_concerns_one_object(unchanged: bool, expected: dict[str, str]) -> None:  # noqa: FBT001
    """Not another one of its name, and on request not a later version."""
    server = Server()
    await fenced(server).delete(LEASES, META, unchanged=unchanged)
    ((_, path, how),) = server.writes
    assert path == "/apis/coordination.k8s.io/v1/namespaces/team/leases/a"
    assert how["body"]["preconditions"] == expected


async def test_a_status_concerns_one_object() -> None:
    """Not another one of its name."""
    server = Server()
    await fenced(server).patch_status(GPU_CLAIMS, META, {"phase": "Bound"})
    ((_, path, how),) = server.writes
    assert path == GPU_CLAIMS.path(namespace="team", name="a", subresource="status")
    assert how["body"] == {"metadata": {"uid": "uid-a"}, "status": {"phase": "Bound"}}


async def test_many_writes_end_with_the_trust() -> None:
    """Those that have begun are completed."""
    begun, is_open = [], asyncio.Event()
    is_trusted = True

    async def write(item: int) -> None:
        begun.append(item)
        await is_open.wait()

    writes = fenced(Server(), is_trusted=lambda: is_trusted)
    task = asyncio.create_task(writes.write_each(write, range(100)))
    for _ in range(10):
        await asyncio.sleep(0)
    some = len(begun)
    assert 1 < some < 100
    is_trusted = False
    is_open.set()
    async with asyncio.timeout(20):
        await task
    assert len(begun) == some
