"""A policy of another tool, of which nothing here knows, that refuses requests about the pods of a namespace."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal

from lab import wait
from lab.client import client
from tests.support.patience import PATIENCE_S
from tests.support.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

Refused = Literal["binding", "eviction", "deletion"]

MESSAGE: Final = "another tool refuses this"
"""What the API server says of a refused request."""
_NAME: Final = "foreign-policy"
_BODIES: Final = {
    "binding": {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "none"}},
    "eviction": {"apiVersion": "policy/v1", "kind": "Eviction"},
}


@contextmanager
def refusing(layout: Layout, what: Refused, *, namespace: str, name: str = "") -> Iterator[None]:
    """Refuse each Binding, Eviction or deletion of the pods of a namespace, or of the one pod of this name."""
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": _NAME}}
    operation, resource = ("DELETE", "pods") if what == "deletion" else ("CREATE", f"pods/{what}")
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": [resource]}
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    spec = {
        "matchConstraints": {"resourceRules": [rule], "namespaceSelector": selector},
        "validations": [{"expression": f"request.name != '{name}'" if name else "false", "message": MESSAGE}],
    }
    bound = {"policyName": _NAME, "validationActions": ["Deny"]}
    client(layout).apply(
        {**head, "kind": "ValidatingAdmissionPolicy", "spec": spec},
        {**head, "kind": "ValidatingAdmissionPolicyBinding", "spec": bound},
    )
    try:
        wait.until(
            lambda: MESSAGE in _refusal(layout, what, namespace, name or "probe"),
            what="the policy in force",
            timeout_s=PATIENCE_S,
        )
        yield
    finally:
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            client(layout).delete(kind, _NAME)


def _refusal(layout: Layout, what: Refused, namespace: str, name: str) -> str:
    """Return why a request would be refused; a Binding is refused also if no pod has this name."""
    api = client(layout)
    if what == "deletion":
        return refusal(lambda: api.request("DELETE", api.path("pods", name, namespace=namespace), dryRun="All"))
    path = api.path("pods", name, namespace=namespace, subresource=what)
    body = {**_BODIES[what], "metadata": {"name": name, "namespace": namespace}}
    return refusal(lambda: api.request("POST", path, body=body, dryRun="All"))
