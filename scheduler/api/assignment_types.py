"""The numbers of a pod, as the API returns them."""

import msgspec


class PodReference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which pod: its namespace and its name."""

    namespace: str
    pod: str


class AssignedNumber(msgspec.Struct, frozen=True):
    """The number of a pod.

    Attributes:
        namespace: the namespace of the pod.
        pod: its name.
        number: its index or port, which no other live pod has.
        annotation: the annotation of the pod to write it to before it is used.
    """

    namespace: str
    pod: str
    number: int
    annotation: str
