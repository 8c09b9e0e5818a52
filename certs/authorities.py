"""The webhook's authorities over time, and the steps by which one follows another without a failed admission.

One signs. A rotation announces the next one, which the caBundle then holds too; once every API server goes by that
caBundle, the announced one signs and the old one is retired: nothing is signed with it any more, but it is believed
until its last certificate has expired. Each step is a function of the state before it, so whoever finds a state can go
on from there: it does not matter who took the last step, or whether he lived to see it done.
"""

from collections.abc import Callable, Collection
from datetime import datetime, timedelta

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from certs import leaf
from certs.x509 import KeyPair, new_authority

LIFETIME = timedelta(days=3650)
_COMMON_NAME = "tranche webhook CA"
# A certificate may still be signed by who has read the state just before it changed.
_RETIRED_FOR = leaf.LIFETIME + timedelta(hours=1)


class Retired(msgspec.Struct, frozen=True):
    """An authority that signs no more, and until when what it has signed may be shown."""

    certificate: x509.Certificate
    until: datetime


class Authorities(msgspec.Struct, frozen=True):
    """All that count at one time; no two of them are the same.

    Attributes:
        signing: whose certificates servers show.
        announced: who signs next, while a rotation is under way.
        retired: who signed before.
    """

    signing: KeyPair
    announced: KeyPair | None = None
    retired: tuple[Retired, ...] = ()

    @property
    def certificates(self) -> tuple[x509.Certificate, ...]:
        """The certificates of all, which is what API servers are to believe."""
        announced = (self.announced.certificate,) if self.announced is not None else ()
        return (self.signing.certificate, *announced, *(each.certificate for each in self.retired))

    @property
    def bundle(self) -> bytes:
        """The same as PEM, for a caBundle."""
        return b"".join(each.public_bytes(Encoding.PEM) for each in self.certificates)


def first(*, believed: Collection[x509.Certificate], now: datetime) -> Authorities:
    """Answer the first state: a new authority; what is `believed` already goes on being so for a leaf's life.

    That is how a deleted Secret does no harm: what replicas show still verifies.
    """
    return _believing(Authorities(_new(now)), believed, now)


def next_step(
    current: Authorities,
    *,
    now: datetime,
    serving: x509.Certificate | None,
    replacing: x509.Certificate | None,
    has_settled: Callable[[x509.Certificate], bool],
) -> Authorities | None:
    """Answer the state after the next step, None where there is nothing to do.

    Args:
        current: the state as it was just read.
        now: an aware datetime.
        serving: whose certificate the caller shows, if he does. If the state knows nothing of it (somebody put another
            pair into the Secret), it is retired as it should have been.
        replacing: an authority that shall sign no more, whatever its age.
        has_settled: whether every API server believes an authority.
    """
    signing = current.signing.certificate
    if serving is not None and serving not in current.certificates and now < serving.not_valid_after_utc:
        return _believing(current, (serving,), now)
    if current.announced is not None:
        if has_settled(current.announced.certificate):
            return _believing(Authorities(current.announced, retired=current.retired), (signing,), now)
    elif signing == replacing or _is_due(signing, now):
        return Authorities(current.signing, _new(now), current.retired)
    kept = tuple(each for each in current.retired if now < each.until)
    if kept != current.retired:
        return Authorities(current.signing, current.announced, kept)
    return None


def _new(now: datetime) -> KeyPair:
    return new_authority(_COMMON_NAME, lifetime=LIFETIME, now=now)


def _is_due(certificate: x509.Certificate, now: datetime) -> bool:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= begin + (end - begin) * 2 / 3


def _believing(current: Authorities, certificates: Collection[x509.Certificate], now: datetime) -> Authorities:
    more = tuple(
        Retired(each, min(now + _RETIRED_FOR, each.not_valid_after_utc))
        for each in certificates
        if each not in current.certificates and each.not_valid_before_utc <= now < each.not_valid_after_utc
    )
    return Authorities(current.signing, current.announced, (*current.retired, *more))
