"""Recognize the objects of HAMi and of NVIDIA's software by the names that their charts give."""

from collections.abc import Mapping
from typing import Final, Literal

from cli.preflight.cluster_snapshot import WebhookConfiguration

SCHEDULER_NAME: Final = "hami-scheduler"
SCHEDULER: Final = "hami-scheduler"
PLUGIN: Final = "hami-device-plugin"
NVIDIA_PLUGIN: Final = "nvidia-device-plugin"
TOOLKIT: Final = "nvidia-container-toolkit"
COMPONENT: Final = "app.kubernetes.io/component"
WEBHOOK_SUFFIX: Final = "hami.io"
WORDS: Final = (SCHEDULER, PLUGIN, NVIDIA_PLUGIN, TOOLKIT, "hami.io/")
"""Every object of HAMi or of NVIDIA's software that preflight reads contains one of these."""

Plugin = Literal["HAMi's", "NVIDIA's"]


def is_hamis(configuration: WebhookConfiguration) -> bool:
    """Whether a webhook configuration is HAMi's, whose only webhook is called vgpu.hami.io."""
    return any(webhook.name.endswith(WEBHOOK_SUFFIX) for webhook in configuration.webhooks)


def plugin_of(name: str, labels: Mapping[str, str]) -> Plugin | None:
    """Return the vendor of a pod or DaemonSet that is a device plugin, otherwise None."""
    values = (name, *labels.values())
    if any(PLUGIN in value for value in values):
        return "HAMi's"
    if any(NVIDIA_PLUGIN in value for value in values):
        return "NVIDIA's"
    return None


def is_toolkit(name: str, labels: Mapping[str, str]) -> bool:
    """Whether a pod or DaemonSet installs NVIDIA's container toolkit on its node."""
    return any(TOOLKIT in value for value in (name, *labels.values()))
