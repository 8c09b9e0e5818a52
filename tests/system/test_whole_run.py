"""What is checked when a lab ends finds what is wrong in its logs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lab.layout import Layout
from tests.system.support import rights, whole_run

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


def _request(resource: str, decision: str) -> rights.Request:
    return rights.Request(ACCOUNT, "get", resource, "tranche-system", "x", decision)


def test_request_beyond_the_roles_is_found() -> None:
    """A request that no rule covers, and one that was refused and never allowed; not one that was allowed later."""
    by = {ACCOUNT: frozenset({rights.Right("scheduler", "get", each) for each in ("leases", "nodes")})}
    late, refused, beyond = _request("leases", "forbid"), _request("nodes", "forbid"), _request("pods", "allow")
    made = {late, _request("leases", "allow"), refused, beyond}
    assert whole_run.uncovered(made, by) == [refused, beyond]


def test_process_under_the_name_of_another_is_found() -> None:
    """A request of the scheduler's account by the webhook, or by a process without a name."""
    made = {
        rights.Request(ACCOUNT, "get", "leases", "tranche-system", "x", "allow", program)
        for program in ("tranche-scheduler", "tranche-test", "tranche-webhook", "")
    }
    assert whole_run.misnamed(made) == {(ACCOUNT, "tranche-webhook"), (ACCOUNT, "")}


@pytest.mark.parametrize("found", ["-----BEGIN PRIVATE KEY-----", "UFJJVkFURSBL", "secret-07"])
def test_log_with_a_secret_is_found(tmp_path: Path, found: str) -> None:
    """A private key as PEM and in base64, and any of the secrets of the lab."""
    layout, secrets = Layout(root=tmp_path), [f"secret-{number:02}" for number in range(11)]
    layout.logs.mkdir(parents=True)
    for name in ("webhook", "scheduler", "agent", "audit"):
        (layout.logs / f"{name}.log").write_text("nothing secret")
    assert whole_run.leaks(layout, secrets) == []
    (layout.logs / "agent.log").write_text(f"an error: {found}")
    assert whole_run.leaks(layout, secrets) == [str(layout.logs / "agent.log")]
