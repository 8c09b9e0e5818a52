"""What an administrator may decide about certificates."""

from typing import Annotated, Literal

import msgspec

from allocation.names import SYSTEM_NAMESPACE
from certs.ca_bundle import CONFIGURATION

CANARY_NAME = f"tranche-webhook-canary.{SYSTEM_NAMESPACE}.svc"
"""Of a Service whose calls reach the webhook as well."""

_Pause = Annotated[float, msgspec.Meta(gt=0)]
_Wait = Annotated[float, msgspec.Meta(ge=0)]


class UpkeepSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of the certificates of a process that serves.

    Attributes:
        source: who makes them: `self` (we do, with the authority of a Secret), `files` (somebody puts them into a
            folder, we publish its ca.crt), `cert-manager` (the same, and cert-manager's cainjector publishes).
        folder: where `files` and `cert-manager` put `tls.crt`, `tls.key` and `ca.crt`.
        canary_name: by which the API server calls to try out a certificate that is not in service yet (`self` only).
        poll_seconds: how often the Secret or the folder is looked at.
        settle_seconds: how long a caBundle stands unchanged before it is taken that every API server goes by it.
    """

    source: Literal["self", "files", "cert-manager"] = "self"
    folder: str = "/etc/tranche-tls"
    canary_name: str = CANARY_NAME
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
        ca: whether the authority is replaced, and every certificate with it; otherwise only the certificates are.
        dry_run: only say what would be done, and whether the API server would take part.
        probe: HOST:PORT of every replica that shall be seen to show a new certificate.
        drop_old: whether the old authorities leave the caBundle as soon as every probe showed a new certificate,
            instead of when their last certificate has expired; name every replica.
        poll_seconds: how often to look whether a step is done.
        timeout_seconds: how long all of it may take.
    """

    ca: bool = False
    dry_run: bool = False
    probe: tuple[str, ...] = ()
    drop_old: bool = False
    poll_seconds: _Pause = 1.0
    timeout_seconds: _Pause = 120.0
