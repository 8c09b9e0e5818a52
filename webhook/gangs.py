"""What admission says about the gang of a pod: a value that cannot be read is refused, what has no effect is warned of.

No cached mutation depends on the gang: its name differs from job to job, and nothing is written for it.
"""

from collections.abc import Iterator
from typing import Final

from allocation import names
from allocation.claim import ClaimSpec
from allocation.gang import declared, named
from webhook.review import Pod

_OURS: Final = (names.GANG_MIN_MEMBERS, names.GANG_TIMEOUT, names.GANG_BLOCK)
_SHOWN: Final = 64
"""The characters of a gang's name that a warning shows."""


def warnings(pod: Pod, claim: ClaimSpec | None) -> Iterator[str]:
    """Iterate over the warnings for the creator of a pod, which has this GpuClaim, None for none.

    Raises:
        AllocationError: a value is not what its key holds: the message names both.
    """
    labels, annotations = pod.metadata.labels or {}, pod.metadata.annotations or {}
    group = pod.spec.scheduling_group
    more = {
        "gang_ref": claim.gang_ref if claim is not None else "",
        "pod_group": group.pod_group_name if group is not None else "",
    }
    declaration = declared(labels, annotations, **more)
    if annotations.get(names.TENSOR_FUSION_GANG) == "true" and not annotations.get(names.TENSOR_FUSION_GROUP):
        yield f"annotation {names.TENSOR_FUSION_GANG} has no effect without {names.TENSOR_FUSION_GROUP}: add it"
    if declaration is None:
        for key in _OURS:
            if key in annotations:
                yield f"annotation {key} has no effect: the pod names no gang; add label {names.GANG}"
        return
    gangs = named(labels, annotations, **more)
    (source, name), *others = gangs.items()
    for other, different in others:
        if different != name:
            yield (
                f"the pod names two gangs, {name[:_SHOWN]!r} by {source} and {different[:_SHOWN]!r} by {other}: the"
                " first counts; remove one"
            )
    if declaration.timeout and not declaration.size and not declaration.is_pod_group:
        yield (
            f"the timeout of gang {name[:_SHOWN]!r} has no effect without its size: add annotation"
            f" {names.GANG_MIN_MEMBERS}"
        )
