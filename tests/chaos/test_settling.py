"""The end of a run: the scheduler's ledger against the books, and the API server's audit log."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING

from chaos import audit
from chaos.settling import differences, found_by_leaders
from chaos.share import Use
from chaos.violation import Kind
from scheduler.state import ledger_comparer

if TYPE_CHECKING:
    from pathlib import Path


def test_ledger_that_is_off_by_one_is_reported() -> None:
    """A ledger without a card is reported, too, and so is a ledger that no scheduler serves."""
    counted = {"a": Use(1000, 100, 1), "b": Use()}
    assert differences(counted, dict(counted)) == []
    (wrong,) = differences(counted, {**counted, "a": Use(1000, 100, 2)})
    assert (wrong.kind, wrong.subject) == (Kind.LEDGER, "a")
    assert len(differences(counted, {"a": Use(1000, 100, 1)})) == 1
    assert len(differences(counted, {})) == 2


def event(
    name: str, *, code: int = 201, namespace: str = "chaos", subresource: str = "binding", query: str = "timeout=2s"
) -> str:
    """Return a line of the audit log."""
    reference = {"resource": "pods", "namespace": namespace, "name": name, "subresource": subresource}
    uri = f"/api/v1/namespaces/{namespace}/pods/{name}/{subresource}?{query}"
    content = {"verb": "create", "objectRef": reference, "requestURI": uri, "responseStatus": {"code": code}}
    return json.dumps(content, separators=(",", ":")) + "\n"


def test_two_accepted_bindings_of_a_pod_are_found(tmp_path: Path) -> None:
    """Rotated logs are read, too; rejected Bindings, dry runs and those of other namespaces are not counted."""
    (tmp_path / "audit-2026.log").write_text(event("twice") + event("once"))
    log = tmp_path / "audit.log"
    log.write_text(
        event("twice")
        + event("once", code=409)
        + event("once", namespace="other")
        + event("once", subresource="eviction")
        + event("once", query="dryRun=All&timeout=2s")
        + event("half")[:-20]
    )
    assert audit.bound_twice(log, namespace="chaos", since=0) == ["twice"]


def test_what_the_log_had_before_does_not_count(tmp_path: Path) -> None:
    """The cluster may have served others, whose pods had the same names."""
    older, log = tmp_path / "audit-2026.log", tmp_path / "audit.log"
    older.write_text(event("of-others") + event("of-others"))
    log.write_text(event("ours"))
    since = audit.size(log)
    log.write_text(log.read_text() + event("ours") + event("of-others") + event("twice") * 2)
    assert audit.bound_twice(log, namespace="chaos", since=since) == ["twice"]
    assert audit.bound_twice(log, namespace="chaos", since=since - 1) == ["twice"]
    older.write_text(event("of-others"))
    assert audit.bound_twice(log, namespace="chaos", since=0) == ["of-others", "ours", "twice"]


def test_difference_that_a_leader_found_itself_is_a_violation(tmp_path: Path) -> None:
    """A new term repairs it, so that nothing is left at the end; the texts are those of the scheduler's log."""
    logs = [tmp_path / name for name in ("scheduler-0.log", "scheduler-1.log")]
    for log in logs:
        log.write_text("level=info msg=started\n")
    assert found_by_leaders(logs) == []
    with logs[1].open("a") as written:
        written.write('level=error msg="the ledger differs from a recount: quota: quota team: the pods hold 1"\n')
    (found,) = found_by_leaders(logs)
    assert found.kind is Kind.LEDGER
    assert "quota team" in found.details
    assert "the ledger differs from a recount: " in inspect.getsource(ledger_comparer)
