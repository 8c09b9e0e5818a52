"""One authority for all replicas, in one Secret."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from certs.authority import BrokenAuthorityError, ensure_authority, read_authority
from certs.x509 import issue, new_authority
from cluster.errors import ClusterError, NotFoundError

NOW = datetime(2030, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
PAIR = new_authority("tests", lifetime=30 * DAY, now=NOW)


async def test_first_replica_makes_it_and_the_next_reads_it(api: Any) -> None:
    """The Secret is of the type that every certificate tool reads, and both sign with the same key."""
    made = await ensure_authority(api, now=NOW)
    [secret] = api.objects.values()
    assert secret["type"] == "kubernetes.io/tls"
    assert (secret["metadata"]["namespace"], secret["metadata"]["name"]) == ("tranche-system", "tranche-webhook-ca")
    assert set(secret["data"]) == {"tls.crt", "tls.key"}
    read = await ensure_authority(api, now=NOW)
    assert read.certificate == made.certificate
    assert read.key_pem == made.key_pem


async def test_who_loses_the_race_takes_the_winners(api: Any) -> None:
    """Another replica creates between our read and our create: its authority is the one."""

    def other(method: str, _path: str) -> None:
        if method == "POST":
            api.put_secret(tls_crt=PAIR.certificate_pem, tls_key=PAIR.key_pem)

    api.before = other
    assert (await ensure_authority(api, now=NOW)).certificate == PAIR.certificate


async def test_a_secret_that_never_stays_is_reported(api: Any) -> None:
    """Deleted and created by others all the time: an error that says how to find out, no endless loop."""

    def other(method: str, _path: str) -> None:
        api.objects.clear()
        if method == "POST":
            api.put_secret(tls_crt=PAIR.certificate_pem, tls_key=PAIR.key_pem)

    api.before = other
    with pytest.raises(ClusterError, match="--watch"):
        await ensure_authority(api, now=NOW)


async def test_reading_makes_nothing(api: Any) -> None:
    """`show` of a cluster without authority says so and leaves it so."""
    with pytest.raises(NotFoundError):
        await read_authority(api, now=NOW)
    assert not api.objects


LEAF = issue(PAIR, common_name="x", dns_names=["x"], lifetime=DAY, now=NOW, server=True)
OTHER = new_authority("other", lifetime=DAY, now=NOW)
EXPIRED = new_authority("old", lifetime=DAY, now=NOW - 2 * DAY)
EARLY = new_authority("early", lifetime=DAY, now=NOW + 2 * DAY)


@pytest.mark.parametrize(
    ("data", "field", "words"),
    [
        ({}, "tls.crt", "is missing"),
        ({"tls_crt": b"x", "tls_key": PAIR.key_pem}, "tls.crt", "no PEM certificate"),
        ({"tls_crt": LEAF.certificate_pem, "tls_key": LEAF.key_pem}, "tls.crt", "of no authority"),
        ({"tls_crt": EXPIRED.certificate_pem, "tls_key": EXPIRED.key_pem}, "tls.crt", "to 2029-12-31"),
        ({"tls_crt": EARLY.certificate_pem, "tls_key": EARLY.key_pem}, "tls.crt", "from 2030-01-02"),
        ({"tls_crt": PAIR.certificate_pem}, "tls.key", "is missing"),
        ({"tls_crt": PAIR.certificate_pem, "tls_key": b"x"}, "tls.key", ""),
        ({"tls_crt": PAIR.certificate_pem, "tls_key": OTHER.key_pem}, "tls.key", "does not belong"),
    ],
)
async def test_a_broken_secret_is_named_with_field_and_remedy(
    api: Any, data: dict[str, bytes], field: str, words: str
) -> None:
    """Nothing is signed with it and it is not overwritten: it may be somebody's work."""
    api.put_secret(**data)
    before = dict(api.objects)
    with pytest.raises(BrokenAuthorityError) as caught:
        await ensure_authority(api, now=NOW)
    message = str(caught.value)
    assert "Secret tranche-system/tranche-webhook-ca" in message
    assert f'data["{field}"]' in message
    assert words in message
    assert "kubectl -n tranche-system delete secret" in message
    assert api.objects == before


async def test_what_is_not_base64_is_named(api: Any) -> None:
    """The API server refuses it, but a proxy or a fake may not."""
    api.put_secret(tls_crt=PAIR.certificate_pem)
    api.objects[next(iter(api.objects))]["data"]["tls.key"] = "%%%"
    with pytest.raises(BrokenAuthorityError, match="base64"):
        await ensure_authority(api, now=NOW)


async def test_no_message_shows_the_key(api: Any) -> None:
    """Errors end in logs."""
    api.put_secret(tls_crt=PAIR.certificate_pem, tls_key=OTHER.key_pem)
    with pytest.raises(BrokenAuthorityError) as caught:
        await ensure_authority(api, now=NOW)
    assert OTHER.key_pem.decode().splitlines()[1] not in str(caught.value)
    assert base64.b64encode(OTHER.key_pem).decode() not in str(caught.value)
