"""What the roles of an API server permit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.client import Client


def may(api: Client, verb: str, resource: str, *, namespace: str = "", name: str = "") -> bool:
    """Return whether an identity may do this with a resource: `pods`, `pods/binding`, `gpuqueues.gpu.scheduling`.

    Args:
        api: the API server, for the identity.
        verb: the verb of the role.
        resource: its plural, then the subresource if any, then the group if any: `gpuqueues/status.gpu.scheduling`.
        namespace: where; empty for all namespaces.
        name: the only object in question, if there is one.
    """
    path, _, group = resource.partition(".")
    plural, _, subresource = path.partition("/")
    asked = {"verb": verb, "group": group, "resource": plural, "subresource": subresource}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "metadata": {},
        "spec": {"resourceAttributes": {**asked, "namespace": namespace, "name": name}},
    }
    (answer,) = api.create(review)
    return bool(answer["status"]["allowed"])
