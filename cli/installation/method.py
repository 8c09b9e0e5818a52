"""How Tranche was installed, so that the next step of a message is one that its reader can take."""

from collections.abc import Mapping
from typing import Final

import msgspec

_RELEASE: Final = "meta.helm.sh/release-name"
_NAMESPACE: Final = "meta.helm.sh/release-namespace"


class Method(msgspec.Struct, frozen=True):
    """The way of an installation: a release of Helm, or manifests that kubectl applied.

    Attributes:
        release: the name of the release; empty if Helm did not install it.
        namespace: the namespace of the release.
    """

    release: str = ""
    namespace: str = ""

    def apply_again(self) -> str:
        """Return what restores missing objects."""
        return self._upgrade() if self.release else "apply your overlay of manifests/install again (docs/install.md)"

    def change(self, by_kubectl: str, *, values: str) -> str:
        """Return what changes the installation: `by_kubectl`, or an upgrade that sets `values` of the chart."""
        return self._upgrade(values) if self.release else by_kubectl

    def _upgrade(self, values: str = "") -> str:
        flags = f" --set {values}" if values else ""
        return f"helm upgrade {self.release} CHART --namespace {self.namespace} --reset-then-reuse-values{flags}"


def of_object(annotations: Mapping[str, str]) -> Method:
    """Return how an object with these annotations was installed; Helm marks all that it creates."""
    return Method(annotations.get(_RELEASE, ""), annotations.get(_NAMESPACE, ""))
