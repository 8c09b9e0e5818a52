"""How HAMi and NVIDIA's device plugin show: by the names that their charts give."""

from typing import Final, Literal

from cli.migration.survey import WebhookConfiguration

SCHEDULER_NAME: Final = "hami-scheduler"
SCHEDULER: Final = "hami-scheduler"
PLUGIN: Final = "hami-device-plugin"
NVIDIA_PLUGIN: Final = "nvidia-device-plugin"
COMPONENT: Final = "app.kubernetes.io/component"
WEBHOOK_SUFFIX: Final = "hami.io"
WORDS: Final = (SCHEDULER, PLUGIN, NVIDIA_PLUGIN, "hami.io/")
"""One of these is in every object of theirs that matters here."""

Plugin = Literal["HAMi's", "NVIDIA's"]


def is_hamis(configuration: WebhookConfiguration) -> bool:
    """Whether a webhook configuration is HAMi's, whose only webhook is called vgpu.hami.io."""
    return any(webhook.name.endswith(WEBHOOK_SUFFIX) for webhook in configuration.webhooks)


def plugin_of(name: str, labels: dict[str, str]) -> Plugin | None:
    """Answer whose device plugin a pod or DaemonSet is, None where it is none."""
    said = (name, *labels.values())
    if any(PLUGIN in word for word in said):
        return "HAMi's"
    if any(NVIDIA_PLUGIN in word for word in said):
        return "NVIDIA's"
    return None
