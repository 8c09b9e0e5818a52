"""What an administrator may decide about certificates."""

from typing import Annotated

import msgspec

from certs.ca_bundle import CONFIGURATION

_Pause = Annotated[float, msgspec.Meta(gt=0)]
_Wait = Annotated[float, msgspec.Meta(ge=0)]


class UpkeepSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of the certificates of a process that serves.

    Attributes:
        poll_seconds: how often the Secret and the caBundle are looked at; what somebody broke is whole again so soon.
        settle_seconds: how long a caBundle stands unchanged before it is taken that every API server goes by it.
    """

    poll_seconds: _Pause = 5.0
    settle_seconds: _Wait = 10.0


class CertsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of `python -m certs`.

    Attributes:
        webhook_configuration: the MutatingWebhookConfiguration that carries the caBundle.
        settle_seconds: as in `UpkeepSettings`.
    """

    webhook_configuration: str = CONFIGURATION
    settle_seconds: _Wait = 10.0


class RotateSettings(CertsSettings, frozen=True, forbid_unknown_fields=True):
    """Of `python -m certs rotate`.

    Attributes:
        probe: HOST:PORT of every replica that shall be seen to show a certificate of the new authority.
        drop_old: whether the old authorities leave the caBundle as soon as every probe showed a new certificate,
            instead of when their last certificate has expired; name every replica.
        poll_seconds: how often to look whether a step is done.
        timeout_seconds: how long all of it may take.
    """

    probe: tuple[str, ...] = ()
    drop_old: bool = False
    poll_seconds: _Pause = 1.0
    timeout_seconds: _Pause = 120.0
