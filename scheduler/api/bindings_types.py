"""The part of an explanation about the GPUBindings of a pod's application."""

import msgspec

from allocation.bindings.binding import ShareMode
from allocation.bindings.bound_cards import ConsumePolicy
from scheduler.api.json_names import json_name


class BoundCardExplanation(msgspec.Struct, frozen=True, rename=json_name):
    """A card that is bound to the pod's application.

    Attributes:
        uuid: the card.
        node: the node that has it; empty if no node reports it.
        binding: the name of the GPUBinding.
        share_mode: how pods share the card. `exclusive`, a pod gets the whole card; `memory-slicing`, it gets
            `memoryMiB`, or what it requests if that is null; `time-slicing`, no memory is reserved for it.
        memory_mib: the memory that the binding sets; None if it sets none.
        consumed_by: the other live pods of the application that have the card, as namespace/name; they are in the
            namespace of the pod.
    """

    uuid: str
    node: str
    binding: str
    share_mode: ShareMode
    memory_mib: int | None = None
    consumed_by: tuple[str, ...] = ()


class OtherBinding(msgspec.Struct, frozen=True, rename=json_name):
    """A binding of an application of the same name that gives the pod no card.

    Attributes:
        name: its name.
        uuid: the card.
        why: what keeps the pod from it; each text completes a sentence that begins with the binding.
    """

    name: str
    uuid: str
    why: tuple[str, ...]


class BindingsExplanation(msgspec.Struct, frozen=True, rename=json_name):
    """The cards that GPUBindings give to the pod's application, which may have no others.

    Attributes:
        app: the application.
        owner: its user; may be empty.
        namespace: of its pods.
        policy: `all`, a pod gets all of these cards of one node; `single`, as many as it requests.
        cards: by UUID; empty if the pod waits for a binding.
        others: if there are no cards, bindings of the same application that are not for this pod, the closest first, at
            most 20; always empty for users who have rights in one namespace only.
    """

    app: str
    owner: str
    namespace: str
    policy: ConsumePolicy
    cards: tuple[BoundCardExplanation, ...] = ()
    others: tuple[OtherBinding, ...] = ()
