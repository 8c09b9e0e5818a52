"""Policies in force, and a tenant with the role `edit` whose requests they judge."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from allocation.wire import environment
from lab import kubectl, manifests
from lab.client import Client, client
from tests.support.refusals import refusal

if TYPE_CHECKING:
    from lab.layout import Layout

IN, OUT, OPERATOR, NAMED = "guards-in", "guards-out", "gpu-operator", "gpu-scheduler"
TENANT = "tenant"
RESOURCES = ("nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores")
CLAIM, RESREQ = "gpu.scheduling/claim", "gpu.scheduling/resreq"
RUNTIME = "asks the container runtime for cards that are not allocated"
KEYS = (
    "nvidia.cdi.k8s.io/container.main",
    "nvidia.cdi.k8s.io",
    "cdi.k8s.io/vendor",
    *environment.fraction_references("main").values(),
    "devices.nri.io/container.main",
    "devices.nri.io",
    "cdi-devices.nri.io/container.main",
    "devices.noderesource.dev/pod",
    "cdi-devices.noderesource.dev/container.main",
    "io.kubernetes.cri-o.Devices",
)
GATES = [{"name": "tests/guards"}]


def pod(limits: dict[str, Any] | None = None, *, node: str = "", **metadata: Any) -> dict[str, Any]:
    """Return a pod with one container for another scheduler."""
    spec: dict[str, Any] = {
        "schedulerName": "batch",
        "containers": [{"name": "main", "image": "none", "resources": {"limits": limits or {}}}],
    }
    if node:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", **metadata}, "spec": spec}


class Guarded:
    """A control plane with our policies in force, and a tenant with the role `edit` in some namespaces."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def api(self, user: str = TENANT) -> Client:
        """Return the API as a user has it; the administrator has no name."""
        return client(self.layout, user=user)

    def refusal(self, manifest: dict[str, Any], *, namespace: str = IN, user: str = TENANT) -> str:
        """Create an object as a dry run; return the reason why it is refused, or an empty string."""
        return refusal(lambda: self.api(user).create(manifest, namespace=namespace, dry_run=True))

    def annotation_refusal(
        self, name: str, key: str, value: str | None, *, namespace: str = IN, user: str = TENANT
    ) -> str:
        """Change an annotation of a pod; return the reason why that is refused, or an empty string."""
        patch = {"metadata": {"annotations": {key: value}}}
        return refusal(lambda: self.api(user).patch("pods", name, patch, namespace=namespace))

    def apply_policies(self, *, component: str = "") -> None:
        """Apply the policies, with or without a component."""
        folder = self.layout.root / f"guards-{component}"
        folder.mkdir(exist_ok=True)
        link = folder / "manifests"
        if not link.exists():
            link.symlink_to(manifests.ROOT)
        components = {"components": [f"manifests/{component}"]} if component else {}
        (folder / "kustomization.yaml").write_text(json.dumps({"resources": ["manifests/base"], **components}))
        built = manifests.read(
            kubectl.run(self.layout, "kustomize", "--load-restrictor=LoadRestrictionsNone", str(folder))
        )
        client(self.layout).apply(*(each for each in built if each["kind"] == "ValidatingAdmissionPolicy"))
