"""The PriorityClasses of the cluster, which give planned pods the priority that the API server would write into them.

Reference: plugin/pkg/admission/priority of Kubernetes.
"""

from typing import Any, Final

from cluster.manifest import NotAdmittedError, UnreadableManifestError
from scheduler.objects import Pod, PriorityClass

NO_CLASS: Final = PriorityClass()
"""What holds for pods that name no class where no class is the default."""


class PriorityClasses:
    """The classes by name."""

    def __init__(self) -> None:
        """Begin without classes."""
        self._classes: dict[str, PriorityClass] = {}

    def set(self, found: PriorityClass, _old: PriorityClass | None = None) -> None:
        """Set the state of a class."""
        self._classes[found.metadata.name] = found

    def drop(self, found: PriorityClass) -> None:
        """Forget a class."""
        self._classes.pop(found.metadata.name, None)

    def admit(self, pod: Pod, spec: dict[str, Any]) -> tuple[str, ...]:
        """Set the priority and the preemption policy of a planned pod; return the warnings for its creator.

        `spec` is the pod's, as its manifest has it. A priority without a class, which the API server refuses, counts:
        a simulation with it shows what another class would change.

        Raises:
            UnreadableManifestError: the name is not a string.
            NotAdmittedError: the class does not exist, or the spec contradicts it.
        """
        name = spec.get("priorityClassName") or ""
        if not isinstance(name, str):
            raise UnreadableManifestError("spec.priorityClassName must be a string")
        found = self._classes.get(name) if name else self._default()
        if found is None:
            raise NotAdmittedError(
                f"no PriorityClass with name {name} was found: create it, or name another one"
                " (see 'kubectl get priorityclasses')"
            )
        stated, policy = spec.get("priority"), spec.get("preemptionPolicy")
        if stated is not None and stated != found.value and not name:
            warning = (
                f"spec.priority: the API server refuses {stated} unless spec.priorityClassName names a PriorityClass of"
                " this value; the result shows the pod with this priority"
            )
            return (warning,)
        if stated not in (None, found.value):
            raise NotAdmittedError(
                f"spec.priority must not be {stated}: PriorityClass {name} has value {found.value}; remove the field"
            )
        if policy not in (None, found.preemption_policy):
            raise NotAdmittedError(
                f"spec.preemptionPolicy must not be {policy}: {f'PriorityClass {name}' if name else 'the default'} has"
                f" {found.preemption_policy}; remove the field"
            )
        pod.spec.priority, pod.spec.preemption_policy = found.value, found.preemption_policy
        return ()

    def _default(self) -> PriorityClass:
        """Return the class of pods that name none; of several default classes, the one with the lowest value."""
        defaults = (each for each in self._classes.values() if each.global_default)
        return min(defaults, key=lambda each: each.value, default=NO_CLASS)
