"""What the API server noted of every request."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lab.layout import Layout

WRITES = frozenset({"create", "update", "patch", "delete"})
SCHEDULER = "system:serviceaccount:tranche-system:tranche-scheduler"


def writes(layout: Layout, *, namespace: str = "", user: str = "") -> list[dict[str, Any]]:
    """Answer the successful writes in a namespace, by a user, as audit events in the order of the log."""
    return [each for each in attempts(layout, namespace=namespace, user=user) if code(each) < 300]


def code(event: dict[str, Any]) -> int:
    """Answer the HTTP status that the API server gave, or would have given had its client still been there."""
    return int(event.get("responseStatus", {}).get("code", 0))


def attempts(layout: Layout, *, namespace: str = "", user: str = "") -> list[dict[str, Any]]:
    """Answer all writes, refused and interrupted ones included."""
    found = []
    with layout.audit_log.open(encoding="utf-8") as lines:
        for line in lines:
            if not line.endswith("\n"):
                break  # the API server is about to write the rest of it
            event = json.loads(line)
            if (
                event["verb"] in WRITES
                and (not namespace or event.get("objectRef", {}).get("namespace") == namespace)
                and (not user or event["user"]["username"] == user)
            ):
                found.append(event)
    return found


def what(event: dict[str, Any]) -> str:
    """Answer what a write went to: `pods/binding`, `events`."""
    reference = event["objectRef"]
    return "/".join(part for part in (reference["resource"], reference.get("subresource", "")) if part)


def last(layout: Layout, *, namespace: str, name: str, target: str, verb: str = "create") -> dict[str, Any] | None:
    """Answer the last such write to an object, None where there is none."""
    found = [
        each
        for each in writes(layout, namespace=namespace)
        if each["verb"] == verb and each["objectRef"].get("name") == name and what(each) == target
    ]
    return found[-1] if found else None


def at(event: dict[str, Any]) -> datetime:
    """Answer when the API server had carried out a write."""
    return datetime.fromisoformat(event["stageTimestamp"])
