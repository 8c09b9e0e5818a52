"""Settings for certificates."""

from typing import Annotated, Literal

import msgspec

from allocation.names import SYSTEM_NAMESPACE
from certs.ca_bundle import CONFIGURATION

CANARY_NAME = f"tranche-webhook-canary.{SYSTEM_NAMESPACE}.svc"
"""The name of a second Service that selects the webhook's pods."""

_Pause = Annotated[float, msgspec.Meta(gt=0)]
_Wait = Annotated[float, msgspec.Meta(ge=0)]


class ServerCertificateSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings for the certificates of a process that serves.

    Attributes:
        source: who creates the certificates: `self` (the process, with the authority of a Secret), `files` (an
            administrator puts them into a folder, the process publishes its ca.crt), `cert-manager` (as `files`, but
            cert-manager's cainjector publishes the ca.crt).
        folder: the folder with `tls.crt`, `tls.key` and `ca.crt` for `files` and `cert-manager`.
        canary_name: the name by which the API server tests a certificate that is not in service yet (`self` only).
        poll_seconds: how often to read the Secret or the folder.
        settle_seconds: how long a caBundle must be unchanged before every API server is assumed to use it.
    """

    source: Literal["self", "files", "cert-manager"] = "self"
    folder: str = "/etc/tranche-tls"
    canary_name: str = CANARY_NAME
    poll_seconds: _Pause = 5.0
    settle_seconds: _Wait = 10.0


class CertsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of `python -m certs`.

    Attributes:
        webhook_configuration: the MutatingWebhookConfiguration that carries the caBundle.
        settle_seconds: as in `ServerCertificateSettings`.
    """

    webhook_configuration: str = CONFIGURATION
    settle_seconds: _Wait = 10.0


class RotateSettings(CertsSettings, frozen=True, forbid_unknown_fields=True):
    """Settings of `python -m certs rotate`.

    Attributes:
        ca: replace the authority and with it every certificate; otherwise replace only the certificates.
        dry_run: only report what would be done, and whether the API server trusts the webhook.
        probe: HOST:PORT of every replica that must be seen to serve a new certificate.
        drop_old: remove the old authorities from the caBundle as soon as every probe serves a new certificate, instead
            of when their last certificate has expired; name every replica in `probe`.
        poll_seconds: how often to check whether a step is done.
        timeout_seconds: the time limit of the whole rotation.
    """

    ca: bool = False
    dry_run: bool = False
    probe: tuple[str, ...] = ()
    drop_old: bool = False
    poll_seconds: _Pause = 1.0
    timeout_seconds: _Pause = 120.0
