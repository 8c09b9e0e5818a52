"""The rights that the roles grant, and the requests in the audit log that use them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from lab.connection import USER_AGENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

TESTS = ("kubectl", USER_AGENT)  # the user agents of requests that tests made as one of these accounts
_CREATED_BY_PATCH = 201


class Right(msgspec.Struct, frozen=True, order=True):
    """One verb on one resource, as a rule grants it; an empty namespace or name means all of them."""

    role: str
    verb: str
    resource: str
    namespace: str = ""
    name: str = ""

    def covers(self, request: Request) -> bool:
        """Return whether this right is sufficient for a request."""
        return (
            (self.verb, self.resource) == (request.verb, request.resource)
            and self.namespace in ("", request.namespace)
            and self.name in ("", request.name)
        )

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.role}: {self.verb} {self.resource}{f'/{self.name}' if self.name else ''}{where}"


class Request(msgspec.Struct, frozen=True, order=True):
    """A request of one of the product's processes to the API server."""

    user: str
    verb: str
    resource: str
    namespace: str
    name: str
    decision: str
    program: str = ""


def granted(objects: Sequence[dict[str, Any]], accounts: Iterable[str]) -> dict[str, frozenset[Right]]:
    """Return the rights of each account, from the roles and role bindings among `objects`."""
    roles = {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each["rules"]
        for each in objects
        if each["kind"] in ("Role", "ClusterRole")
    }
    rights: dict[str, set[Right]] = {account: set() for account in accounts}
    for binding in objects:
        if binding["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        namespace = binding["metadata"].get("namespace", "")
        reference = binding["roleRef"]
        rules = roles[reference["kind"], namespace if reference["kind"] == "Role" else "", reference["name"]]
        for subject in binding["subjects"]:
            if subject["kind"] != "ServiceAccount":
                continue
            account = f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
            if account in rights:
                rights[account] |= set(_rights(rules, role=reference["name"], namespace=namespace))
    return {account: frozenset(own) for account, own in rights.items()}


def _rights(rules: list[dict[str, Any]], *, role: str, namespace: str) -> Iterator[Right]:
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", ("",)):
                        yield Right(role, verb, f"{resource}.{group}" if group else resource, namespace, name)


def requests(log: Path, accounts: Iterable[str], *, since: int = 0) -> set[Request]:
    """Return the requests of the processes with these accounts, without those that tests made.

    An apply that creates its object needs the rights patch and create, but the API server logs one request. A request
    whose client disconnected while the API server had it in a queue (etcd stopped, API server paused) was never
    authorized: its event has no decision, so it is skipped. `since` is the size of the log at which to begin.
    """
    wanted = frozenset(accounts)
    made = set()
    with log.open(encoding="utf-8") as lines:
        lines.seek(since)
        for line in lines:
            if not any(account in line for account in wanted):
                continue
            event = json.loads(line)
            if event["user"]["username"] not in wanted or event.get("userAgent", "").startswith(TESTS):
                continue
            reference = event.get("objectRef")
            if reference is None:  # /version and similar paths, which all users may read
                continue
            decision = event.get("annotations", {}).get("authorization.k8s.io/decision")
            if decision is None:
                continue
            resource = "/".join(part for part in (reference["resource"], reference.get("subresource", "")) if part)
            group = reference.get("apiGroup", "")
            verbs = [event["verb"]]
            if event["verb"] == "patch" and event.get("responseStatus", {}).get("code") == _CREATED_BY_PATCH:
                verbs.append("create")
            for verb in verbs:
                made.add(
                    Request(
                        user=event["user"]["username"],
                        verb=verb,
                        resource=f"{resource}.{group}" if group else resource,
                        namespace=reference.get("namespace", ""),
                        name=reference.get("name", ""),
                        decision=decision,
                        program=event.get("userAgent", "").partition("/")[0],
                    )
                )
    return made
