"""The audit log of the API server."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lab.layout import Layout

WRITES = frozenset({"create", "update", "patch", "delete"})
SCHEDULER = "system:serviceaccount:tranche-system:tranche-scheduler"


def writes(layout: Layout, *, namespace: str = "", user: str = "") -> list[dict[str, Any]]:
    """Return the successful writes in a namespace, by a user, as audit events in the order of the log."""
    return [each for each in attempts(layout, namespace=namespace, user=user) if code(each) < 300]


def code(event: dict[str, Any]) -> int:
    """Return the HTTP status of the response, even if its client had already disconnected."""
    return int(event.get("responseStatus", {}).get("code", 0))


def attempts(layout: Layout, *, namespace: str = "", user: str = "") -> list[dict[str, Any]]:
    """Return all writes, including rejected and interrupted ones; dry runs write nothing."""
    events = []
    parts = [f'"{each}"' for each in (namespace, user) if each]  # a line without them is not worth decoding
    with layout.audit_log.open(encoding="utf-8") as lines:
        for line in lines:
            if not line.endswith("\n"):
                break  # the API server has not written the rest of the line yet
            if not all(part in line for part in parts):
                continue
            event = json.loads(line)
            if (
                event["verb"] in WRITES
                and "dryRun=" not in event["requestURI"]
                and (not namespace or event.get("objectRef", {}).get("namespace") == namespace)
                and (not user or event["user"]["username"] == user)
            ):
                events.append(event)
    return events


def what(event: dict[str, Any]) -> str:
    """Return the resource that a write changed, such as `pods/binding` or `events`."""
    reference = event["objectRef"]
    return "/".join(part for part in (reference["resource"], reference.get("subresource", "")) if part)


def last(layout: Layout, *, namespace: str, name: str, target: str, verb: str = "create") -> dict[str, Any] | None:
    """Return the last such write to an object, or None."""
    matching = [
        each
        for each in writes(layout, namespace=namespace)
        if each["verb"] == verb and each["objectRef"].get("name") == name and what(each) == target
    ]
    return matching[-1] if matching else None


def at(event: dict[str, Any]) -> datetime:
    """Return the time at which the API server completed a write."""
    return datetime.fromisoformat(event["stageTimestamp"])
