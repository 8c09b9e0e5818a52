"""Volumes of the model: each team has one on the disk of a node, for one pod at a time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from tests.scheduler.model.machine import Machine
from tests.scheduler.model.pods import DATA, teams

if TYPE_CHECKING:
    from tests.scheduler.model.machine import Object

NODE = "b"
_FIELDS = {"accessModes": ["ReadWriteOncePod"], "storageClassName": "local"}


class Volumes(Machine):
    """Pods of kind `local` use them."""

    @initialize(with_data=st.sets(teams))
    def volumes(self, with_data: set[str]) -> None:
        """A team may have none in the beginning."""
        for team in sorted(with_data):
            self.volume(team)

    @rule(team=teams)
    def volume(self, team: str) -> None:
        """A team has its claim, which is bound to its volume."""
        api, reference = self.cluster.api, {"name": DATA, "namespace": team}
        claim = api.put(
            "persistentvolumeclaims",
            {
                "metadata": {**reference, "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
                "spec": {**_FIELDS, "volumeName": team, "resources": {"requests": {"storage": "1Gi"}}},
                "status": {"phase": "Bound"},
            },
        )
        on_node = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}
        api.put(
            "persistentvolumes",
            {
                "metadata": {"name": team},
                "spec": {
                    **_FIELDS,
                    "capacity": {"storage": "1Gi"},
                    "claimRef": {**reference, "uid": claim["metadata"]["uid"]},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}},
                },
                "status": {"phase": "Bound"},
            },
        )
        self.changed()

    @rule(team=teams)
    def no_volume(self, team: str) -> None:
        """The claim is deleted; Kubernetes waits with that until no pod uses it."""
        if not any(pod["metadata"]["namespace"] == team for pod in self._users()):
            self.remove("persistentvolumeclaims", DATA, team)

    @invariant()
    def a_volume_has_one_pod_on_its_node(self) -> None:
        """Whatever cards are free elsewhere."""
        users = self._users()
        assert {pod["spec"]["nodeName"] for pod in users} <= {NODE}
        assert all(count == 1 for count in Counter(pod["metadata"]["namespace"] for pod in users).values())

    def _users(self) -> list[Object]:
        """Return the pods with a node that use a volume."""
        return [pod for pod in self.cluster.placed if pod["spec"].get("volumes")]
