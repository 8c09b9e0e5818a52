"""A rotation step by step, by a clock that the test moves."""

import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509

from certs import authorities, leaf
from certs.authority_secret import BrokenAuthorityError, read
from certs.keeper import Keeper
from certs.x509 import new_authority
from cluster.errors import ClusterError, NotFoundError

SETTLE = timedelta(seconds=10)
BEGIN = datetime(2030, 1, 1, tzinfo=UTC)


class Clock:
    """Wall and monotonic clock in one."""

    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> float:
        """Answer seconds of a monotonic clock."""
        return (self.now - BEGIN).total_seconds()


class Died(BaseException):
    """The process is gone: no handler of ours sees it."""


@pytest.fixture
def clock() -> Clock:
    """Stands still but where a test moves it."""
    return Clock()


@pytest.fixture
def start(api: Any, clock: Clock) -> Callable[[], Keeper]:
    """Start a process, with an empty memory."""
    return lambda: Keeper(api, configuration="tranche", settle_seconds=SETTLE.total_seconds(), clock=clock)


@pytest.fixture
async def keeper(api: Any, clock: Clock, start: Callable[[], Keeper]) -> Keeper:
    """A keeper that has made and published an authority."""
    api.put_configuration(None, None)
    keeper = start()
    await keeper.tick(now=clock.now)
    api.requests.clear()
    return keeper


async def test_the_first_authority_is_made_and_published(api: Any, clock: Clock, start: Callable[[], Keeper]) -> None:
    """In every entry, by the first who comes; who comes later writes nothing."""
    api.put_configuration(None, None)
    kept = await start().tick(now=clock.now)
    signing = kept.authorities.signing
    assert api.bundles() == [signing.certificate_pem] * 2
    assert kept.wrote == ("caBundle of tranche",)
    api.requests.clear()
    assert (await start().tick(now=clock.now)).authorities.signing.certificate == signing.certificate
    assert not api.writes()


async def test_the_new_one_is_believed_before_it_signs_and_the_old_one_after(
    api: Any, clock: Clock, keeper: Keeper
) -> None:
    """Announced and published together with the old one; it signs when the caBundle has settled."""
    old = (await read(api, now=clock.now)).authorities.signing.certificate
    kept = await keeper.tick(now=clock.now, replacing=old)
    assert kept.authorities.signing.certificate == old
    assert kept.authorities.announced is not None
    new = kept.authorities.announced.certificate
    assert kept.published.certificates == {old, new}
    clock.now += SETTLE - timedelta(seconds=1)
    assert (await keeper.tick(now=clock.now, replacing=old)).authorities.signing.certificate == old
    clock.now += timedelta(seconds=1)
    kept = await keeper.tick(now=clock.now, replacing=old)
    assert kept.authorities.signing.certificate == new
    assert kept.authorities.announced is None
    assert kept.published.certificates == {old, new}
    [retired] = kept.authorities.retired
    assert retired.certificate == old
    assert retired.until >= clock.now + leaf.LIFETIME


async def test_the_old_one_goes_when_its_last_leaf_has_expired(api: Any, clock: Clock, keeper: Keeper) -> None:
    """Not before, and then from Secret and caBundle alike."""
    old = (await read(api, now=clock.now)).authorities.signing.certificate
    await keeper.tick(now=clock.now, replacing=old)
    clock.now += SETTLE
    promoted = await keeper.tick(now=clock.now)
    clock.now += leaf.LIFETIME
    assert old in (await keeper.tick(now=clock.now)).published.certificates
    clock.now = promoted.authorities.retired[0].until
    kept = await keeper.tick(now=clock.now)
    assert not kept.authorities.retired
    assert kept.published.certificates == {promoted.authorities.signing.certificate}
    assert set(api.data()) == {"tls.crt", "tls.key"}


async def test_a_clock_years_ahead_changes_nobodys_authority(
    api: Any, clock: Clock, keeper: Keeper, start: Callable[[], Keeper]
) -> None:
    """Its machine finds the authority old and announces another; no API server finds that valid, so it never signs."""
    old = (await read(api, now=clock.now)).authorities.signing.certificate
    newest = api.accepts
    api.accepts = lambda: newest() if newest().not_valid_before_utc <= BEGIN else old
    clock.now = BEGIN + authorities.LIFETIME * 0.8
    ahead = start()
    for _ in range(3):
        kept = await ahead.tick(now=clock.now)
        clock.now += SETTLE
        assert kept.authorities.signing.certificate == old
        assert old in kept.published.certificates
    assert ahead.objection
    clock.now = BEGIN + timedelta(minutes=1)
    assert (await keeper.tick(now=clock.now)).published.certificates == {old}
    api.accepts = newest
    await keeper.tick(now=clock.now, replacing=old)
    clock.now += SETTLE
    assert (await keeper.tick(now=clock.now)).authorities.signing.certificate != old


async def test_a_clock_years_behind_changes_nothing(api: Any, clock: Clock, keeper: Keeper) -> None:
    """The authority is not valid yet by it: said so, and left as it is."""
    bundles = api.bundles()
    with pytest.raises(BrokenAuthorityError, match="is valid from 2029-12-31"):
        await keeper.tick(now=BEGIN - timedelta(days=400))
    assert not api.writes()
    assert api.bundles() == bundles


async def test_a_refused_admission_is_tried_again(api: Any, clock: Clock, keeper: Keeper) -> None:
    """The authority signs as soon as the API server accepts it, and only then; calm times ask nothing."""
    old = (await read(api, now=clock.now)).authorities.signing.certificate
    newest, api.accepts = api.accepts, lambda: old
    await keeper.tick(now=clock.now, replacing=old)
    assert ("PATCH", api.CANARY) not in api.requests
    clock.now += SETTLE
    for _ in range(3):
        assert (await keeper.tick(now=clock.now)).authorities.signing.certificate == old
    api.accepts = newest
    assert (await keeper.tick(now=clock.now)).authorities.signing.certificate != old
    assert api.requests.count(("PATCH", api.CANARY)) == 4


async def test_the_bundle_stays_as_it_is_when_the_new_one_signs(api: Any, clock: Clock, keeper: Keeper) -> None:
    """So it has settled for every replica at once."""
    old = (await read(api, now=clock.now)).authorities.signing.certificate
    bundles = (await keeper.tick(now=clock.now, replacing=old)).published.bundles
    clock.now += SETTLE
    kept = await keeper.tick(now=clock.now)
    assert kept.authorities.signing.certificate != old
    assert kept.published.bundles == bundles


async def test_an_authority_is_renewed_at_two_thirds_of_its_life(api: Any, clock: Clock, keeper: Keeper) -> None:
    """By whoever looks, with nobody asking."""
    clock.now = BEGIN + authorities.LIFETIME * 2 / 3 - timedelta(days=1)
    assert (await keeper.tick(now=clock.now)).authorities.announced is None
    clock.now += timedelta(days=2)
    assert (await keeper.tick(now=clock.now)).authorities.announced is not None


async def test_a_bundle_that_changes_while_it_settles_settles_anew(api: Any, clock: Clock, keeper: Keeper) -> None:
    """An API server may have read the wrong one last."""
    old = (await read(api, now=clock.now)).authorities.signing.certificate
    await keeper.tick(now=clock.now, replacing=old)
    bundle = api.bundles()[0]
    clock.now += SETTLE - timedelta(seconds=1)
    api.put_configuration(b"", b"")
    await keeper.tick(now=clock.now)
    assert api.bundles() == [bundle] * 2
    clock.now += timedelta(seconds=1)
    assert (await keeper.tick(now=clock.now)).authorities.signing.certificate == old
    clock.now += SETTLE
    assert (await keeper.tick(now=clock.now)).authorities.signing.certificate != old


async def test_each_look_of_a_calm_time_costs_two_reads(api: Any, clock: Clock, keeper: Keeper) -> None:
    """Every replica does it every few seconds. The Secret comes last: it is never older than what is published."""
    await keeper.tick(now=clock.now)
    assert api.requests == [("GET", api.CONFIGURATION), ("GET", api.SECRET)]


async def test_who_was_paused_before_a_write_undoes_nothing(
    api: Any, clock: Clock, keeper: Keeper, start: Callable[[], Keeper]
) -> None:
    """A process that wakes up two rotations later with a caBundle in its hand does not write it."""
    old = (await read(api, now=clock.now)).authorities.signing.certificate
    alive = api.before

    async def pause(method: str, path: str) -> None:
        if (method, path) == ("PATCH", api.CONFIGURATION):
            api.before = alive
            other = start()
            for _ in range(2):
                signing = (await read(api, now=clock.now)).authorities.signing.certificate
                for _ in range(2):
                    await other.tick(now=clock.now, replacing=signing)
                    clock.now += SETTLE

    api.before = pause
    seen: list[set[x509.Certificate]] = []
    api.after = lambda: seen.append(set(x509.load_pem_x509_certificates(api.bundles()[0])))
    await keeper.tick(now=clock.now, replacing=old)
    assert len({frozenset(each) for each in seen}) == 3
    assert all(before <= after for before, after in itertools.pairwise(seen))


async def test_who_starts_without_a_secret_leaves_what_others_show_believed(
    api: Any, clock: Clock, keeper: Keeper, start: Callable[[], Keeper]
) -> None:
    """A starting replica shows nothing yet; what is published tells it what others show."""
    old = (await read(api, now=clock.now)).authorities.signing.certificate
    del api.objects[api.SECRET]
    new = (await start().signing(now=clock.now)).signing.certificate
    assert (await start().tick(now=clock.now)).published.certificates == {old, new}


async def test_a_deleted_secret_leaves_what_is_shown_believed(api: Any, clock: Clock, keeper: Keeper) -> None:
    """A new authority is made; the old one's certificates verify on for as long as they last."""
    old = (await read(api, now=clock.now)).authorities.signing.certificate
    del api.objects[api.SECRET]
    kept = await keeper.tick(now=clock.now, serving=old)
    new = kept.authorities.signing.certificate
    assert new != old
    assert kept.published.certificates == {old, new}
    assert not keeper.is_believed(new)
    clock.now += SETTLE
    await keeper.tick(now=clock.now, serving=old)
    assert keeper.is_believed(new)


async def test_a_pair_put_there_by_hand_leaves_what_is_shown_believed(api: Any, clock: Clock, keeper: Keeper) -> None:
    """It is never published without the authority of the leaf in service."""
    old = (await read(api, now=clock.now)).authorities.signing.certificate
    pair = new_authority("by hand", lifetime=timedelta(days=30), now=clock.now)
    api.put_secret(tls_crt=pair.certificate_pem, tls_key=pair.key_pem)
    seen: list[set[x509.Certificate]] = []
    api.after = lambda: seen.extend(set(x509.load_pem_x509_certificates(bundle)) for bundle in api.bundles())
    kept = await keeper.tick(now=clock.now, serving=old)
    assert kept.published.certificates == {old, pair.certificate}
    assert all(old in bundle for bundle in seen)


async def test_a_broken_secret_is_left_to_a_person(api: Any, clock: Clock, keeper: Keeper) -> None:
    """It may be somebody's work; what is published stays."""
    bundles = api.bundles()
    api.put_secret(tls_crt=b"x", tls_key=b"x")
    with pytest.raises(BrokenAuthorityError):
        await keeper.tick(now=clock.now)
    assert not api.writes()
    assert api.bundles() == bundles


async def test_without_a_configuration_there_is_an_authority_but_an_error(
    api: Any, clock: Clock, start: Callable[[], Keeper]
) -> None:
    """A process that starts before the manifests are complete can listen, but not say that it is ready."""
    keeper = start()
    signing = (await keeper.signing(now=clock.now)).signing.certificate
    assert (await keeper.signing(now=clock.now)).signing.certificate == signing
    with pytest.raises(NotFoundError):
        await keeper.tick(now=clock.now)


async def test_who_loses_the_race_takes_the_winners(api: Any, clock: Clock, start: Callable[[], Keeper]) -> None:
    """Another replica creates between our read and our create: its authority is the one."""
    pair = new_authority("faster", lifetime=timedelta(days=30), now=clock.now)

    async def other(method: str, _path: str) -> None:
        if method == "POST":
            api.put_secret(tls_crt=pair.certificate_pem, tls_key=pair.key_pem)

    api.before = other
    assert (await start().signing(now=clock.now)).signing.certificate == pair.certificate


async def test_what_never_rests_is_reported(api: Any, clock: Clock, start: Callable[[], Keeper]) -> None:
    """Somebody writes faster than we can: an error that says how to find out, no endless loop."""
    api.put_configuration(None)

    async def other(method: str, _path: str) -> None:
        if method == "PATCH":
            api.put_configuration(b"")

    api.before = other
    with pytest.raises(ClusterError, match="--watch"):
        await start().tick(now=clock.now)


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("fatal", range(1, 6))
async def test_a_rotation_survives_the_death_of_who_makes_it(
    api: Any,
    clock: Clock,
    keeper: Keeper,
    start: Callable[[], Keeper],
    *,
    fatal: int,
    answered: bool,
) -> None:
    """Killed before or after any of its writes: the next process completes it, and no authority is lost."""
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
        await _rotate(keeper, clock, old)
    api.before, api.after = alive
    await _rotate(start(), clock, old)
    kept = (await read(api, now=clock.now)).authorities
    assert (kept.announced, kept.retired) == (None, ())
    assert kept.signing.certificate != old
    assert api.bundles() == [kept.signing.certificate_pem] * 2


async def _rotate(keeper: Keeper, clock: Clock, old: x509.Certificate) -> None:
    """Rotate to the end, the last leaf's included: announce, publish, promote, retire, publish."""
    await keeper.tick(now=clock.now, replacing=old)
    clock.now += SETTLE
    await keeper.tick(now=clock.now, replacing=old)
    clock.now += leaf.LIFETIME * 2
    await keeper.tick(now=clock.now, replacing=old)
