"""What was read of a cluster, as far as it could be read."""

from collections.abc import Mapping
from typing import Any

import msgspec

from allocation.settings import AllocationSettings
from cluster.gpu_node_status import GpuNodeStatus
from cluster.metadata import ObjectMeta
from cluster.resource_quota import ResourceQuota
from scheduler.heartbeats import Lease
from scheduler.objects import Namespace, Node
from webhook.settings import WebhookSettings


class Version(msgspec.Struct):
    """Of the API server, as `/version` says it; a minor may end in `+`."""

    major: str = ""
    minor: str = ""


class Rule(msgspec.Struct, rename="camel"):
    """What a webhook wants to be asked about."""

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
    """A variable of a policy."""

    name: str = ""
    expression: str = ""


class PolicySpec(msgspec.Struct):
    """Of a policy, what an administrator may have changed."""

    variables: list[Variable] = []


class Policy(msgspec.Struct):
    """A ValidatingAdmissionPolicy."""

    metadata: ObjectMeta
    spec: PolicySpec = msgspec.field(default_factory=PolicySpec)


class Named(msgspec.Struct):
    """An object of which only the name matters."""

    metadata: ObjectMeta


class Unread(msgspec.Struct, frozen=True):
    """What could not be read, and why."""

    what: str
    why: str


class Survey(msgspec.Struct, rename="camel"):
    """The cluster.

    Attributes:
        namespace: the only one that was looked at; empty where all were.
        version: of the API server; None where it did not say.
        now: Unix seconds at which Leases are judged.
        pods: pods that name GPU resources, an allocation or a device plugin; as the API server sent them.
        workloads: manifests, with `apiVersion` and `kind`, whose pods name GPU resources, and DaemonSets and
            Deployments that belong to HAMi.
        definitions: names of CustomResourceDefinitions.
        unread: what is missing in all of this.
    """

    namespace: str = ""
    version: Version | None = None
    now: float = 0.0
    nodes: list[Node] = []
    statuses: list[GpuNodeStatus] = []
    leases: list[Lease] = []
    pods: list[msgspec.Raw] = []
    workloads: list[dict[str, Any]] = []
    namespaces: list[Namespace] = []
    quotas: list[ResourceQuota] = []
    webhooks: list[WebhookConfiguration] = []
    policies: list[Policy] = []
    definitions: list[Named] = []
    unread: list[Unread] = []

    def could_read(self, what: str) -> bool:
        """Whether the objects with this plural were read."""
        return all(gap.what != what for gap in self.unread)


class Rules(msgspec.Struct, frozen=True):
    """What the switch would go by: Tranche's configuration, and which of its modes."""

    allocation: AllocationSettings = AllocationSettings()
    webhook: WebhookSettings = WebhookSettings()
    extender: bool = False


def hards(quotas: list[ResourceQuota]) -> dict[str, dict[str, Mapping[str, str]]]:
    """Answer the `spec.hard` of every quota by namespace and name."""
    found: dict[str, dict[str, Mapping[str, str]]] = {}
    for quota in quotas:
        found.setdefault(quota.metadata.namespace, {})[quota.metadata.name] = quota.spec.hard
    return found
