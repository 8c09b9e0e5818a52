"""The fields of a pod that the loop does not evaluate. A pod that uses one is held instead of being misplaced.

Preferences (preferred affinity, ScheduleAnyway, PreferNoSchedule) never make a node infeasible; `scheduler.scoring`
follows them. Admission has already translated `os` and `runtimeClassName` into nodeSelector, tolerations and overhead;
the API server has set the host ports of a pod with hostNetwork.
"""

from typing import Final

from scheduler.pod_spec.spec import PodSpec

SUPPORTED: Final = frozenset(
    {
        "affinity",
        "containers",
        "initContainers",
        "nodeName",
        "nodeSelector",
        "overhead",
        "preemptionPolicy",
        "priority",
        "resources",
        "schedulerName",
        "schedulingGates",
        "terminationGracePeriodSeconds",
        "tolerations",
        "topologySpreadConstraints",
        "volumes",
    }
)
"""The fields of a pod's spec that determine which scheduler places it, when and where.

A test compares this list and UNSUPPORTED with the fields of the API: a new field must be added to one of them.
"""

UNSUPPORTED: Final = frozenset({"resourceClaims", "schedulingGroup", "workloadRef"})
"""Fields that affect placement; pods that use them are held, but those of a PodGroup where PodGroups are read."""
CLAIMS: Final = "spec.resourceClaims"
_GROUP: Final = "spec.schedulingGroup"
_REMEDIES: Final = {
    CLAIMS: ", let such pods be handed over (allocation.resource_claims) and create this one again",
    _GROUP: ", let PodGroups be read (gangs.pod_groups)",
}


def unsupported(spec: PodSpec, *, reads_pod_groups: bool) -> str:
    """Return a field of the pod that the loop does not evaluate, or an empty string."""
    if spec.resource_claims:
        return CLAIMS
    group = spec.scheduling_group
    if group is not None and not (reads_pod_groups and group.pod_group_name):
        return _GROUP
    if spec.workload_ref is not None:
        return "spec.workloadRef"
    return ""


def remedy(field: str) -> str:
    """Return the message for the owner of a pod that uses `field`."""
    more = _REMEDIES.get(field, "")
    return (
        f"{field} is not evaluated in loop mode; remove it{more}, or run the scheduler as an extender of kube-scheduler"
    )
