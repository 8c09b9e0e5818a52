"""Find out why no pod of a component is ready."""

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from allocation.names import SYSTEM_NAMESPACE
from cli.errors import MissingRightError
from cli.kube.client import Client
from cluster.metadata import ObjectMeta
from cluster.resource import PODS

Component = Literal["webhook", "scheduler", "agent"]

_COMPONENT: Final = "app.kubernetes.io/component"
_LONGEST: Final = 200
"""The number of characters of a kubelet's message to show; messages repeat image and registry several times."""


class _Meta(ObjectMeta, rename="camel"):
    labels: dict[str, str] = {}


class _Waiting(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _State(msgspec.Struct, frozen=True):
    waiting: _Waiting | None = None
    terminated: _Waiting | None = None


class _ContainerStatus(msgspec.Struct, frozen=True):
    state: _State = _State()


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    conditions: tuple[_Condition, ...] = ()
    container_statuses: tuple[_ContainerStatus, ...] = ()


class ProcessPod(msgspec.Struct):
    """A pod of a component and the status that its kubelet reports."""

    metadata: _Meta
    status: _Status = _Status()

    @property
    def is_ready(self) -> bool:
        """Whether its condition Ready is True."""
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions)

    @property
    def reason(self) -> str:
        """The reason why it is not ready, from the state of a container or from its conditions."""
        for container in self.status.container_statuses:
            state = container.state.waiting or container.state.terminated
            if state is not None and state.reason:
                return _text(state.reason, state.message)
        for condition in self.status.conditions:
            if condition.status == "False" and condition.reason:
                return _text(condition.reason, condition.message)
        return f"its phase is {self.status.phase or 'unknown'}"


def of_component(client: Client, component: Component) -> list[ProcessPod] | None:
    """Return the pods of a component, or None if listing them is forbidden."""
    try:
        pods = client.list(PODS, ProcessPod, namespace=SYSTEM_NAMESPACE)
    except MissingRightError:
        return None
    return [pod for pod in pods if pod.metadata.labels.get(_COMPONENT) == component]


def diagnose(pods: Iterable[ProcessPod] | None, component: Component) -> tuple[str, str]:
    """Return the problem with the pods of a component, and the next step.

    If all pods are ready, the next step is the log of the process.
    """
    workload = f"{'daemonset' if component == 'agent' else 'deployment'}/tranche-{component}"
    describe = f"see 'kubectl -n {SYSTEM_NAMESPACE} describe {workload}'"
    if pods is None:
        return "listing its pods is forbidden", describe
    pods = sorted(pods, key=lambda pod: pod.metadata.name)
    if not pods:
        return "it has no pod", f"{describe}, or start it if it runs outside the cluster"
    failing = next((pod for pod in pods if not pod.is_ready), None)
    if failing is None:
        return "its pods are ready", f"see 'kubectl -n {SYSTEM_NAMESPACE} logs {workload}'"
    name = failing.metadata.name
    return f"pod {name}: {failing.reason}", f"see 'kubectl -n {SYSTEM_NAMESPACE} describe pod {name}'"


def _text(reason: str, message: str) -> str:
    message = " ".join(message.split())
    if len(message) > _LONGEST:
        message = f"{message[:_LONGEST]}…"
    return f"{reason}: {message}" if message else reason
