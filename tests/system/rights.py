"""What our roles grant, and what of it a request in the audit log used."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

_KUBECTL = "kubectl"
_PATCHED_INTO_BEING = 201


class Right(msgspec.Struct, frozen=True, order=True):
    """One verb on one resource, as a rule grants it; empty stands for every namespace and for every name."""

    role: str
    verb: str
    resource: str
    namespace: str = ""
    name: str = ""

    def covers(self, request: Request) -> bool:
        """Whether this right is enough for a request."""
        return (
            (self.verb, self.resource) == (request.verb, request.resource)
            and self.namespace in ("", request.namespace)
            and self.name in ("", request.name)
        )

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.role}: {self.verb} {self.resource}{f'/{self.name}' if self.name else ''}{where}"


class Request(msgspec.Struct, frozen=True, order=True):
    """What one of our processes asked the API server for."""

    user: str
    verb: str
    resource: str
    namespace: str
    name: str
    decision: str


def granted(objects: Sequence[dict[str, Any]], accounts: Iterable[str]) -> dict[str, frozenset[Right]]:
    """Answer the rights of each account, from the roles and role bindings among `objects`."""
    roles = {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each["rules"]
        for each in objects
        if each["kind"] in ("Role", "ClusterRole")
    }
    answer: dict[str, set[Right]] = {account: set() for account in accounts}
    for binding in objects:
        if binding["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        namespace = binding["metadata"].get("namespace", "")
        reference = binding["roleRef"]
        rules = roles[reference["kind"], namespace if reference["kind"] == "Role" else "", reference["name"]]
        for subject in binding["subjects"]:
            account = f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
            if account in answer:
                answer[account] |= set(_rights(rules, role=reference["name"], namespace=namespace))
    return {account: frozenset(rights) for account, rights in answer.items()}


def _rights(rules: list[dict[str, Any]], *, role: str, namespace: str) -> Iterator[Right]:
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", ("",)):
                        yield Right(role, verb, f"{resource}.{group}" if group else resource, namespace, name)


def requests(log: Path, accounts: Iterable[str]) -> set[Request]:
    """Answer what the processes with these accounts asked for, without what a test did with their tokens by kubectl.

    An apply that makes its object is a patch and a create: the API server asks for both rights and notes one request.
    """
    wanted = frozenset(accounts)
    found = set()
    with log.open(encoding="utf-8") as lines:
        for line in lines:
            if not any(account in line for account in wanted):
                continue
            event = json.loads(line)
            if event["user"]["username"] not in wanted or event.get("userAgent", "").startswith(_KUBECTL):
                continue
            reference = event.get("objectRef")
            if reference is None:  # /version and its like, which everybody may read
                continue
            resource = "/".join(part for part in (reference["resource"], reference.get("subresource", "")) if part)
            group = reference.get("apiGroup", "")
            verbs = [event["verb"]]
            if event["verb"] == "patch" and event.get("responseStatus", {}).get("code") == _PATCHED_INTO_BEING:
                verbs.append("create")
            for verb in verbs:
                found.add(
                    Request(
                        user=event["user"]["username"],
                        verb=verb,
                        resource=f"{resource}.{group}" if group else resource,
                        namespace=reference.get("namespace", ""),
                        name=reference.get("name", ""),
                        decision=event.get("annotations", {}).get("authorization.k8s.io/decision", ""),
                    )
                )
    return found
