"""What can be asked of a scheduler that decides; it answers from what it knows and changes nothing."""

from collections.abc import Collection
from typing import Any

import msgspec

from cluster.manifest import NotAdmittedError
from cluster.reflector import Reflector
from scheduler import allocation_view, explanation, simulation, submission
from scheduler.allocation_view import AllocationView
from scheduler.explanation_api import Explanation
from scheduler.objects import Pod
from scheduler.simulation_api import Simulation
from scheduler.state import State
from scheduler.submission import Admit


class Inquiry(msgspec.Struct, frozen=True):
    """Who is asked: the state of a term, and the cache with all pods."""

    state: State
    pods: Reflector[Pod]

    def explain(self, namespace: str, name: str, *, cards_of: Collection[str] | None = None) -> Explanation | None:
        """Answer why a pod is where it is, or waits; None where there is no such pod."""
        pod = self.pods.get(name, namespace)
        return explanation.explain(self.state, pod, cards_of=cards_of) if pod is not None else None

    def simulate(
        self, manifest: dict[str, Any], admit: Admit, *, cards_of: Collection[str] | None = None
    ) -> Simulation:
        """Answer what would become of a pod that was created now.

        Raises:
            UnreadableManifestError: it is no pod.
            UnknownSchedulerError: it would be another scheduler's.
        """
        try:
            submitted = submission.submit(self.state, manifest, admit)
        except NotAdmittedError as error:
            return simulation.not_admitted(str(error))
        return simulation.simulate(self.state, submitted, cards_of=cards_of)

    def allocation(self) -> AllocationView:
        """Answer who has what."""
        return allocation_view.view(self.state.ledger, self.pods)
