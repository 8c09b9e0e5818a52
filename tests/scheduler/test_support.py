"""What this loop does not evaluate it holds; what the API adds to a pod must be sorted in."""

from typing import Any

import msgspec
import pytest
from kubernetes.client.models import V1PodSpec, V1Volume

from scheduler.cycle import Chosen, Waiting, decide
from scheduler.objects import PodSpec, Volume
from scheduler.support import EVALUATED, HELD
from tests.scheduler.builders import pod, state

INDIFFERENT = {
    "activeDeadlineSeconds",
    "automountServiceAccountToken",
    "dnsConfig",
    "dnsPolicy",
    "enableServiceLinks",
    "ephemeralContainers",  # they have no resources and come when a pod runs
    "evictionResponders",
    "hostAliases",
    "hostIPC",
    "hostNetwork",  # the API server gives such a pod its host ports
    "hostPID",
    "hostUsers",
    "hostname",
    "hostnameOverride",
    "imagePullSecrets",
    "os",  # the kubelet judges it; kube-scheduler does not
    "preemptionPolicy",
    "priorityClassName",  # admission has written it into priority
    "readinessGates",
    "restartPolicy",
    "runtimeClassName",  # admission has written it into nodeSelector, tolerations and overhead
    "securityContext",
    "serviceAccount",
    "serviceAccountName",
    "setHostnameAsFQDN",
    "shareProcessNamespace",
    "subdomain",
    "terminationGracePeriodSeconds",
}
"""Fields that decide nothing about where a pod may run."""


def test_every_field_of_the_api_is_sorted_in() -> None:
    """A field that a later Kubernetes brings must not be overlooked."""
    assert set(V1PodSpec.attribute_map.values()) - INDIFFERENT - EVALUATED - HELD == set()


def test_what_is_read_is_what_is_listed() -> None:
    """No more and no less than the list is decoded."""
    assert {field.encode_name for field in msgspec.structs.fields(PodSpec)} == EVALUATED | HELD


def test_the_volumes_that_are_taken_exist() -> None:
    """Each is a source that the API knows."""
    known = {field.encode_name for field in msgspec.structs.fields(Volume)}
    assert known <= set(V1Volume.attribute_map.values())


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"resourceClaims": [{"name": "gpu"}]}, "spec.resourceClaims"),
        ({"schedulingGroup": {"podGroupName": "g"}}, "spec.schedulingGroup"),
        ({"workloadRef": {"name": "g"}}, "spec.workloadRef"),
        *(
            ({"volumes": [{"name": "config", "configMap": {}}, {"name": "data", source: {}}]}, "spec.volumes[data]")
            for source in sorted(
                set(V1Volume.attribute_map.values()) - {each.encode_name for each in msgspec.structs.fields(Volume)}
            )
        ),
    ],
)
def test_what_is_not_evaluated_holds_the_pod(spec: dict[str, Any], field: str) -> None:
    """It is never placed wrongly; the reason names the field and the way out."""
    waiting = decide(state("n1"), pod("a", memory=1, **spec))
    assert isinstance(waiting, Waiting)
    assert field in waiting.note
    assert "extender" in waiting.note


@pytest.mark.parametrize(
    "source",
    [
        "configMap",
        "downwardAPI",
        "emptyDir",
        "gitRepo",
        "hostPath",
        "image",
        "nfs",
        "projected",
        "secret",
    ],
)
def test_volumes_that_every_node_has_hold_nobody(source: str) -> None:
    """They tie a pod to no node, and nodes have no limit of them."""
    assert isinstance(decide(state("n1"), pod("a", memory=1, volumes=[{"name": "v", source: {"x": 1}}])), Chosen)
