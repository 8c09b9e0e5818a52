"""The objects that preflight reads from a cluster, and what it could not read."""

from collections.abc import Mapping
from typing import Any

import msgspec

from allocation.claim import ClaimSpec
from cli.liveness.liveness import Liveness
from cluster.dra import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from cluster.gpu_claim import GpuClaim
from cluster.gpu_node_status import GpuNodeStatus
from cluster.lease import Lease
from cluster.metadata import ObjectMeta
from cluster.resource import GPU_CLAIMS
from cluster.resource_quota import ResourceQuota
from cluster.server_version import ServerVersion
from scheduler.node_status import NodeStatus
from scheduler.objects import Namespace, Node


class Rule(msgspec.Struct, rename="camel"):
    """A rule of a webhook: the requests for which the API server calls it."""

    resources: list[str] = []
    operations: list[str] = []


class Webhook(msgspec.Struct, rename="camel"):
    """One webhook of a configuration."""

    name: str = ""
    rules: list[Rule] = []


class WebhookConfiguration(msgspec.Struct):
    """A MutatingWebhookConfiguration."""

    metadata: ObjectMeta
    webhooks: list[Webhook] = []


class Variable(msgspec.Struct):
    """A variable of a ValidatingAdmissionPolicy."""

    name: str = ""
    expression: str = ""


class AdmissionPolicySpec(msgspec.Struct):
    """The part of a ValidatingAdmissionPolicy that an administrator may have changed."""

    variables: list[Variable] = []


class AdmissionPolicy(msgspec.Struct):
    """A ValidatingAdmissionPolicy."""

    metadata: ObjectMeta
    spec: AdmissionPolicySpec = msgspec.field(default_factory=AdmissionPolicySpec)


class RuntimeHandler(msgspec.Struct):
    """A handler of a node's container runtime; the default one has no name."""

    name: str = ""


class GpuNodeState(NodeStatus, rename="camel", gc=False):
    """The status of a node with the handlers that its container runtime reports; older runtimes report none."""

    runtime_handlers: tuple[RuntimeHandler, ...] = ()


class GpuNode(Node, gc=False):
    """A node with the handlers of its container runtime."""

    status: GpuNodeState = msgspec.field(default_factory=GpuNodeState)


class RuntimeScheduling(msgspec.Struct, rename="camel"):
    """The nodes that support a RuntimeClass; the API server adds the selector to every pod of the class."""

    node_selector: dict[str, str] = {}


class RuntimeClass(msgspec.Struct):
    """Which handler of the container runtime starts a pod, and on which nodes."""

    metadata: ObjectMeta
    handler: str = ""
    scheduling: RuntimeScheduling | None = None


class EnvironmentVariable(msgspec.Struct):
    """A variable of a container, with its value as far as the manifest has it."""

    name: str = ""
    value: str = ""


class Container(msgspec.Struct):
    """The image and the environment of a container."""

    image: str = ""
    env: tuple[EnvironmentVariable, ...] = ()


class CdiSettings(msgspec.Struct, rename="camel"):
    """`spec.cdi` of a ClusterPolicy."""

    enabled: bool = False
    nri_plugin_enabled: bool = False


class ToolkitSettings(msgspec.Struct):
    """`spec.toolkit` of a ClusterPolicy."""

    version: str = ""
    env: tuple[EnvironmentVariable, ...] = ()


class ClusterPolicySpec(msgspec.Struct):
    """The parts of a ClusterPolicy that decide how containers get their cards."""

    cdi: CdiSettings = msgspec.field(default_factory=CdiSettings)
    toolkit: ToolkitSettings = msgspec.field(default_factory=ToolkitSettings)


class ClusterPolicy(msgspec.Struct):
    """A ClusterPolicy, the configuration of NVIDIA's GPU Operator."""

    metadata: ObjectMeta
    spec: ClusterPolicySpec = msgspec.field(default_factory=ClusterPolicySpec)


class NamedObject(msgspec.Struct):
    """An object of which only the name is read."""

    metadata: ObjectMeta


class Unread(msgspec.Struct, frozen=True):
    """A kind of object that could not be read.

    Attributes:
        what: its plural.
        why: the reason.
        is_optional: whether the report is complete enough without it.
    """

    what: str
    why: str
    is_optional: bool = False


class ClusterSnapshot(msgspec.Struct, rename="camel"):
    """The objects of a cluster at one moment.

    Attributes:
        namespace: the only namespace whose pods and workloads were read, or empty for all namespaces.
        version: the version of the API server, or None if it could not be read.
        now: the time of the API server in Unix seconds, for the age of Leases.
        pods: pods that mention GPU resources, an allocation or a device plugin, as the API server sent them.
        gpu_claims: GpuClaims of all namespaces, or of `namespace`.
        gpu_bindings: names of GPUBindings.
        workloads: manifests, with `apiVersion` and `kind`, whose pods mention GPU resources, and DaemonSets and
            Deployments that belong to HAMi.
        definitions: names of CustomResourceDefinitions.
        runtime_class: the RuntimeClass that admission writes into GPU pods, if there is one.
        cluster_policies: the configuration of NVIDIA's GPU Operator.
        device_classes, device_taint_rules, resource_slices: what DRA drivers offer, and what keeps pods from it; empty
            before Kubernetes 1.34, and without rules before 1.37.
        resource_claims: who has devices, in all namespaces or in `namespace`.
        unread: the kinds of objects that are missing because they could not be read.
        liveness: which parts of an installation work, or None if they were not checked.
    """

    namespace: str = ""
    version: ServerVersion | None = None
    now: float = 0.0
    nodes: list[GpuNode] = []
    statuses: list[GpuNodeStatus] = []
    leases: list[Lease] = []
    pods: list[msgspec.Raw] = []
    gpu_claims: list[GpuClaim] = []
    gpu_bindings: list[NamedObject] = []
    workloads: list[dict[str, Any]] = []
    namespaces: list[Namespace] = []
    quotas: list[ResourceQuota] = []
    webhooks: list[WebhookConfiguration] = []
    policies: list[AdmissionPolicy] = []
    definitions: list[NamedObject] = []
    runtime_class: RuntimeClass | None = None
    cluster_policies: list[ClusterPolicy] = []
    device_classes: list[DeviceClass] = []
    device_taint_rules: list[DeviceTaintRule] = []
    resource_slices: list[ResourceSlice] = []
    resource_claims: list[ResourceClaim] = []
    unread: list[Unread] = []
    liveness: Liveness | None = None

    def could_read(self, what: str) -> bool:
        """Whether the objects of the kind with this plural were read."""
        return all(gap.what != what for gap in self.unread)

    def claim_specs(self) -> dict[tuple[str, str], ClaimSpec] | None:
        """Return the `spec` of every GpuClaim, by namespace and name, or None if they could not be read."""
        if not self.could_read(GPU_CLAIMS.plural):
            return None
        return {(each.metadata.namespace, each.metadata.name): each.spec for each in self.gpu_claims}


def hards(quotas: list[ResourceQuota]) -> dict[str, dict[str, Mapping[str, str]]]:
    """Return the `spec.hard` of every quota, by namespace and name."""
    by_namespace: dict[str, dict[str, Mapping[str, str]]] = {}
    for quota in quotas:
        by_namespace.setdefault(quota.metadata.namespace, {})[quota.metadata.name] = quota.spec.hard
    return by_namespace
