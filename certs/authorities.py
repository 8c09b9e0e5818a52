"""The webhook's certificate authorities over time, and the steps of a rotation that fails no admission.

One authority signs. A rotation announces the next one and publishes both in the caBundle. Once every API server trusts
the announced authority, it becomes the signer and the old one is retired: nothing is signed with it any more, but it
stays trusted until its last certificate has expired. Each step is a function of the state before it, so any process
that reads a state can continue from there, whichever process took the last step and whether it is still running.
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
# A process that read the state just before it changed may still sign with the old authority.
_RETIRED_FOR = leaf.LIFETIME + timedelta(hours=1)


class Retired(msgspec.Struct, frozen=True):
    """An authority that no longer signs, and the time until which its certificates may still be in use."""

    certificate: x509.Certificate
    until: datetime


class Authorities(msgspec.Struct, frozen=True):
    """The authorities in use at one time; no two of them are the same.

    Attributes:
        signing: the authority that signs the certificates of servers.
        announced: the authority that signs next, during a rotation.
        retired: the authorities that signed before.
        leaf_generation: a change of this value makes every replica issue a new leaf, whatever the age of its old one.
    """

    signing: KeyPair
    announced: KeyPair | None = None
    retired: tuple[Retired, ...] = ()
    leaf_generation: str = ""

    @property
    def certificates(self) -> tuple[x509.Certificate, ...]:
        """The certificates of all authorities: those that API servers are to trust."""
        announced = (self.announced.certificate,) if self.announced is not None else ()
        return (self.signing.certificate, *announced, *(each.certificate for each in self.retired))

    @property
    def bundle(self) -> bytes:
        """The certificates as PEM, for a caBundle; promoting the announced authority does not change it."""
        return ca_bundle.to_pem(self.certificates)

    @property
    def canary_authority(self) -> x509.Certificate:
        """The authority whose certificates a webhook that has read this state serves under its canary name."""
        return (self.announced or self.signing).certificate

    def next_signer(self, serving: x509.Certificate | None) -> KeyPair | None:
        """Return the authority of the caller's next certificate, or None where it is that of its current one.

        Args:
            serving: the authority of the certificate that the caller serves, if it serves one.
        """
        if self.announced is not None:
            return self.announced
        return self.signing if serving not in (None, self.signing.certificate) else None


def initial(*, trusted: Collection[x509.Certificate], now: datetime) -> Authorities:
    """Return the first state: a new authority. Authorities that are already `trusted` stay so for a leaf's lifetime.

    So a deleted Secret does no harm: the certificates that replicas serve still verify.
    """
    return _with_retired(Authorities(_new(now)), trusted, now)


def next_step(
    current: Authorities,
    *,
    now: datetime,
    serving: x509.Certificate | None,
    replacing: x509.Certificate | None,
    is_trusted: Callable[[x509.Certificate], bool],
) -> Authorities | None:
    """Return the state after the next step, or None where there is nothing to do.

    Args:
        current: the state as it was just read.
        now: an aware datetime.
        serving: the authority of the certificate that the caller serves, if it serves one. Where the state does not
            contain it (another client put another key pair into the Secret), it is retired as it should have been.
        replacing: an authority that must stop signing, whatever its age.
        is_trusted: whether every API server trusts an authority.
    """
    signing = current.signing.certificate
    if serving is not None and serving not in current.certificates and now < serving.not_valid_after_utc:
        return _with_retired(current, (serving,), now)
    if current.announced is not None:
        if is_trusted(current.announced.certificate):
            promoted = structs.replace(current, signing=current.announced, announced=None)
            return _with_retired(promoted, (signing,), now)
    elif signing == replacing or _is_due(signing, now):
        return structs.replace(current, announced=_new(now))
    still_trusted = tuple(each for each in current.retired if now < each.until)
    if still_trusted != current.retired:
        return structs.replace(current, retired=still_trusted)
    return None


def _new(now: datetime) -> KeyPair:
    return new_authority(_COMMON_NAME, lifetime=LIFETIME, now=now)


def _is_due(certificate: x509.Certificate, now: datetime) -> bool:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= begin + (end - begin) * 2 / 3


def _with_retired(current: Authorities, certificates: Collection[x509.Certificate], now: datetime) -> Authorities:
    """Return `current` with those of `certificates` that are valid now added to the retired authorities."""
    more = tuple(
        Retired(each, min(now + _RETIRED_FOR, each.not_valid_after_utc))
        for each in certificates
        if each not in current.certificates and each.not_valid_before_utc <= now < each.not_valid_after_utc
    )
    return structs.replace(current, retired=(*current.retired, *more))
