"""Which pods this loop can place rightly. A pod that uses a field it does not evaluate is held, never misplaced."""

from scheduler.objects import PodSpec


def unsupported(spec: PodSpec) -> str:
    """Answer the field that this loop does not evaluate, empty where it evaluates all that the pod uses."""
    if spec.affinity and spec.affinity.pod_affinity and spec.affinity.pod_affinity.required:
        return "spec.affinity.podAffinity"
    if spec.affinity and spec.affinity.pod_anti_affinity and spec.affinity.pod_anti_affinity.required:
        return "spec.affinity.podAntiAffinity"
    if any(each.when_unsatisfiable == "DoNotSchedule" for each in spec.topology_spread_constraints):
        return "spec.topologySpreadConstraints"
    if spec.resource_claims:
        return "spec.resourceClaims"
    for volume in spec.volumes:
        if volume.persistent_volume_claim or volume.ephemeral or volume.csi:
            return f"spec.volumes[{volume.name}]"
    return ""


def remedy(field: str) -> str:
    """Answer what a user may do about `field`."""
    return f"{field} is not evaluated in loop mode; remove it, or run the scheduler as an extender of kube-scheduler"
