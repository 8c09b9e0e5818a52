"""Reading the audit log of a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.system.support import rights

if TYPE_CHECKING:
    from pathlib import Path

ACCOUNT = "system:serviceaccount:tranche-system:tranche-scheduler"


def _event(verb: str, annotations: dict[str, str]) -> str:
    reference = {"resource": "leases", "apiGroup": "coordination.k8s.io", "namespace": "tranche-system", "name": "x"}
    return json.dumps({"user": {"username": ACCOUNT}, "verb": verb, "objectRef": reference, "annotations": annotations})


def test_request_without_a_decision_is_skipped(tmp_path: Path) -> None:
    """An API server that could not reach etcd makes no decision; a forbidden request is still reported."""
    log = tmp_path / "audit.log"
    decision = "authorization.k8s.io/decision"
    events = [_event("get", {decision: "allow"}), _event("update", {}), _event("delete", {decision: "forbid"})]
    log.write_text("\n".join(events) + "\n", encoding="utf-8")
    made = rights.requests(log, [ACCOUNT])
    assert {(request.verb, request.decision) for request in made} == {("get", "allow"), ("delete", "forbid")}
