"""Pods that other components hold back are not bound: by scheduling gates, or in a suspended Job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.system.conftest import Namespace, pod

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
GATE = "tests.tranche.local/quota"


def gated(name: str) -> dict[str, Any]:
    """Return a pod that a queueing system holds back."""
    made = pod(name, gpu=1, gpumem=100)
    made["spec"]["schedulingGates"] = [{"name": GATE}]
    return made


def test_gated_pod_is_bound_when_its_gates_are_gone(tranche: Layout, namespace: Namespace) -> None:
    """Meanwhile later pods are, and it has neither a node nor an allocation."""
    namespace.create(gated("held"))
    namespace.create(pod("later", gpu=1, gpumem=100))
    (placed,) = namespace.placed(1)
    assert placed["metadata"]["name"] == "later"
    held = namespace.pod("held")
    assert "gpu.scheduling/allocation" not in held["metadata"].get("annotations", {})
    assert held["status"]["conditions"][0]["reason"] == "SchedulingGated"
    namespace.patch("pod", "held", {"spec": {"schedulingGates": None}})
    namespace.placed(2)


def test_job_has_pods_when_it_is_resumed_and_its_cards_are_free_when_it_is_suspended(
    tranche: Layout, namespace: Namespace
) -> None:
    """As queueing systems use Jobs: suspended at creation, resumed when it is their turn, suspended to make room."""
    spec = {**pod("unused", gpu=1, gpumem=100)["spec"], "restartPolicy": "Never"}
    template = {"metadata": {"labels": {"app": "queued"}}, "spec": spec}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "queued"}, "spec": {"template": template}}
    job["spec"] |= {"suspend": True, "completions": 2, "parallelism": 2}
    namespace.create(job)

    def is_suspended(jobs: Mapping[str, Any]) -> bool:
        conditions = jobs["queued"].get("status", {}).get("conditions", ())
        return any((each["type"], each["status"]) == ("Suspended", "True") for each in conditions)

    namespace.until(is_suspended, "jobs", what="a suspended Job")
    assert namespace.pods() == []
    namespace.patch("job", "queued", {"spec": {"suspend": False}})
    namespace.placed(2)
    namespace.patch("job", "queued", {"spec": {"suspend": True}})
    namespace.until(lambda pods: not pods, what="the end of the Job's pods")
    namespace.delete("jobs", "queued")
