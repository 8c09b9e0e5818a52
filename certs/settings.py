"""What an administrator may decide about certificates."""

import msgspec

from certs.ca_bundle import CONFIGURATION


class CertsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of `python -m certs`.

    Attributes:
        webhook_configuration: the MutatingWebhookConfiguration that carries the caBundle.
    """

    webhook_configuration: str = CONFIGURATION
