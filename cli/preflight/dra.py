"""Findings about other DRA drivers: classes for our resources, slices on our nodes, and claims with devices there."""

from collections.abc import Iterator
from typing import Final

from allocation.names import AGENT_LABEL, AGENT_LABEL_VALUES, HAMI_REGISTER
from cli.installation.rules import Rules
from cli.preflight.cluster_snapshot import ClusterSnapshot
from cli.preflight.findings import Finding

_PAGE: Final = "docs/install.md, 'Beside NVIDIA's DRA driver'"


def evaluate(snapshot: ClusterSnapshot, rules: Rules) -> Iterator[Finding]:
    """Return the findings, which concern only clusters with such a driver."""
    yield from _classes(snapshot, rules)
    nodes = _nodes(snapshot)
    drivers = frozenset(rules.dra.foreign_drivers)
    for each in snapshot.resource_slices:
        spec = each.spec
        node = spec.node_name or spec.pool.name
        is_open = not any(rule.keeps_off(spec.driver, spec.pool.name) for rule in snapshot.device_taint_rules)
        if spec.driver in drivers and spec.devices and node in nodes and is_open:
            yield Finding(
                "blocks",
                (f"node {node}",),
                f"DRA driver {spec.driver} offers devices of the node, so that its cards can be allocated twice",
                rules.method.change(
                    "add the component manifests/dra-guard to your overlay", values="draGuard.enabled=true"
                )
                + f" (Kubernetes 1.37), or keep the driver off the node ({_PAGE})",
            )
    for claim in snapshot.resource_claims:
        for device in claim.devices:
            if device.driver in drivers and device.pool in nodes:
                yield Finding(
                    "notes",
                    (f"ResourceClaim {claim.metadata.namespace}/{claim.metadata.name}",),
                    f"has devices of DRA driver {device.driver} on nodes of Tranche: while it has them, their cards are"
                    " given to no pod, and a device that is not a whole card closes its node",
                )


def _classes(snapshot: ClusterSnapshot, rules: Rules) -> Iterator[Finding]:
    ours = rules.allocation.resources.managed()
    for each in snapshot.device_classes:
        resource = each.spec.extended_resource_name
        if resource not in ours:
            continue
        effect = (
            "kube-scheduler allocates its devices to pods that Tranche gives cards, so no such pod is bound"
            if rules.extender
            else "pods that another scheduler places get cards that Tranche counts as free until then"
        )
        yield Finding(
            "blocks" if rules.extender else "changes",
            (f"DeviceClass {each.metadata.name}",),
            f"satisfies {resource}, too, on Kubernetes 1.36 and later: {effect}",
            f"remove its extendedResourceName, or do not install the class ({_PAGE})",
        )


def _nodes(snapshot: ClusterSnapshot) -> frozenset[str]:
    """Return the nodes whose cards are Tranche's, or are to be: reported, registered, or labelled for an agent."""
    reported = {each.metadata.name for each in snapshot.statuses}
    return frozenset(
        node.metadata.name
        for node in snapshot.nodes
        if node.metadata.name in reported
        or HAMI_REGISTER in node.metadata.annotations
        or node.metadata.labels.get(AGENT_LABEL) in AGENT_LABEL_VALUES
    )
