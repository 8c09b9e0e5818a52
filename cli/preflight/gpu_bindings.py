"""Findings about GPUBindings, by which beclab's fork of HAMi gives cards to applications."""

from collections.abc import Iterator

from cli.installation.rules import Rules
from cli.preflight.cluster_snapshot import ClusterSnapshot
from cli.preflight.findings import Finding


def evaluate(snapshot: ClusterSnapshot, rules: Rules) -> Iterator[Finding]:
    """Return a finding if there are bindings, and the configuration does not apply them."""
    if snapshot.gpu_bindings and rules.allocation.bindings.mode == "off":
        yield Finding(
            "blocks",
            tuple(f"GPUBinding {each.metadata.name}" for each in snapshot.gpu_bindings),
            "gives its card to one application, but allocation.bindings.mode is off: any pod can get the card",
            rules.method.change(
                "add the components manifests/gpubindings and manifests/gpubindings/required to your overlay",
                values="bindings.mode=required",
            )
            + "; or name a configuration with that mode by --config, or delete the binding (docs/gpubindings.md)",
        )
