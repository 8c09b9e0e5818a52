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
from msgspec import structs

from certs import ca_bundle, leaf
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
        leaf_generation: changes when every leaf is to be made anew, whatever its age.
    """

    signing: KeyPair
    announced: KeyPair | None = None
    retired: tuple[Retired, ...] = ()
    leaf_generation: str = ""

    @property
    def certificates(self) -> tuple[x509.Certificate, ...]:
        """The certificates of all, which is what API servers are to believe."""
        announced = (self.announced.certificate,) if self.announced is not None else ()
        return (self.signing.certificate, *announced, *(each.certificate for each in self.retired))

    @property
    def bundle(self) -> bytes:
        """The same as PEM, for a caBundle: it stays as it is when the announced one begins to sign."""
        return ca_bundle.joined(self.certificates)

    @property
    def shown_next(self) -> x509.Certificate:
        """Whose certificates the webhook shows by its canary name, as soon as it has seen this state."""
        return (self.announced or self.signing).certificate

    def next_signer(self, serving: x509.Certificate | None) -> KeyPair | None:
        """Answer whose certificates are shown next, None where that is who signs those that are shown now.

        Args:
            serving: whose certificate the caller shows, if he does.
        """
        if self.announced is not None:
            return self.announced
        return self.signing if serving not in (None, self.signing.certificate) else None


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
    is_believed: Callable[[x509.Certificate], bool],
) -> Authorities | None:
    """Answer the state after the next step, None where there is nothing to do.

    Args:
        current: the state as it was just read.
        now: an aware datetime.
        serving: whose certificate the caller shows, if he does. If the state knows nothing of it (somebody put another
            pair into the Secret), it is retired as it should have been.
        replacing: an authority that shall sign no more, whatever its age.
        is_believed: whether every API server believes an authority.
    """
    signing = current.signing.certificate
    if serving is not None and serving not in current.certificates and now < serving.not_valid_after_utc:
        return _believing(current, (serving,), now)
    if current.announced is not None:
        if is_believed(current.announced.certificate):
            promoted = structs.replace(current, signing=current.announced, announced=None)
            return _believing(promoted, (signing,), now)
    elif signing == replacing or _is_due(signing, now):
        return structs.replace(current, announced=_new(now))
    kept = tuple(each for each in current.retired if now < each.until)
    if kept != current.retired:
        return structs.replace(current, retired=kept)
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
    return structs.replace(current, retired=(*current.retired, *more))
