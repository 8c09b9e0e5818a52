"""What GPUBindings give a pod by its labels: the same for admission and for the scheduler."""

from collections.abc import Mapping
from typing import Self

import msgspec

from allocation.bindings import grants
from allocation.bindings.binding import AppIdentity, FindBindings
from allocation.bindings.grants import Grant
from allocation.settings import BindingSettings


class Granted(msgspec.Struct, frozen=True):
    """The cards that bindings give to the application of a pod.

    Attributes:
        identity: the application; None if the pod needs one and has none.
        grants: its cards.
    """

    identity: AppIdentity | None
    grants: tuple[Grant, ...] = ()

    @classmethod
    def of_labels(
        cls, labels: Mapping[str, str], namespace: str, *, find_bindings: FindBindings, settings: BindingSettings
    ) -> Self | None:
        """Return what bindings give a GPU pod with these labels; None if they do not concern it."""
        if not concern(labels, namespace, settings):
            return None
        identity = AppIdentity.of_labels(labels, namespace)
        if identity is None:
            return cls(None)
        bindings = find_bindings(identity.app)
        return cls(identity, grants.of_pod(bindings, identity, labels, require_namespace=settings.require_namespace))


def concern(labels: Mapping[str, str], namespace: str, settings: BindingSettings) -> bool:
    """Whether bindings decide about the cards of a GPU pod with these labels."""
    if settings.mode == "labelled":
        return AppIdentity.of_labels(labels, namespace) is not None
    return settings.mode == "required"
