"""What a command goes by that must read requests as the processes do: their configuration file, else its defaults."""

from typing import TYPE_CHECKING

from allocation.settings import AllocationSettings

if TYPE_CHECKING:
    from cluster.configuration import Configuration
    from webhook.settings import WebhookSettings


def allocation(path: str, *, prog: str) -> AllocationSettings:
    """Answer the section `allocation` of the file at `path`, its defaults where no path is given."""
    return whole(path, prog=prog).allocation if path else AllocationSettings()


def whole(path: str, *, prog: str) -> "Configuration[WebhookSettings]":
    """Answer the sections that requests are read by; ends the process where the file is wrong (2)."""
    from cluster import configuration  # noqa: PLC0415 -- most people have no such file at hand, and it takes its time
    from webhook.settings import WebhookSettings  # noqa: PLC0415 -- the same

    return configuration.load(
        ["--config", path], section="webhook", settings=WebhookSettings, prog=prog, description=""
    )
