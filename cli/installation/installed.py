"""The installed configuration: the ConfigMap that the Deployments mount, and the flags of the Deployments."""

from typing import Final

import msgspec

from allocation.names import SYSTEM_NAMESPACE
from cli.errors import MissingRightError
from cli.installation import method
from cli.installation.method import Method
from cli.kube.client import Client
from cluster.errors import NotFoundError
from cluster.metadata import ObjectMeta
from cluster.resource import CONFIG_MAPS, DEPLOYMENTS

DEFAULTS: Final = "the defaults are assumed; use --config to name another file"
"""The end of a note about configuration that cannot be read."""
SCHEDULER: Final = "tranche-scheduler"
WEBHOOK: Final = "tranche-webhook"
CONFIG_MAP: Final = "tranche"
_MOUNTED_AT: Final = "/etc/tranche"
_KEY: Final = "config.yaml"


class _ConfigMap(msgspec.Struct):
    metadata: ObjectMeta
    data: dict[str, str] = {}


class _Mount(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    mount_path: str = ""


class _Container(msgspec.Struct, frozen=True, rename="camel"):
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    volume_mounts: tuple[_Mount, ...] = ()


class _Source(msgspec.Struct, frozen=True):
    name: str = ""


class _Volume(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    config_map: _Source | None = None


class _PodSpec(msgspec.Struct, frozen=True):
    containers: tuple[_Container, ...] = ()
    volumes: tuple[_Volume, ...] = ()


class _Template(msgspec.Struct, frozen=True):
    spec: _PodSpec = _PodSpec()


class _Spec(msgspec.Struct, frozen=True):
    template: _Template = _Template()


class _DeploymentMeta(ObjectMeta, rename="camel"):
    annotations: dict[str, str] = {}


class _Deployment(msgspec.Struct):
    metadata: _DeploymentMeta
    spec: _Spec = _Spec()

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags of its process, which is the first container in every overlay: `python3 -m MODULE [FLAG]...`."""
        containers = self.spec.template.spec.containers
        words = (*containers[0].command, *containers[0].args) if containers else ()
        return words[words.index("-m") + 2 :] if "-m" in words else words[1:]

    @property
    def config_map(self) -> str:
        """The name of the ConfigMap that its process reads, or an empty string."""
        spec = self.spec.template.spec
        mounts = spec.containers[0].volume_mounts if spec.containers else ()
        volumes = {mount.name for mount in mounts if mount.mount_path == _MOUNTED_AT}
        return next((each.config_map.name for each in spec.volumes if each.name in volumes and each.config_map), "")


class Installed(msgspec.Struct, frozen=True):
    """The configuration with which the processes start.

    Attributes:
        source: the name of the ConfigMap, for messages.
        text: the configuration file; empty if it does not exist or may not be read.
        scheduler_flags: the flags of the scheduler's Deployment, which override the file.
        webhook_flags: the flags of the webhook's Deployment, which override the file.
        gaps: one sentence for each object that does not exist or may not be read.
        method: how the Deployments were installed.
    """

    source: str
    text: str = ""
    scheduler_flags: tuple[str, ...] = ()
    webhook_flags: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    method: Method = Method()


def read(client: Client) -> Installed:
    """Read the configuration from the cluster of `client`."""
    gaps: list[str] = []
    scheduler, webhook = (_deployment(client, name, gaps) for name in (SCHEDULER, WEBHOOK))
    found = [each for each in (scheduler, webhook) if each is not None]
    name = next((each.config_map for each in found if each.config_map), CONFIG_MAP)
    return Installed(
        source=f"ConfigMap {SYSTEM_NAMESPACE}/{name}",
        text=_text(client, name, gaps),
        scheduler_flags=scheduler.flags if scheduler is not None else (),
        webhook_flags=webhook.flags if webhook is not None else (),
        gaps=tuple(gaps),
        method=method.of_object(found[0].metadata.annotations) if found else Method(),
    )


def _deployment(client: Client, name: str, gaps: list[str]) -> _Deployment | None:
    try:
        return client.get(DEPLOYMENTS, _Deployment, name=name, namespace=SYSTEM_NAMESPACE)
    except NotFoundError:
        return None  # the processes run outside of the cluster, or not at all: only the ConfigMap counts
    except MissingRightError as error:
        gaps.append(f"the flags of Deployment {SYSTEM_NAMESPACE}/{name} cannot be read: {error}")
        return None


def _text(client: Client, name: str, gaps: list[str]) -> str:
    label = f"ConfigMap {SYSTEM_NAMESPACE}/{name}"
    try:
        config_map = client.get(CONFIG_MAPS, _ConfigMap, name=name, namespace=SYSTEM_NAMESPACE)
    except NotFoundError:
        gaps.append(f"{label} does not exist")
        return ""
    except MissingRightError as error:
        gaps.append(f"{label} cannot be read: {error}")
        return ""
    if _KEY not in config_map.data:
        gaps.append(f"{label} has no key {_KEY}")
    return config_map.data.get(_KEY, "")
