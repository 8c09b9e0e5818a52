"""What is counted and decided: as the manifests say, and as a new term would."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from allocation.names import CHARGED_TO
from allocation.steps import finish
from tests.scheduler.model import books
from tests.scheduler.model.machine import Machine
from tests.scheduler.model.recount import counted
from tests.scheduler.support.scheduling import cycle_of


class Restarts(Machine):
    """Counts after each step."""

    @precondition(lambda self: books.leased(self.cluster.placed))
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        """The Lease of a card is deleted by hand."""
        card = data.draw(st.sampled_from(sorted(books.leased(self.cluster.placed))))
        self.cluster.lose_lease(card)
        self.reconcile()

    @rule()
    def reconcile(self) -> None:
        """The Leases of pods that have ended are deleted; until then, they close their cards."""
        self.run(self.cluster.reconcile())
        self.look()
        assert not self.cluster.closed

    @invariant()
    def a_new_term_counts_and_decides_the_same(self) -> None:
        """Of the ledger, quotas, queues, Leases, nodes, claims and the mix of requests; about each pod that waits."""
        state, fresh = self.cluster.state, self.cluster.api.restarted()
        own, other = counted(state), counted(fresh)
        different = [part for part in own if own[part] != other[part]]
        assert [(part, own[part]) for part in different] == [(part, other[part]) for part in different]
        if state.instance_requests.cooling_down():
            return  # a request was given up, of which a new term knows nothing
        for waiting in state.queue:
            now, later = (finish(cycle_of(each).dry_run(waiting.pod)).result for each in (state, fresh))
            assert (type(now), now.note) == (type(later), later.note)

    @invariant()
    def each_part_counts_the_pods_that_have_cards(self) -> None:
        """A quota for the namespace, a queue as was written with the Binding, the mix of requests at all."""
        state, pods = self.cluster.state, books.with_cards(self.cluster.placed)
        of_quotas, of_queues = state.quotas.counted.snapshot(), state.fair_share.use.snapshot()
        assert {uid: each.owner for uid, each in of_quotas.items()} == {
            uid: pod["metadata"]["namespace"] for uid, pod in pods.items()
        }
        assert {uid: str(each.owner) for uid, each in of_queues.items()} == {
            uid: pod["metadata"]["annotations"].get(CHARGED_TO) or str(state.fair_share.key(state.running[uid]))
            for uid, pod in pods.items()
        }
        assert state.workload._pods.keys() == pods.keys()

    @invariant()
    def each_card_of_one_pod_has_a_lease(self) -> None:
        """Its holder is the pod."""
        needed = books.leased(self.cluster.placed)
        assert {card: holder for card, holder in self.cluster.leases.items() if card in needed} == needed
