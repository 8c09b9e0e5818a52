"""The gangs of a cluster, put together as the scheduler does, by what the API server shows."""

import sys
import time

import msgspec

from allocation.steps import finish
from cli.explain import scheduler_state
from cli.installation.rules import Rules
from cli.kube import own_kinds
from cli.kube.client import Client
from cli.kube.objects import NOT_FAILED
from cluster.pod_group import KubernetesPodGroup, PodGroup
from cluster.resource import KUBERNETES_POD_GROUPS, POD_GROUPS, PODS
from scheduler.api import gang_view
from scheduler.api.gang_types import GangsView
from scheduler.objects import Pod, PodCondition, PodStatus


class _Condition(PodCondition, frozen=True, rename="camel", gc=False):
    """A condition of a pod with its message."""

    message: str = ""


class _Status(PodStatus, rename="camel", gc=False):
    """The status of a pod with its conditions."""

    conditions: tuple[_Condition, ...] = ()


class _Pod(Pod, gc=False):
    """A pod with the reason why it waits."""

    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def message(self) -> str:
        """Why it waits; empty if nothing was published."""
        return next((c.message for c in self.status.conditions if (c.type, c.status) == ("PodScheduled", "False")), "")


def read(client: Client, rules: Rules, *, namespace: str, name: str) -> GangsView:
    """Return the gangs of a namespace, or of all if it is empty; with a `name` only those of that name.

    A scheduler knows more: for how long a gang pauses, and that its pods are being bound.

    Raises:
        CommandError: pods or GpuClaims may not be read.
    """
    state, messages = scheduler_state.empty(rules, time.monotonic), dict[str, str]()
    if state.pod_groups.are_read:
        for group in own_kinds.pod_groups(client, POD_GROUPS, PodGroup, namespace=namespace):
            state.pod_groups.set(group)
        for own in own_kinds.pod_groups(client, KUBERNETES_POD_GROUPS, KubernetesPodGroup, namespace=namespace):
            state.pod_groups.set(own)
    for claim in own_kinds.gpu_claims(client, namespace=namespace):
        state.set_claim(claim)
    for pod in client.list(PODS, _Pod, namespace=namespace, field_selector=NOT_FAILED):
        state.set_pod(pod)
        messages[pod.uid] = pod.message

    def message(uid: str) -> str:
        return messages.get(uid, "")

    return finish(gang_view.view(state, message, namespace=namespace, name=name, most=sys.maxsize - 1))
