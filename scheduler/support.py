"""Which pods this loop can place rightly. A pod that uses a field it does not evaluate is held, never misplaced.

Preferences (preferred affinity, ScheduleAnyway, PreferNoSchedule) are no matter of where a pod may run: they are
accepted, and not followed. What `os` and `runtimeClassName` ask of a node, admission has written into nodeSelector,
tolerations and overhead; the API server has given a pod with hostNetwork its host ports.
"""

from typing import Final

from scheduler.objects import PodSpec, Volume

EVALUATED: Final = frozenset(
    {
        "affinity",
        "containers",
        "initContainers",
        "nodeName",
        "nodeSelector",
        "overhead",
        "priority",
        "resources",
        "schedulerName",
        "schedulingGates",
        "tolerations",
        "topologySpreadConstraints",
        "volumes",
    }
)
"""The fields of a pod's spec that decide who places it, when, and where. A test holds this list and HELD against the
API's: a field that is new there must be sorted in."""

HELD: Final = frozenset({"resourceClaims", "schedulingGroup", "workloadRef"})
"""Those of which this loop knows only that they decide, too."""


def unsupported(spec: PodSpec) -> str:
    """Answer the field that this loop does not evaluate, empty where it evaluates all that the pod uses."""
    if spec.resource_claims:
        return "spec.resourceClaims"
    if spec.scheduling_group is not None:
        return "spec.schedulingGroup"
    if spec.workload_ref is not None:
        return "spec.workloadRef"
    for volume in spec.volumes:
        if not _is_everywhere(volume):
            return f"spec.volumes[{volume.name}]"
    return ""


def remedy(field: str) -> str:
    """Answer what a user may do about `field`."""
    return f"{field} is not evaluated in loop mode; remove it, or run the scheduler as an extender of kube-scheduler"


def _is_everywhere(volume: Volume) -> bool:
    """Whether every node can mount the volume, and as many of its kind as are asked for."""
    sources = (
        volume.config_map,
        volume.downward_api,
        volume.empty_dir,
        volume.git_repo,
        volume.host_path,
        volume.image,
        volume.nfs,
        volume.projected,
        volume.secret,
    )
    return any(source is not None for source in sources)
