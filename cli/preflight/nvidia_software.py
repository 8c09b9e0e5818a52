"""What NVIDIA's GPU Operator and device plugin run on each node with, by their pods, else by the ClusterPolicy.

The operator configures the container toolkit of a node by environment variables of the toolkit's pod there. They are
what the toolkit writes into its configuration, which the agent reads only with the component manifests/delivery.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from allocation.delivery import Toolkit
from cli.preflight import hami_objects
from cli.preflight.cluster_snapshot import ClusterPolicy, ClusterSnapshot, Container
from scheduler.objects import FINISHED, LabelledMeta, PodStatus

_DEPLOY_TOOLKIT: Final = "nvidia.com/gpu.deploy.container-toolkit"
_STRATEGY: Final = "DEVICE_LIST_STRATEGY"
_MODE: Final = "NVIDIA_CONTAINER_RUNTIME_MODE"
_KIND: Final = "NVIDIA_CONTAINER_RUNTIME_MODES_CDI_DEFAULT_KIND"
_ACCEPTS: Final = "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED"
_NRI: Final = "ENABLE_NRI_PLUGIN"
_DEFAULT_RUNTIME: Final = ("NVIDIA_RUNTIME_SET_AS_DEFAULT", "CONTAINERD_SET_AS_DEFAULT")
_MANAGEMENT: Final = "management.nvidia.com/gpu"
_VERSION: Final = re.compile(r":v?(\d+\.\d+\.\d+)")


class OperatorToolkit(msgspec.Struct, frozen=True):
    """The container toolkit of a node, as the GPU Operator configures it.

    Attributes:
        source: the object that says so, such as `pod gpu-operator/nvidia-container-toolkit-daemonset-x`.
        toolkit: mode, version and the other settings.
        is_default_runtime: whether containers without a RuntimeClass run with NVIDIA's runtime.
        has_nri_plugin: whether the operator's NRI plugin runs instead of NVIDIA's runtime.
    """

    source: str
    toolkit: Toolkit
    is_default_runtime: bool = False
    has_nri_plugin: bool = False


class NvidiaSoftware(msgspec.Struct, frozen=True):
    """NVIDIA's software on a node; what no object tells is None.

    Attributes:
        operator: the container toolkit by the GPU Operator's objects.
        device_list_strategies: how NVIDIA's device plugin passes devices, such as `envvar` or `cdi-cri`.
    """

    operator: OperatorToolkit | None = None
    device_list_strategies: tuple[str, ...] | None = None


class _PodSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    containers: tuple[Container, ...] = ()


class _Pod(msgspec.Struct):
    metadata: LabelledMeta
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


def read(snapshot: ClusterSnapshot) -> dict[str, NvidiaSoftware]:
    """Return NVIDIA's software by node, for the nodes of which any object tells something."""
    software: dict[str, NvidiaSoftware] = {}
    for policy in snapshot.cluster_policies:
        toolkit = _by_policy(policy)
        for node in snapshot.nodes:
            if node.metadata.labels.get(_DEPLOY_TOOLKIT) == "true":
                software[node.metadata.name] = NvidiaSoftware(toolkit)
    for pod in _pods(snapshot.pods):
        known = software.get(pod.spec.node_name, NvidiaSoftware())
        if hami_objects.is_toolkit(pod.metadata.name, pod.metadata.labels):
            known = msgspec.structs.replace(known, operator=_by_pod(pod))
        elif hami_objects.plugin_of(pod.metadata.name, pod.metadata.labels) == "NVIDIA's":
            text = _variables(pod.spec.containers).get(_STRATEGY, "")
            if strategies := tuple(each.strip() for each in text.split(",") if each.strip()):
                known = msgspec.structs.replace(known, device_list_strategies=strategies)
        software[pod.spec.node_name] = known
    return software


def _pods(raws: Iterable[msgspec.Raw]) -> Iterable[_Pod]:
    """Return the pods of the toolkit and of device plugins that run on a node."""
    for raw in raws:
        if not any(word.encode() in bytes(raw) for word in (hami_objects.TOOLKIT, hami_objects.NVIDIA_PLUGIN)):
            continue
        try:
            pod = msgspec.json.decode(raw, type=_Pod)
        except msgspec.DecodeError:
            continue  # a fact less, which no finding needs
        if pod.spec.node_name and pod.status.phase not in FINISHED:
            yield pod


def _by_pod(pod: _Pod) -> OperatorToolkit:
    versions = [match[1] for each in pod.spec.containers if (match := _VERSION.search(each.image))]
    source = f"pod {pod.metadata.namespace}/{pod.metadata.name}"
    return _toolkit(source, _variables(pod.spec.containers), version=versions[0] if versions else "")


def _by_policy(policy: ClusterPolicy) -> OperatorToolkit:
    """Return the toolkit that a ClusterPolicy asks for, by the variables that the operator would set."""
    cdi = policy.spec.cdi
    variables = {_MODE: "cdi", _KIND: _MANAGEMENT, _NRI: str(cdi.nri_plugin_enabled)} if cdi.enabled else {}
    variables |= {each.name: each.value for each in policy.spec.toolkit.env}
    match = _VERSION.match(f":{policy.spec.toolkit.version}")
    return _toolkit(f"ClusterPolicy {policy.metadata.name}", variables, version=match[1] if match else "")


def _variables(containers: Iterable[Container]) -> dict[str, str]:
    return {each.name: each.value for container in containers for each in container.env}


def _toolkit(source: str, variables: Mapping[str, str], *, version: str) -> OperatorToolkit:
    return OperatorToolkit(
        source,
        Toolkit(
            mode=variables.get(_MODE, "auto"),
            version=version,
            default_kind=variables.get(_KIND, ""),
            accepts_variable=_is_true(variables.get(_ACCEPTS, "true")),
        ),
        is_default_runtime=_is_true(next((variables[each] for each in _DEFAULT_RUNTIME if each in variables), "")),
        has_nri_plugin=_is_true(variables.get(_NRI, "")),
    )


def _is_true(text: str) -> bool:
    return text.lower() in ("true", "t", "1")
