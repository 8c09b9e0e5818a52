"""The Secret with the authorities, which all replicas share."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from certs.authorities import Authorities, Retired, initial
from certs.authority_secret import BrokenAuthorityError, create, read, replace
from certs.x509 import issue, new_authority
from cluster.errors import ConflictError, NotFoundError

NOW = datetime(2030, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
PAIR = new_authority("tests", lifetime=30 * DAY, now=NOW)
NEXT = new_authority("next", lifetime=30 * DAY, now=NOW)
OLD = new_authority("old", lifetime=30 * DAY, now=NOW)
FULL = Authorities(PAIR, NEXT, (Retired(OLD.certificate, NOW + DAY),))


def keys(authorities: Authorities) -> tuple[object, ...]:
    """Return comparable values, because key pairs do not compare by value."""
    announced = authorities.announced
    return (
        (authorities.signing.certificate, authorities.signing.key_pem),
        (announced.certificate, announced.key_pem) if announced else None,
        authorities.retired,
    )


async def test_secret_has_the_standard_tls_type(api: Any) -> None:
    """Other tools find the signing pair under the standard keys."""
    await create(api, initial(trusted=(), now=NOW))
    [secret] = api.objects.values()
    assert secret["type"] == "kubernetes.io/tls"
    assert (secret["metadata"]["namespace"], secret["metadata"]["name"]) == ("tranche-system", "tranche-webhook-ca")
    assert set(secret["data"]) == {"tls.crt", "tls.key"}


@pytest.mark.parametrize("authorities", [Authorities(PAIR), Authorities(PAIR, NEXT), FULL])
async def test_authorities_survive_a_round_trip(api: Any, authorities: Authorities) -> None:
    """In every state of a rotation, after a create and after a replace."""
    await create(api, authorities)
    assert keys((await read(api, now=NOW)).authorities) == keys(authorities)
    await replace(api, await read(api, now=NOW), Authorities(NEXT))
    assert keys((await read(api, now=NOW)).authorities) == keys(Authorities(NEXT))
    assert set(api.data()) == {"tls.crt", "tls.key"}
    await replace(api, await read(api, now=NOW), authorities)
    assert keys((await read(api, now=NOW)).authorities) == keys(authorities)


async def test_of_two_concurrent_changes_one_is_refused(api: Any) -> None:
    """Each change names the resourceVersion that it was made from."""
    await create(api, Authorities(PAIR))
    stored = await read(api, now=NOW)
    await replace(api, stored, Authorities(PAIR, NEXT))
    with pytest.raises(ConflictError):
        await replace(api, stored, Authorities(PAIR, OLD))
    with pytest.raises(ConflictError):
        await create(api, Authorities(OLD))
    assert keys((await read(api, now=NOW)).authorities) == keys(Authorities(PAIR, NEXT))


async def test_foreign_keys_of_the_secret_are_kept(api: Any) -> None:
    """Keys of the Secret that this module does not write are left alone."""
    api.put_secret(tls_crt=PAIR.certificate_pem, tls_key=PAIR.key_pem, ca_crt=b"theirs")
    await replace(api, await read(api, now=NOW), FULL)
    assert api.data()["ca.crt"] == b"theirs"


async def test_read_does_not_create_the_secret(api: Any) -> None:
    """`show` on a cluster without an authority reports that and creates nothing."""
    with pytest.raises(NotFoundError):
        await read(api, now=NOW)
    assert not api.objects


LEAF = issue(PAIR, common_name="x", dns_names=["x"], lifetime=DAY, now=NOW, server=True)
OTHER = new_authority("other", lifetime=DAY, now=NOW)
EXPIRED = new_authority("old", lifetime=DAY, now=NOW - 2 * DAY)
EARLY = new_authority("early", lifetime=DAY, now=NOW + 2 * DAY)
BROKEN: list[tuple[dict[str, bytes], str, str]] = [
    ({}, "tls.crt", "is missing"),
    ({"tls_crt": b"x", "tls_key": PAIR.key_pem}, "tls.crt", "is not a PEM certificate"),
    ({"tls_crt": LEAF.certificate_pem, "tls_key": LEAF.key_pem}, "tls.crt", "is not the certificate of an authority"),
    ({"tls_crt": EXPIRED.certificate_pem, "tls_key": EXPIRED.key_pem}, "tls.crt", "to 2029-12-31"),
    ({"tls_crt": EARLY.certificate_pem, "tls_key": EARLY.key_pem}, "tls.crt", "from 2030-01-02"),
    ({"tls_crt": PAIR.certificate_pem}, "tls.key", "is missing"),
    ({"tls_crt": PAIR.certificate_pem, "tls_key": b"x"}, "tls.key", ""),
    ({"tls_crt": PAIR.certificate_pem, "tls_key": OTHER.key_pem}, "tls.key", "does not belong"),
]


@pytest.mark.parametrize(("data", "field", "words"), BROKEN)
async def test_error_for_a_broken_secret_names_key_and_remedy(
    api: Any, data: dict[str, bytes], field: str, words: str
) -> None:
    """The error names the Secret, the key, the problem and the command that helps."""
    api.put_secret(**data)
    with pytest.raises(BrokenAuthorityError) as caught:
        await read(api, now=NOW)
    message = str(caught.value)
    assert "Secret tranche-system/tranche-webhook-ca" in message
    assert f'data["{field}"]' in message
    assert words in message
    assert "kubectl -n tranche-system delete secret" in message


@pytest.mark.parametrize(("data", "field", "words"), BROKEN)
async def test_broken_announced_authority_is_ignored(api: Any, data: dict[str, bytes], field: str, words: str) -> None:
    """It is not in use yet: the next rotation writes another."""
    announced = {key.replace("tls", "announced"): value for key, value in data.items()}
    api.put_secret(tls_crt=PAIR.certificate_pem, tls_key=PAIR.key_pem, **announced)
    stored = await read(api, now=NOW)
    assert keys(stored.authorities) == keys(Authorities(PAIR))
    await replace(api, stored, Authorities(PAIR))
    assert set(api.data()) == {"tls.crt", "tls.key"}


@pytest.mark.parametrize("until", [None, b"x", b"{}", b'{"x": 1}'])
async def test_retired_authority_without_end_is_trusted_until_it_expires(api: Any, until: bytes | None) -> None:
    """Trusting it too long is harmless, too short is not."""
    more = {} if until is None else {"retired_until": until}
    api.put_secret(tls_crt=PAIR.certificate_pem, tls_key=PAIR.key_pem, retired_crt=OLD.certificate_pem, **more)
    [retired] = (await read(api, now=NOW)).authorities.retired
    assert retired == Retired(OLD.certificate, OLD.certificate.not_valid_after_utc)


async def test_error_for_invalid_base64_names_it(api: Any) -> None:
    """An API server refuses such data, but a proxy or a fake may pass it."""
    api.put_secret(tls_crt=PAIR.certificate_pem)
    api.objects[next(iter(api.objects))]["data"]["tls.key"] = "%%%"
    with pytest.raises(BrokenAuthorityError, match="base64"):
        await read(api, now=NOW)


async def test_errors_never_contain_the_private_key(api: Any) -> None:
    """Errors are logged, so they must not contain a private key."""
    api.put_secret(tls_crt=PAIR.certificate_pem, tls_key=OTHER.key_pem)
    with pytest.raises(BrokenAuthorityError) as caught:
        await read(api, now=NOW)
    assert OTHER.key_pem.decode().splitlines()[1] not in str(caught.value)
    assert base64.b64encode(OTHER.key_pem).decode() not in str(caught.value)
