"""Leaves: short-lived, in memory, tested by a handshake before they are served."""

import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from certs import leaf
from certs.leaf import ServerNames, UnusableLeafError, issue_leaf
from certs.source import IssuedSource
from certs.x509 import new_authority

DAY = timedelta(days=1)
NAMES = ServerNames(dns_names=("webhook.svc",), ip_addresses=("127.0.0.1", "::1"))


def now() -> datetime:
    """Return the real time, which TLS uses."""
    return datetime.now(UTC)


def test_leaf_lives_a_week_and_is_renewed_after_two_thirds() -> None:
    """So an API server that is unreachable for two days does no harm."""
    at = now()
    made = issue_leaf(new_authority("a", lifetime=30 * DAY, now=at), names=NAMES, now=at)
    assert abs(made.ends_at - (at + 7 * DAY)) < timedelta(seconds=2)
    assert abs(made.renew_at - (at + 7 * DAY * 2 / 3)) < timedelta(seconds=2)


def test_leaf_of_an_ending_authority_is_renewed_before_its_end() -> None:
    """A leaf never outlives its authority, and is due after two thirds of its own life."""
    at = now()
    made = issue_leaf(new_authority("a", lifetime=3 * DAY, now=at), names=NAMES, now=at)
    assert abs(made.ends_at - (at + 3 * DAY)) < timedelta(seconds=2)
    assert abs(made.renew_at - (at + 2 * DAY)) < timedelta(seconds=2)


def test_key_leaves_no_trace_on_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only this user may read the file that OpenSSL reads, and it is deleted at once."""
    seen: list[int] = []
    load = ssl.SSLContext.load_cert_chain

    def watched(self: ssl.SSLContext, certfile: str, **options: Any) -> None:
        seen.append(Path(certfile).stat().st_mode & 0o777)
        load(self, certfile, **options)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", watched)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    issue_leaf(new_authority("a", lifetime=DAY, now=now()), names=NAMES, now=now())
    assert seen == [0o600]
    assert not list(tmp_path.iterdir())


def test_leaf_that_a_client_rejects_is_never_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leaf of another authority fails here, not in the API server."""
    other = new_authority("other", lifetime=DAY, now=now())
    issue = leaf.issue
    monkeypatch.setattr(leaf, "issue", lambda _authority, **options: issue(other, **options))
    with pytest.raises(UnusableLeafError, match=r"webhook\.svc"):
        issue_leaf(new_authority("a", lifetime=DAY, now=now()), names=NAMES, now=now())


def test_server_without_names_is_refused() -> None:
    """A certificate without names cannot be verified."""
    with pytest.raises(ValueError, match="at least one"):
        issue_leaf(new_authority("a", lifetime=DAY, now=now()), names=ServerNames(), now=now())


def test_source_renews_when_due_and_not_before() -> None:
    """Before it is due, the leaf stays; afterwards it is replaced."""
    at = now()
    authority = new_authority("a", lifetime=30 * DAY, now=at - 6 * DAY)
    source = IssuedSource(authority, names=NAMES, now=at - 6 * DAY)
    first = source.leaf
    assert not source.renew(authority, now=first.renew_at - timedelta(seconds=1))
    assert source.leaf is first
    assert source.renew(authority, now=at)
    assert source.context(None) is not first.context


def test_source_issues_a_new_leaf_for_a_new_authority_at_once() -> None:
    """A leaf of the old authority would not verify by a caBundle with only the new one."""
    at = now()
    source = IssuedSource(new_authority("a", lifetime=DAY, now=at), names=NAMES, now=at)
    another = new_authority("a", lifetime=DAY, now=at)
    assert source.renew(another, now=at)
    assert source.leaf.authority == another.certificate


def test_failed_renewal_keeps_the_leaf_in_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leaf that fails its handshake replaces nothing."""
    at = now()
    source = IssuedSource(new_authority("a", lifetime=DAY, now=at), names=NAMES, now=at)
    first = source.leaf

    def refuse(*_arguments: object, **_options: object) -> None:
        raise UnusableLeafError("no")

    monkeypatch.setattr(leaf, "check_handshake", refuse)
    with pytest.raises(UnusableLeafError):
        source.renew(new_authority("b", lifetime=DAY, now=at), now=at)
    assert source.leaf is first


def test_leaf_issued_by_a_fast_clock_is_valid_for_others() -> None:
    """A leaf's validity begins with its authority's, so it is valid at the right time."""
    at = now()
    authority = new_authority("a", lifetime=30 * DAY, now=at)
    source = IssuedSource(authority, names=NAMES, now=at)
    assert source.renew(authority, now=at + 5 * DAY)
    assert source.leaf.certificate.not_valid_before_utc == authority.certificate.not_valid_before_utc
    assert source.leaf.certificate.not_valid_before_utc <= at < source.leaf.ends_at


def test_clock_set_back_does_not_shorten_the_leaf() -> None:
    """Whether the clock was wrong before or is now, the longer leaf is better; a leaf of a new authority always is."""
    at = now()
    authority = new_authority("a", lifetime=30 * DAY, now=at)
    source = IssuedSource(authority, names=NAMES, now=at)
    first = source.leaf
    assert not source.renew(authority, now=at - 2 * DAY)
    assert not source.renew(authority, generation="asked for", now=at - 2 * DAY)
    assert source.leaf is first
    assert source.renew(authority, generation="asked for", now=at)
    assert source.renew(new_authority("b", lifetime=DAY, now=at), now=at - timedelta(minutes=5))


def test_next_leaf_is_served_to_the_canary_only() -> None:
    """Later the same leaf goes into service."""
    at = now()
    authority, coming = (new_authority(name, lifetime=30 * DAY, now=at) for name in ("a", "b"))
    source = IssuedSource(authority, names=NAMES, canary="canary.svc", now=at)
    assert source.context("canary.svc") is source.context("webhook.svc")
    source.prepare_next(coming, now=at)
    rehearsed = source.context("canary.svc")
    for name in ("webhook.svc", None):
        assert source.context(name) is source.leaf.context
    assert source.authority_of(rehearsed) == coming.certificate
    assert source.authority_of(source.leaf.context) == authority.certificate
    source.prepare_next(coming, now=at)
    assert source.context("canary.svc") is rehearsed
    assert source.renew(coming, now=at)
    assert source.leaf.context is rehearsed
    source.prepare_next(None, now=at)
    assert source.context("canary.svc") is rehearsed
