"""Pods with fields that the loop does not evaluate are held; every field of the API is classified."""

from typing import Any

import msgspec
import pytest
from kubernetes.client.models import V1PodSpec, V1Volume

from allocation.steps import finish
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.filters.unsupported_fields import SUPPORTED, UNSUPPORTED
from scheduler.pod_spec.spec import PodSpec
from scheduler.pod_spec.volumes import Volume
from tests.scheduler.support.builders import pod, state
from tests.scheduler.support.scheduling import schedule

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
"""Fields that do not affect which nodes a pod may run on."""

INDIFFERENT_SOURCES = {
    "azureFile",  # its in-tree plugin needs no attachment
    "cephfs",
    "configMap",
    "csi",  # the volumes of inline drivers are not attached
    "downwardAPI",
    "emptyDir",
    "fc",
    "flexVolume",
    "flocker",
    "gitRepo",
    "glusterfs",
    "hostPath",
    "image",
    "nfs",
    "photonPersistentDisk",
    "projected",
    "quobyte",
    "scaleIO",
    "secret",
    "storageos",
    "vsphereVolume",  # kube-scheduler does not count it
}
"""Sources of volumes that kube-scheduler, too, takes for available on every node, in any number."""


def test_every_field_of_the_api_is_classified() -> None:
    """A field of a later Kubernetes must not be overlooked."""
    assert set(V1PodSpec.attribute_map.values()) - INDIFFERENT - SUPPORTED - UNSUPPORTED == set()


def test_the_decoded_fields_are_the_listed_ones() -> None:
    """No more and no less than the lists is decoded."""
    own = {"excess"}
    assert {field.encode_name for field in msgspec.structs.fields(PodSpec)} - own == SUPPORTED | UNSUPPORTED


def test_every_volume_source_of_the_api_is_classified() -> None:
    """A source of a later Kubernetes must not be overlooked: each restricts the nodes of a pod, or no node lacks it."""
    decoded = {field.encode_name for field in msgspec.structs.fields(Volume)}
    assert set(V1Volume.attribute_map.values()) == decoded | INDIFFERENT_SOURCES
    assert not decoded & INDIFFERENT_SOURCES


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"resourceClaims": [{"name": "gpu"}]}, "spec.resourceClaims"),
        ({"schedulingGroup": {"podGroupName": "g"}}, "spec.schedulingGroup"),
        ({"workloadRef": {"name": "g"}}, "spec.workloadRef"),
    ],
)
def test_an_unsupported_field_holds_the_pod(spec: dict[str, Any], field: str) -> None:
    """It is never misplaced; the message names the field and the remedy."""
    waiting = finish(schedule(state("n1"), pod("a", memory=1, **spec)))
    assert isinstance(waiting, Unschedulable)
    assert field in waiting.note
    assert "extender" in waiting.note


@pytest.mark.parametrize("source", sorted(INDIFFERENT_SOURCES))
def test_volumes_that_every_node_has_restrict_no_pod(source: str) -> None:
    """They are not even kept, so that a pod with them is scheduled like one without."""
    waiting = pod("a", memory=1, volumes=[{"name": "v", source: {"x": 1}}])
    assert not waiting.spec.volumes
    assert isinstance(finish(schedule(state("n1"), waiting)), Scheduled)
