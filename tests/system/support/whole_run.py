"""What holds of a lab's processes whatever tests did with them: read from its logs when it ends."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import yaml

from allocation.names import SYSTEM_NAMESPACE
from lab import manifests
from lab.client import client
from tests.system.support import rights

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout
    from tests.system.support.rights import Request, Right

SECRET = "tranche-webhook-ca"  # noqa: S105 -- the name of an object
PREFIX = f"system:serviceaccount:{SYSTEM_NAMESPACE}:tranche-"
FLEET_AGENT = "system:serviceaccount:tranche-lab:fleet-agent"  # the lab's account with the agent's roles
PROGRAMS = {
    f"{PREFIX}webhook": "tranche-webhook",
    f"{PREFIX}scheduler": "tranche-scheduler",
    f"{PREFIX}agent": "tranche-agent",
    FLEET_AGENT: "tranche-agent",
}
"""The name of the process of each account in the audit log; a test that does a part of its work has its own."""
ACCOUNTS = tuple(PROGRAMS)
_ROLES = (
    "base/rbac/*.yaml",
    "lab/*.yaml",
    "hami-nodes/scheduler.yaml",
    "gpubindings/rbac.yaml",
    "coscheduling/rbac.yaml",
    "device-plugin/agent.yaml",
    "expander/scheduler.yaml",
    "missing-devices/*.yaml",
    "resize/scheduler.yaml",
    "rigid-budgets/*.yaml",
)
_LOGS = frozenset({"webhook.log", "scheduler.log", "agent.log", "audit.log"})


def granted() -> dict[str, frozenset[Right]]:
    """Return the rights that the manifests grant to each account, with those of the optional components."""
    files = sorted(file for pattern in _ROLES for file in manifests.ROOT.glob(pattern))
    objects = [each for file in files for each in manifests.read(file.read_text(encoding="utf-8"))]
    return rights.granted([each for each in objects if each["kind"] != "Kustomization"], ACCOUNTS)


def check(layout: Layout) -> None:
    """Fail if a process sent a request beyond its roles or under another name, or if a log has a key or a token."""
    made = rights.requests(layout.audit_log, ACCOUNTS)
    assert uncovered(made, granted()) == []
    assert misnamed(made) == set()
    assert leaks(layout, [*key_material(layout), *tokens(layout)]) == []


def misnamed(made: set[Request]) -> set[tuple[str, str]]:
    """Return the accounts under which a process sent requests that is not theirs, with the name that it gave."""
    return {(each.user, each.program) for each in made} - {
        *PROGRAMS.items(),
        *((each, "tranche-test") for each in ACCOUNTS),
    }


def uncovered(made: set[Request], by: dict[str, frozenset[Right]]) -> list[Request]:
    """Return the requests that no right covers, or that the API server refused for want of a right.

    An API server that has just started forbids everything until it has read the roles. A request that it forbade then
    may have no successor, so it is enough that a right which covers the request was used with success.
    """
    allowed = [request for request in made if request.decision == "allow"]

    def is_covered(request: Request) -> bool:
        covering = [right for right in by[request.user] if right.covers(request)]
        return bool(covering) and (
            request.decision == "allow"
            or any(right.covers(other) for right in covering for other in allowed if other.user == request.user)
        )

    assert allowed, "the audit log has no request of the processes"
    return [request for request in sorted(made) if not is_covered(request)]


def key_material(layout: Layout) -> Iterator[str]:
    """Yield parts of private keys: the webhook's, as PEM and as encoded in the Secret, and the lab's."""
    encoded = client(layout).get("secret", SECRET, namespace=SYSTEM_NAMESPACE)["data"]["tls.key"]
    yield encoded[40:]
    keys = [base64.b64decode(encoded).decode(), *(path.read_text() for path in layout.pki.rglob("*.key"))]
    for key in keys:
        yield from (line for line in key.splitlines() if not line.startswith("-----") and len(line) > 32)


def tokens(layout: Layout) -> Iterator[str]:
    """Yield the signature of every token that the lab has issued; without it a token is useless."""
    for path in layout.component_kubeconfigs.iterdir():
        user = yaml.safe_load(path.read_text())["users"][0]["user"]
        if "token" in user:
            yield user["token"].rsplit(".", 1)[1]


def leaks(layout: Layout, secrets: list[str]) -> list[str]:
    """Return the logs, of the product, of Kubernetes and the audit log, that contain one of these or a private key."""
    assert len(secrets) > 10
    logs = [path for path in layout.logs.rglob("*") if path.is_file()]
    assert {path.name for path in logs} >= _LOGS
    marks = ["PRIVATE KEY", base64.b64encode(b"PRIVATE KEY").decode()[:12], *secrets]
    return [str(log) for log in logs if any(mark in log.read_text(errors="replace") for mark in marks)]
