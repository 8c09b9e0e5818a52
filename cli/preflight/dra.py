"""Findings about dynamic resource allocation: other drivers beside Tranche, and nodes that go to it.

Other drivers have classes for our resources, slices on our nodes, and claims with devices there.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from allocation.names import AGENT_LABEL, AGENT_LABEL_VALUES, ALLOCATOR_LABEL, DRA_DRIVER, DRA_SINCE, HAMI_REGISTER
from cli.installation.rules import Rules
from cli.preflight.cluster_snapshot import ClusterSnapshot
from cli.preflight.findings import Finding

_WANTED: Final = "dra"
_PAGE: Final = "docs/install.md, 'Beside NVIDIA's DRA driver'"


def evaluate(snapshot: ClusterSnapshot, rules: Rules) -> Iterator[Finding]:
    """Return the findings, which concern only clusters with such a driver, or with such nodes."""
    yield from _own_nodes(snapshot, rules)
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


def _own_nodes(snapshot: ClusterSnapshot, rules: Rules) -> Iterator[Finding]:
    """Return the findings about nodes whose cards Kubernetes allocates, or is to allocate."""
    is_installed = any(each.metadata.name == DRA_DRIVER for each in snapshot.device_classes)
    changed = {
        each.metadata.name: each.status.allocator
        for each in snapshot.statuses
        if each.status is not None and each.status.allocator not in (msgspec.UNSET, "ledger")
    }
    version = snapshot.version
    numbers = None if version is None else version.numbers
    if (is_installed or changed) and numbers is not None and numbers < DRA_SINCE:
        needed, found = (".".join(map(str, each)) for each in (DRA_SINCE, numbers))
        yield Finding(
            "blocks",
            ("component manifests/dra",),
            f"needs Kubernetes {needed}, and this is {found}: a kube-scheduler before it tries no other card for a pod"
            " that does not fit the first one",
            rules.method.change("upgrade the cluster, or remove the component", values="dra.enabled=false"),
        )
    for node in snapshot.nodes:
        name = node.metadata.name
        if node.metadata.labels.get(ALLOCATOR_LABEL) == _WANTED and not is_installed:
            yield Finding(
                "changes",
                (f"node {name}",),
                f"its label asks for DRA, and DeviceClass {DRA_DRIVER} does not exist: pods cannot claim its cards",
                rules.method.change("add the component manifests/dra to your overlay", values="dra.enabled=true")
                + f" (Kubernetes {'.'.join(map(str, DRA_SINCE))}), or remove the label (docs/dra.md)",
            )
        if name in changed:
            what = (
                "takes no GPU pods: those that it has are left to end, and then Kubernetes allocates its cards by DRA"
                if changed[name] == "draining"
                else f"its cards are for ResourceClaims of DeviceClass {DRA_DRIVER}: it takes no GPU pods of Tranche"
            )
            yield Finding("notes", (f"node {name}",), what)


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
