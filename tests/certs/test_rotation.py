"""A rotation step by step, with a clock that the test controls."""

import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509

from certs import authorities, leaf
from certs.authority_reconciler import AuthorityReconciler
from certs.authority_secret import BrokenAuthorityError, read
from certs.x509 import new_authority
from cluster.errors import ClusterError, NotFoundError

SETTLE = timedelta(seconds=10)
BEGIN = datetime(2030, 1, 1, tzinfo=UTC)


class Clock:
    """A wall clock and a monotonic clock in one."""

    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> float:
        """Return the monotonic time in seconds."""
        return (self.now - BEGIN).total_seconds()


class Died(BaseException):
    """The process is killed: no exception handler runs."""


@pytest.fixture
def clock() -> Clock:
    """Return a clock that only the test advances."""
    return Clock()


@pytest.fixture
def start(api: Any, clock: Clock) -> Callable[[], AuthorityReconciler]:
    """Return a function that starts a reconciler without any memory."""
    return lambda: AuthorityReconciler(api, configuration="tranche", settle_seconds=SETTLE.total_seconds(), clock=clock)


@pytest.fixture
async def reconciler(api: Any, clock: Clock, start: Callable[[], AuthorityReconciler]) -> AuthorityReconciler:
    """Return a reconciler that has created and published an authority."""
    api.put_configuration(None, None)
    reconciler = start()
    await reconciler.reconcile(now=clock.now)
    api.requests.clear()
    return reconciler


async def test_first_authority_is_created_and_published(
    api: Any, clock: Clock, start: Callable[[], AuthorityReconciler]
) -> None:
    """The first process publishes it in every entry; later processes write nothing."""
    api.put_configuration(None, None)
    kept = await start().reconcile(now=clock.now)
    signing = kept.authorities.signing
    assert api.bundles() == [signing.certificate_pem] * 2
    assert kept.wrote == ("caBundle of tranche",)
    api.requests.clear()
    assert (await start().reconcile(now=clock.now)).authorities.signing.certificate == signing.certificate
    assert not api.writes()


async def test_new_authority_is_trusted_before_it_signs_and_old_one_afterwards(
    api: Any, clock: Clock, reconciler: AuthorityReconciler
) -> None:
    """The caBundle holds both; the new authority signs once the caBundle has been unchanged for the settle time."""
    old = (await read(api, now=clock.now)).authorities.signing.certificate
    kept = await reconciler.reconcile(now=clock.now, replacing=old)
    assert kept.authorities.signing.certificate == old
    assert kept.authorities.announced is not None
    new = kept.authorities.announced.certificate
    assert kept.published.common_certificates == {old, new}
    clock.now += SETTLE - timedelta(seconds=1)
    assert (await reconciler.reconcile(now=clock.now, replacing=old)).authorities.signing.certificate == old
    clock.now += timedelta(seconds=1)
    kept = await reconciler.reconcile(now=clock.now, replacing=old)
    assert kept.authorities.signing.certificate == new
    assert kept.authorities.announced is None
    assert kept.published.common_certificates == {old, new}
    [retired] = kept.authorities.retired
    assert retired.certificate == old
    assert retired.until >= clock.now + leaf.LIFETIME


async def test_old_authority_is_removed_once_its_last_leaf_has_expired(
    api: Any, clock: Clock, reconciler: AuthorityReconciler
) -> None:
    """Not before; then it is removed from the Secret and the caBundle."""
    old = (await read(api, now=clock.now)).authorities.signing.certificate
    await reconciler.reconcile(now=clock.now, replacing=old)
    clock.now += SETTLE
    promoted = await reconciler.reconcile(now=clock.now)
    clock.now += leaf.LIFETIME
    assert old in (await reconciler.reconcile(now=clock.now)).published.common_certificates
    clock.now = promoted.authorities.retired[0].until
    kept = await reconciler.reconcile(now=clock.now)
    assert not kept.authorities.retired
    assert kept.published.common_certificates == {promoted.authorities.signing.certificate}
    assert set(api.data()) == {"tls.crt", "tls.key"}


async def test_clock_years_ahead_does_not_replace_the_authority(
    api: Any, clock: Clock, reconciler: AuthorityReconciler, start: Callable[[], AuthorityReconciler]
) -> None:
    """A process with such a clock announces a new authority, which is not valid yet for API servers and never signs."""
    old = (await read(api, now=clock.now)).authorities.signing.certificate
    newest = api.accepts
    api.accepts = lambda: newest() if newest().not_valid_before_utc <= BEGIN else old
    clock.now = BEGIN + authorities.LIFETIME * 0.8
    ahead = start()
    for _ in range(3):
        kept = await ahead.reconcile(now=clock.now)
        clock.now += SETTLE
        assert kept.authorities.signing.certificate == old
        assert old in kept.published.common_certificates
    assert ahead.pending_reason
    clock.now = BEGIN + timedelta(minutes=1)
    assert (await reconciler.reconcile(now=clock.now)).published.common_certificates == {old}
    api.accepts = newest
    await reconciler.reconcile(now=clock.now, replacing=old)
    clock.now += SETTLE
    assert (await reconciler.reconcile(now=clock.now)).authorities.signing.certificate != old


async def test_clock_years_behind_writes_nothing(api: Any, clock: Clock, reconciler: AuthorityReconciler) -> None:
    """By such a clock the authority is not valid yet: an error, and no write."""
    bundles = api.bundles()
    with pytest.raises(BrokenAuthorityError, match="is valid from 2029-12-31"):
        await reconciler.reconcile(now=BEGIN - timedelta(days=400))
    assert not api.writes()
    assert api.bundles() == bundles


async def test_refused_canary_admission_is_retried(api: Any, clock: Clock, reconciler: AuthorityReconciler) -> None:
    """The authority signs as soon as the API server accepts it; otherwise no canary request is sent."""
    old = (await read(api, now=clock.now)).authorities.signing.certificate
    newest, api.accepts = api.accepts, lambda: old
    await reconciler.reconcile(now=clock.now, replacing=old)
    assert ("PATCH", api.CANARY) not in api.requests
    clock.now += SETTLE
    for _ in range(3):
        assert (await reconciler.reconcile(now=clock.now)).authorities.signing.certificate == old
    api.accepts = newest
    assert (await reconciler.reconcile(now=clock.now)).authorities.signing.certificate != old
    assert api.requests.count(("PATCH", api.CANARY)) == 4


async def test_bundle_is_unchanged_when_the_new_authority_signs(
    api: Any, clock: Clock, reconciler: AuthorityReconciler
) -> None:
    """So its settle time is over for every replica at once."""
    old = (await read(api, now=clock.now)).authorities.signing.certificate
    bundles = (await reconciler.reconcile(now=clock.now, replacing=old)).published.bundles
    clock.now += SETTLE
    kept = await reconciler.reconcile(now=clock.now)
    assert kept.authorities.signing.certificate != old
    assert kept.published.bundles == bundles


async def test_authority_is_renewed_after_two_thirds_of_its_life(
    api: Any, clock: Clock, reconciler: AuthorityReconciler
) -> None:
    """Any reconciler renews it, without a request."""
    clock.now = BEGIN + authorities.LIFETIME * 2 / 3 - timedelta(days=1)
    assert (await reconciler.reconcile(now=clock.now)).authorities.announced is None
    clock.now += timedelta(days=2)
    assert (await reconciler.reconcile(now=clock.now)).authorities.announced is not None


async def test_bundle_change_restarts_the_settle_time(api: Any, clock: Clock, reconciler: AuthorityReconciler) -> None:
    """An API server may have read the wrong caBundle last, so the settle time starts again."""
    old = (await read(api, now=clock.now)).authorities.signing.certificate
    await reconciler.reconcile(now=clock.now, replacing=old)
    bundle = api.bundles()[0]
    clock.now += SETTLE - timedelta(seconds=1)
    api.put_configuration(b"", b"")
    await reconciler.reconcile(now=clock.now)
    assert api.bundles() == [bundle] * 2
    clock.now += timedelta(seconds=1)
    assert (await reconciler.reconcile(now=clock.now)).authorities.signing.certificate == old
    clock.now += SETTLE
    assert (await reconciler.reconcile(now=clock.now)).authorities.signing.certificate != old


async def test_reconciliation_without_changes_costs_two_reads(
    api: Any, clock: Clock, reconciler: AuthorityReconciler
) -> None:
    """Every replica does so every few seconds. It reads the Secret last, so it is never older than the caBundle."""
    await reconciler.reconcile(now=clock.now)
    assert api.requests == [("GET", api.CONFIGURATION), ("GET", api.SECRET)]


async def test_process_paused_before_a_write_undoes_nothing(
    api: Any, clock: Clock, reconciler: AuthorityReconciler, start: Callable[[], AuthorityReconciler]
) -> None:
    """A process that wakes up two rotations later does not write the caBundle that it computed before."""
    old = (await read(api, now=clock.now)).authorities.signing.certificate
    alive = api.before

    async def pause(method: str, path: str) -> None:
        if (method, path) == ("PATCH", api.CONFIGURATION):
            api.before = alive
            other = start()
            for _ in range(2):
                signing = (await read(api, now=clock.now)).authorities.signing.certificate
                for _ in range(2):
                    await other.reconcile(now=clock.now, replacing=signing)
                    clock.now += SETTLE

    api.before = pause
    seen: list[set[x509.Certificate]] = []
    api.after = lambda: seen.append(set(x509.load_pem_x509_certificates(api.bundles()[0])))
    await reconciler.reconcile(now=clock.now, replacing=old)
    assert len({frozenset(each) for each in seen}) == 3
    assert all(before <= after for before, after in itertools.pairwise(seen))


async def test_start_without_secret_keeps_published_authorities_trusted(
    api: Any, clock: Clock, reconciler: AuthorityReconciler, start: Callable[[], AuthorityReconciler]
) -> None:
    """A starting replica serves nothing yet; the caBundle has the authorities of the other replicas."""
    old = (await read(api, now=clock.now)).authorities.signing.certificate
    del api.objects[api.SECRET]
    new = (await start().ensure_secret(now=clock.now)).signing.certificate
    assert (await start().reconcile(now=clock.now)).published.common_certificates == {old, new}


async def test_deleted_secret_keeps_served_certificates_trusted(
    api: Any, clock: Clock, reconciler: AuthorityReconciler
) -> None:
    """A new authority is created; certificates of the old one verify until they expire."""
    old = (await read(api, now=clock.now)).authorities.signing.certificate
    del api.objects[api.SECRET]
    kept = await reconciler.reconcile(now=clock.now, serving=old)
    new = kept.authorities.signing.certificate
    assert new != old
    assert kept.published.common_certificates == {old, new}
    assert not reconciler.is_trusted(new)
    clock.now += SETTLE
    await reconciler.reconcile(now=clock.now, serving=old)
    assert reconciler.is_trusted(new)


async def test_manually_replaced_pair_keeps_served_certificates_trusted(
    api: Any, clock: Clock, reconciler: AuthorityReconciler
) -> None:
    """The new pair is never published without the authority of the leaf in service."""
    old = (await read(api, now=clock.now)).authorities.signing.certificate
    pair = new_authority("by hand", lifetime=timedelta(days=30), now=clock.now)
    api.put_secret(tls_crt=pair.certificate_pem, tls_key=pair.key_pem)
    seen: list[set[x509.Certificate]] = []
    api.after = lambda: seen.extend(set(x509.load_pem_x509_certificates(bundle)) for bundle in api.bundles())
    kept = await reconciler.reconcile(now=clock.now, serving=old)
    assert kept.published.common_certificates == {old, pair.certificate}
    assert all(old in bundle for bundle in seen)


async def test_broken_secret_is_not_overwritten(api: Any, clock: Clock, reconciler: AuthorityReconciler) -> None:
    """Nothing is written, and the caBundle stays as it is."""
    bundles = api.bundles()
    api.put_secret(tls_crt=b"x", tls_key=b"x")
    with pytest.raises(BrokenAuthorityError):
        await reconciler.reconcile(now=clock.now)
    assert not api.writes()
    assert api.bundles() == bundles


async def test_missing_configuration_is_an_error_but_the_authority_is_created(
    api: Any, clock: Clock, start: Callable[[], AuthorityReconciler]
) -> None:
    """A process that starts before the manifests are applied can listen, but is not ready."""
    reconciler = start()
    signing = (await reconciler.ensure_secret(now=clock.now)).signing.certificate
    assert (await reconciler.ensure_secret(now=clock.now)).signing.certificate == signing
    with pytest.raises(NotFoundError):
        await reconciler.reconcile(now=clock.now)


async def test_loser_of_a_create_race_uses_the_winners_authority(
    api: Any, clock: Clock, start: Callable[[], AuthorityReconciler]
) -> None:
    """Another replica creates the Secret between our read and our create: its authority is used."""
    pair = new_authority("faster", lifetime=timedelta(days=30), now=clock.now)

    async def other(method: str, _path: str) -> None:
        if method == "POST":
            api.put_secret(tls_crt=pair.certificate_pem, tls_key=pair.key_pem)

    api.before = other
    assert (await start().ensure_secret(now=clock.now)).signing.certificate == pair.certificate


async def test_endless_contention_is_an_error(api: Any, clock: Clock, start: Callable[[], AuthorityReconciler]) -> None:
    """Another writer is faster: the error says how to find it, and the loop ends."""
    api.put_configuration(None)

    async def other(method: str, _path: str) -> None:
        if method == "PATCH":
            api.put_configuration(b"")

    api.before = other
    with pytest.raises(ClusterError, match="--watch"):
        await start().reconcile(now=clock.now)


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("fatal", range(1, 6))
async def test_rotation_survives_a_kill_at_any_write(
    api: Any,
    clock: Clock,
    reconciler: AuthorityReconciler,
    start: Callable[[], AuthorityReconciler],
    *,
    fatal: int,
    answered: bool,
) -> None:
    """Killed before or after any of its writes: the next process completes the rotation, and no authority is lost."""
    old = (await read(api, now=clock.now)).authorities.signing.certificate
    writes = 0

    def count() -> None:
        nonlocal writes
        writes += 1
        if answered and writes == fatal:
            raise Died

    async def before(method: str, _path: str) -> None:
        if not answered and method != "GET" and writes == fatal - 1:
            raise Died

    alive = api.before, api.after
    api.before, api.after = before, count
    with pytest.raises(Died):
        await _rotate(reconciler, clock, old)
    api.before, api.after = alive
    await _rotate(start(), clock, old)
    kept = (await read(api, now=clock.now)).authorities
    assert (kept.announced, kept.retired) == (None, ())
    assert kept.signing.certificate != old
    assert api.bundles() == [kept.signing.certificate_pem] * 2


async def _rotate(reconciler: AuthorityReconciler, clock: Clock, old: x509.Certificate) -> None:
    """Rotate until the last leaf has expired: announce, publish, promote, retire, publish."""
    await reconciler.reconcile(now=clock.now, replacing=old)
    clock.now += SETTLE
    await reconciler.reconcile(now=clock.now, replacing=old)
    clock.now += leaf.LIFETIME * 2
    await reconciler.reconcile(now=clock.now, replacing=old)
