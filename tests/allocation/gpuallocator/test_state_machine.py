"""Whatever is called in whatever order, the cards, the pods and the quotas agree."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from allocation.adjustment import Amounts
from allocation.errors import AllocationError
from allocation.gpuallocator.lifecycle import ASSUMED_TTL_SECONDS
from allocation.quota import MinimumRequest
from tests.allocation.support.gpu_allocator import GIB, allocator, card, inventory, request

PODS = st.integers(0, 5).map(str)
NAMES = st.lists(st.sampled_from(["a-0", "a-1", "b-0", "b-1"]), max_size=2, unique=True)
AMOUNTS = st.builds(Amounts, st.integers(0, 50).map(lambda gib: gib * GIB), st.integers(0, 600))


class Calls(RuleBasedStateMachine):
    """Calls of an allocator, and what must hold between them."""

    def __init__(self) -> None:
        super().__init__()
        self.made, self.around = allocator()

    @rule(pod=PODS, names=NAMES, amounts=AMOUNTS, isolation=st.sampled_from(["soft", "hard", "shared"]))
    def assume(self, pod: str, names: list[str], amounts: Amounts, isolation: str) -> None:
        """Assume, or change nothing."""
        before = self.made.get_allocation_info(), self.made.lifecycle.assumed
        asked = request(pod, memory=amounts.memory_mib, cores=amounts.cores, count=len(names) or 1, isolation=isolation)  # type: ignore[arg-type]
        try:
            self.made.assume(names, asked)
        except AllocationError:
            assert (self.made.get_allocation_info(), self.made.lifecycle.assumed) == before

    @rule(pod=PODS)
    def commit(self, pod: str) -> None:
        """Commit, if it is assumed."""
        with suppress(AllocationError):
            names = self.made.commit(f"uid-{pod}")
            assert self.made.commit(f"uid-{pod}") == names

    @rule(pod=PODS, call=st.sampled_from(["forget", "rollback", "unreserve_or_rollback", "dealloc", "dealloc_async"]))
    def end(self, pod: str, call: str) -> None:
        """Give back, once or twice."""
        for _ in range(2):
            getattr(self.made, call)(f"uid-{pod}")

    @rule(pod=PODS, size=AMOUNTS, dry_run=st.booleans())
    def adjust(self, pod: str, size: Amounts, dry_run: bool) -> None:  # noqa: FBT001 -- a rule
        """Take another size; a dry run changes nothing."""
        before = self.made.get_allocation_info()
        try:
            self.made.adjust_allocation(f"uid-{pod}", size, size, dry_run=dry_run)
        except AllocationError:
            dry_run = True
        if dry_run:
            assert self.made.get_allocation_info() == before

    @rule(gone=st.frozensets(PODS))
    def clean_up(self, gone: frozenset[str]) -> None:
        """Pods end in the API."""
        self.around.gone = {f"uid-{pod}" for pod in gone}
        self.made.poll_ending()
        self.made.clean_up()

    @rule(seconds=st.sampled_from([1.0, ASSUMED_TTL_SECONDS]))
    def sweep(self, seconds: float) -> None:
        """Time passes."""
        self.around.now += seconds
        self.made.sweep_assumed()

    @rule(cards=st.integers(1, 2))
    def report(self, cards: int) -> None:
        """A card goes, or comes back; pods keep what they have."""
        self.made.set_node(inventory("b", *(card("b", index) for index in range(cards))), {"pool": "p"})

    @rule()
    def restart(self) -> None:
        """Assumptions are lost, and allocations are read."""
        lifecycle = self.made.lifecycle
        running = [(each, each.gpu_names[0][0]) for each in lifecycle.allocated.values()]
        reports = [self.made.ledger.inventory(node) for node in ("a", "b")]
        self.made, around = allocator(0)
        self.around = around
        self.made.setup_with_manager([(each, {"pool": "p"}) for each in reports if each is not None], running)
        assert self.made.lifecycle.allocated == lifecycle.allocated

    @invariant()
    def cards_are_what_pods_hold(self) -> None:
        """I1, I2: use is the sum over assumed and allocated pods, and never beyond the capacity."""
        for node in ("a", "b"):
            assert self.made.ledger.difference(node) == ""
        for own in self.made.get_node_gpu_store().values():
            for gpu in own.values():
                assert 0 <= gpu.available.memory_mib <= gpu.capacity.memory_mib
                assert 0 <= gpu.available.cores <= gpu.capacity.cores

    @invariant()
    def pods_are_in_one_state(self) -> None:
        """I3, I4: assumed or allocated, not both; the ledger has exactly these, each as it is."""
        assumed, allocated = self.made.lifecycle.assumed, self.made.lifecycle.allocated
        assert not assumed.keys() & allocated.keys()
        held = {each.uid: each.assumed for each in self.made.ledger.reservations()}
        assert held == {**dict.fromkeys(assumed, True), **dict.fromkeys(allocated, False)}
        for uid, each in allocated.items():
            assert self.made.has_allocation("ns", each.pod.name)
            assert not self.made.lifecycle.was_freed(uid)

    @invariant()
    def quotas_count_what_pods_hold(self) -> None:
        """I5: a quota's use is the sum over the same pods."""
        expected = MinimumRequest()
        for each in (*self.made.lifecycle.assumed.values(), *self.made.lifecycle.allocated.values()):
            whole = each.isolation == "shared"
            memory, cores = (80 * GIB, 1000) if whole else (each.request.memory_mib, each.request.cores)
            count = len(each.gpu_names)
            expected += MinimumRequest(memory * count, cores * count, count)
        assert self.made.get_quota_store().used("ns").cards == expected.cards
        if self.made.ledger.position("b-1") is not None:
            assert self.made.get_quota_store().used("ns") == expected

    @invariant()
    def views_are_copies(self) -> None:
        """I6, I7: a view that is changed changes nothing, and asking changes nothing."""
        before = self.made.ledger.used.tolist()
        gpus, workers, requests = self.made.get_allocation_info()
        for view in (gpus, workers, requests, self.made.get_node_gpu_store(), self.made.lifecycle.assumed):
            view.clear()  # type: ignore[attr-defined]
        with suppress(AllocationError):
            self.made.check_quota_and_filter(request("probe", count=2), simulate=True)
        assert self.made.ledger.used.tolist() == before
        assert self.made.get_allocation_info()[2] == self.made.lifecycle.allocated


Calls.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestCalls = Calls.TestCase
