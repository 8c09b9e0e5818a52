"""Leaves: short-lived, in memory, proven before they are shown."""

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
    """TLS goes by the real clock."""
    return datetime.now(UTC)


def test_leaf_lives_a_week_and_is_renewed_after_two_thirds() -> None:
    """So an API server that is away for two days does no harm."""
    at = now()
    made = issue_leaf(new_authority("a", lifetime=30 * DAY, now=at), names=NAMES, now=at)
    assert abs(made.ends_at - (at + 7 * DAY)) < timedelta(seconds=2)
    assert abs(made.renew_at - (at + 7 * DAY * 2 / 3)) < timedelta(seconds=2)


def test_leaf_of_an_ending_authority_is_renewed_before_its_end() -> None:
    """A leaf never outlives its authority, and is due at two thirds of what it has."""
    at = now()
    made = issue_leaf(new_authority("a", lifetime=3 * DAY, now=at), names=NAMES, now=at)
    assert abs(made.ends_at - (at + 3 * DAY)) < timedelta(seconds=2)
    assert abs(made.renew_at - (at + 2 * DAY)) < timedelta(seconds=2)


def test_key_leaves_no_trace_on_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The file that OpenSSL reads is ours alone and gone at once."""
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


def test_leaf_that_a_client_refuses_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signed by one authority and proven against another: an error here, not in the API server."""
    other = new_authority("other", lifetime=DAY, now=now())
    issue = leaf.issue
    monkeypatch.setattr(leaf, "issue", lambda _authority, **told: issue(other, **told))
    with pytest.raises(UnusableLeafError, match=r"webhook\.svc"):
        issue_leaf(new_authority("a", lifetime=DAY, now=now()), names=NAMES, now=now())


def test_server_without_names_is_refused() -> None:
    """Nobody could verify it."""
    with pytest.raises(ValueError, match="at least one"):
        issue_leaf(new_authority("a", lifetime=DAY, now=now()), names=ServerNames(), now=now())


def test_source_renews_when_due_and_not_before() -> None:
    """Same authority, not due: the same leaf. Due: another."""
    at = now()
    authority = new_authority("a", lifetime=30 * DAY, now=at - 6 * DAY)
    source = IssuedSource(authority, names=NAMES, now=at - 6 * DAY)
    first = source.leaf
    assert not source.renew(authority, now=first.renew_at - timedelta(seconds=1))
    assert source.leaf is first
    assert source.renew(authority, now=at)
    assert source.context(None) is not first.context


def test_source_follows_a_new_authority_at_once() -> None:
    """What the old one signed is not verified by the caBundle of the new one."""
    at = now()
    source = IssuedSource(new_authority("a", lifetime=DAY, now=at), names=NAMES, now=at)
    another = new_authority("a", lifetime=DAY, now=at)
    assert source.renew(another, now=at)
    assert source.leaf.authority == another.certificate


def test_failed_renewal_keeps_the_leaf_in_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leaf that could not be proven replaces nothing."""
    at = now()
    source = IssuedSource(new_authority("a", lifetime=DAY, now=at), names=NAMES, now=at)
    first = source.leaf

    def refuse(*_arguments: object, **_options: object) -> None:
        raise UnusableLeafError("no")

    monkeypatch.setattr(leaf, "prove", refuse)
    with pytest.raises(UnusableLeafError):
        source.renew(new_authority("b", lifetime=DAY, now=at), now=at)
    assert source.leaf is first


def test_a_clock_that_jumps_ahead_makes_leaves_that_others_believe() -> None:
    """A leaf begins with its authority: whoever goes by the right time finds it valid."""
    at = now()
    authority = new_authority("a", lifetime=30 * DAY, now=at)
    source = IssuedSource(authority, names=NAMES, now=at)
    assert source.renew(authority, now=at + 5 * DAY)
    assert source.leaf.certificate.not_valid_before_utc == authority.certificate.not_valid_before_utc
    assert source.leaf.certificate.not_valid_before_utc <= at < source.leaf.ends_at


def test_a_clock_that_is_set_back_replaces_no_leaf_by_a_shorter_one() -> None:
    """Whether it was wrong before or is now, the leaf in service is the better one; not so one of an old authority."""
    at = now()
    authority = new_authority("a", lifetime=30 * DAY, now=at)
    source = IssuedSource(authority, names=NAMES, now=at)
    first = source.leaf
    assert not source.renew(authority, now=at - 2 * DAY)
    assert not source.renew(authority, generation="asked for", now=at - 2 * DAY)
    assert source.leaf is first
    assert source.renew(authority, generation="asked for", now=at)
    assert source.renew(new_authority("b", lifetime=DAY, now=at), now=at - timedelta(minutes=5))


def test_the_leaf_that_comes_next_is_shown_to_the_canary_only() -> None:
    """And it is that very leaf that goes into service."""
    at = now()
    authority, coming = (new_authority(name, lifetime=30 * DAY, now=at) for name in ("a", "b"))
    source = IssuedSource(authority, names=NAMES, canary="canary.svc", now=at)
    assert source.context("canary.svc") is source.context("webhook.svc")
    source.rehearse(coming, now=at)
    rehearsed = source.context("canary.svc")
    for name in ("webhook.svc", None):
        assert source.context(name) is source.leaf.context
    assert source.authority_of(rehearsed) == coming.certificate
    assert source.authority_of(source.leaf.context) == authority.certificate
    source.rehearse(coming, now=at)
    assert source.context("canary.svc") is rehearsed
    assert source.renew(coming, now=at)
    assert source.leaf.context is rehearsed
    source.rehearse(None, now=at)
    assert source.context("canary.svc") is rehearsed
