"""The GpuQueue kind on a real API server: defaults, values, rules, columns, its status, and who may write it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import msgspec
import pytest

from allocation.fairness.queue_spec import QueueSpec, Reach
from allocation.fairness.reclaim import Reclaim
from cluster.gpu_queue import GpuQueue
from lab import manifests, wait
from lab.connection import RefusedError
from tests.cluster.support.stored import Stored
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver


def queue(name: str = "team-a", **spec: Any) -> dict[str, Any]:
    """Return the manifest of a GpuQueue."""
    return {"apiVersion": "gpu.scheduling/v1", "kind": "GpuQueue", "metadata": {"name": name}, "spec": spec}


@pytest.fixture(scope="module")
def queues(control_plane: Layout) -> Iterator[Stored]:
    """A cluster that knows the kind, and has no queue afterwards."""
    manifests.install(control_plane)
    stored = Stored(control_plane, "gpuqueues.gpu.scheduling")
    yield stored
    for each in stored.api.list("gpuqueues"):
        stored.patch(each["metadata"]["name"], {"spec": {"suspended": True}})
    stored.api.delete_all("gpuqueues")


def test_defaults_are_those_of_the_product(queues: Stored) -> None:
    """What the API server adds to an empty spec is what our code assumes of one."""
    stored = queues.would_be(queue())
    assert stored["spec"] == {
        "weight": 1,
        "priority": 0,
        "minInstances": 0,
        "batchSize": 1,
        "queueingStrategy": "BestEffortFIFO",
        "preemption": {"reach": "Cluster", "minRuntimeSeconds": 0},
        "reclaim": "Never",
        "reclaimAfterSeconds": 300,
        "suspended": False,
    }
    assert msgspec.convert(stored, GpuQueue).spec == QueueSpec()


def test_every_field_that_our_code_reads_is_stored(queues: Stored) -> None:
    """The names of the fields are the same in the schema and in the code."""
    spec = {
        "weight": 4,
        "priority": 10,
        "namespaceSelector": {"matchLabels": {"team": "a"}},
        "limits": {"nvidia.com/gpu": 8, "nvidia.com/gpumem": 320000, "nvidia.com/gpucores": 0},
        "minInstances": 2,
        "maxInstances": 8,
        "batchSize": 2,
        "resreq": "cpu=4, Mem = 1.5GiB,gpu=2",
        "queueingStrategy": "StrictFIFO",
        "patienceSeconds": 0,
        "preemption": {"reach": "Queue", "minRuntimeSeconds": 604800},
        "reclaim": "Always",
        "reclaimAfterSeconds": 604800,
        "suspended": True,
    }
    stored = queues.would_be(queue(**spec))
    assert stored["spec"] == spec
    assert msgspec.convert(stored, GpuQueue).spec == msgspec.convert(spec, QueueSpec)
    assert set(spec) == {field.encode_name for field in msgspec.structs.fields(QueueSpec)}


@pytest.mark.parametrize("reach", get_args(Reach))
def test_every_reach_of_preemption_is_stored(queues: Stored, reach: str) -> None:
    """A queue that sets only the reach gets the default run time."""
    stored = queues.would_be(queue(preemption={"reach": reach}))
    assert stored["spec"]["preemption"] == {"reach": reach, "minRuntimeSeconds": 0}
    assert msgspec.convert(stored, GpuQueue).spec.preemption.reach == reach


@pytest.mark.parametrize("reclaim", get_args(Reclaim))
def test_every_way_to_reclaim_is_stored(queues: Stored, reclaim: str) -> None:
    """The values are the same in the schema and in the code."""
    stored = queues.would_be(queue(reclaim=reclaim))
    assert msgspec.convert(stored, GpuQueue).spec.reclaim == reclaim


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"weight": 0}, "spec.weight: Invalid value"),
        ({"weight": 10001}, "spec.weight: Invalid value"),
        ({"priority": -1}, "spec.priority: Invalid value"),
        ({"limits": {"nvidia.com/gpu": -1}}, "should be greater than or equal to 0"),
        ({"limits": {"nvidia.com/gpu": "8"}}, "Invalid value"),
        ({"batchSize": 0}, "spec.batchSize: Invalid value"),
        ({"batchSize": 4, "minInstances": 6}, "minInstances must be a multiple of batchSize"),
        ({"batchSize": 4, "maxInstances": 6}, "maxInstances must be a multiple of batchSize"),
        ({"minInstances": 6, "maxInstances": 4}, "maxInstances must not be below minInstances"),
        ({"queueingStrategy": "FIFO"}, 'Unsupported value: "FIFO"'),
        ({"patienceSeconds": -1}, "spec.patienceSeconds: Invalid value"),
        ({"preemption": {"reach": "Everywhere"}}, 'Unsupported value: "Everywhere"'),
        ({"preemption": {"minRuntimeSeconds": -1}}, "spec.preemption.minRuntimeSeconds: Invalid value"),
        ({"preemption": {"minRuntimeSeconds": 604801}}, "spec.preemption.minRuntimeSeconds: Invalid value"),
        ({"reclaim": "Cohort"}, 'Unsupported value: "Cohort"'),
        ({"reclaimAfterSeconds": 0}, "spec.reclaimAfterSeconds: Invalid value"),
        ({"reclaimAfterSeconds": 604801}, "spec.reclaimAfterSeconds: Invalid value"),
        ({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Gt"}]}}, 'Unsupported value: "Gt"'),
        ({"guaranteed": {"nvidia.com/gpu": 1}}, 'unknown field "spec.guaranteed"'),
    ],
)
def test_invalid_specs_are_refused(queues: Stored, spec: dict[str, Any], words: str) -> None:
    """The API server itself refuses them, in words."""
    assert words in queues.refusal(queue(**spec))


@pytest.mark.parametrize(
    "resreq", ["cpu=4", "cpu=4,mem=16g,gpu=2", " cpu = 4 , mem = 16g ", "mem=1024", "memory=1.5g", "MEM=1KiB", "gpu=0"]
)
def test_requirements_are_accepted(queues: Stored, resreq: str) -> None:
    """All forms that the parser reads."""
    assert queues.would_be(queue(resreq=resreq))["spec"]["resreq"] == resreq


@pytest.mark.parametrize(
    "resreq", ["", "cpu=1,", "cpu", "cpu=1=2", "cpu=", "foo=1", "cpu=x", "mem=1z", "gpu=-1", "cpu=1.5"]
)
def test_malformed_requirements_are_refused(queues: Stored, resreq: str) -> None:
    """The message says what is expected."""
    assert "expected cpu=N,mem=SIZE,gpu=N with a SIZE such as 16g" in queues.refusal(queue(resreq=resreq))


@pytest.mark.parametrize("resreq", ["cpu=1,cpu=2", "mem=1g,memory=2g", "gpu=1, GPU=1"])
def test_a_resource_is_required_once(queues: Stored, resreq: str) -> None:
    """Nobody has to know which of two amounts would count."""
    assert "each of cpu, mem and gpu can be set only once" in queues.refusal(queue(resreq=resreq))


def test_limits_that_limit_nothing_are_warned_of(queues: Stored) -> None:
    """As soon as the API server has compiled the policy."""
    words = "limits: nvidia.com/gpus has no effect: did you mean nvidia.com/gpu?"
    made = queue(limits={"nvidia.com/gpus": 4})
    wait.until(lambda: words in queues.warning(made), what="a warning", timeout_s=PATIENCE_S)
    assert queues.warning(queue(limits={"nvidia.com/gpu": 4})) == ""


def test_columns_and_status(queues: Stored) -> None:
    """`kubectl get gq` shows what counts; the status is a subresource, which a change of the spec leaves alone."""
    queues.create(queue("shown", weight=3, priority=2, namespaceSelector={}))
    status = {"share": "0.2500", "entitlement": "0.5000", "running": 4, "waiting": 7, "dominantResource": "cpu"}
    status["namespaces"] = 2
    queues.patch("shown", {"spec": {"weight": 5}, "status": status}, subresource="status")
    head, row = queues.listing("shown", "-o", "wide", kind="gq")
    assert head[:10] == [
        "NAME",
        "WEIGHT",
        "PRIORITY",
        "SHARE",
        "ENTITLED",
        "RUNNING",
        "WAITING",
        "DOMINANT",
        "SUSPENDED",
        "NAMESPACES",
    ]
    assert row[:10] == ["shown", "3", "2", "0.2500", "0.5000", "4", "7", "cpu", "false", "2"]


@pytest.mark.parametrize("use", [{"namespaces": 3}, {"running": 1}, {"waiting": 2}], ids=str)
def test_a_queue_in_use_is_deleted_only_if_it_is_suspended(queues: Stored, use: dict[str, int]) -> None:
    """The refusal says who uses it; a scheduler need not run to get out of it."""
    queues.create(queue("used"))
    queues.patch("used", {"status": use}, subresource="status")
    what = f"namespaces that name it: {use.get('namespaces', 0)}, its pods with cards: {use.get('running', 0)},"
    with pytest.raises(
        RefusedError, match=f"GpuQueue used is in use .{what} its pods that wait: {use.get('waiting', 0)}"
    ):
        queues.api.delete("gpuqueue", "used")
    queues.patch("used", {"spec": {"suspended": True}})
    queues.api.delete("gpuqueue", "used")


def test_a_queue_that_nobody_uses_is_deleted(queues: Stored) -> None:
    """Whether or not its status was written."""
    for status in ({}, {"namespaces": 0, "running": 0, "waiting": 0, "share": "0.0000"}):
        queues.create(queue("unused"))
        queues.patch("unused", {"status": status}, subresource="status")
        queues.api.delete("gpuqueue", "unused")


@pytest.mark.parametrize("role", ["edit", "admin", "tranche-viewer"])
def test_only_administrators_of_the_cluster_write_queues(queues: Stored, role: str) -> None:
    """Not even who administers a namespace; viewers read them."""
    user = f"queue-{role}"
    queues.grant(user, role)
    try:
        assert not [verb for verb in ("create", "update", "patch", "delete") if queues.may(user, verb)]
    finally:
        queues.api.delete("clusterrolebinding", user)
