"""The steps of a node between ledger and DRA, in a world in which everything else happens at any time."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agent.dra.transition import Facts, Wanted, next_step
from cluster.gpu_node_status import Allocator


class World(RuleBasedStateMachine):
    """A node, its agent, the scheduler, kube-scheduler and the kubelet.

    kube-scheduler may decide by an old slice until the slice has been as it is for long enough (`settled`).
    """

    def __init__(self) -> None:
        super().__init__()
        self.wanted: Wanted = "ledger"
        self.allocator: Allocator = "ledger"
        self.slice = "absent"
        self.settled = True
        self.serves = False
        self.drain = 0
        self.confirmed = 0
        self.deciding = 0
        self.pods = 0
        self.claims = 0
        self.prepared = 0

    # ---- the agent -------------------------------------------------------------------------------------------------

    @rule()
    def step(self) -> None:
        """Take the next step."""
        step = next_step(
            self.allocator,
            Facts(
                self.wanted,
                is_confirmed=self.allocator == "draining" and self.confirmed == self.drain,
                has_pods=self.pods > 0,
                slice=self.slice,  # type: ignore[arg-type]
                is_settled=self.settled,
                has_claims=self.claims > 0,
                serves=self.serves,
            ),
        )
        self.serves = step.serves
        if step.slice != self.slice:
            self.slice, self.settled = step.slice, False
        if step.allocator != self.allocator:
            self.allocator = step.allocator
            self.drain += step.allocator == "draining"

    @rule()
    def restart(self) -> None:
        """Begin again with what the status says."""
        self.serves = self.allocator == "dra"

    @rule(wanted=st.sampled_from(["ledger", "dra"]))
    def change_mind(self, wanted: Wanted) -> None:
        """Let an administrator want another allocator."""
        self.wanted = wanted

    # ---- all others --------------------------------------------------------------------------------------------

    @precondition(lambda self: self.allocator == "ledger" and self.slice == "absent")
    @rule()
    def place(self) -> None:
        """Let the ledger decide about a pod, whose Binding takes effect at some time."""
        self.deciding += 1

    @precondition(lambda self: self.deciding)
    @rule()
    def bind(self) -> None:
        """Let a Binding take effect."""
        self.deciding -= 1
        self.pods += 1

    @precondition(lambda self: self.allocator == "draining" and not self.pods and not self.deciding)
    @rule()
    def confirm(self) -> None:
        """Let the leader confirm this drain."""
        self.confirmed = self.drain

    @precondition(lambda self: self.slice == "open" or not self.settled)
    @rule()
    def allocate(self) -> None:
        """Let kube-scheduler allocate a device."""
        self.claims += 1

    @precondition(lambda self: self.serves and self.claims > self.prepared and not self.pods)
    @rule()
    def prepare(self) -> None:
        """Let the kubelet start a pod with a claim."""
        self.prepared += 1

    @precondition(lambda self: self.claims)
    @rule()
    def end_claim(self) -> None:
        """Let a pod with a claim end."""
        self.claims -= 1
        self.prepared = min(self.prepared, self.claims)

    @precondition(lambda self: self.pods)
    @rule()
    def end_pod(self) -> None:
        """Let a pod of the ledger end."""
        self.pods -= 1

    @rule()
    def settle(self) -> None:
        """Let kube-scheduler see the slice as it is."""
        self.settled = True

    # ---- what must hold --------------------------------------------------------------------------------------------

    @invariant()
    def node_is_in_one_world(self) -> None:
        """No pod of the ledger runs beside a claim, prepared or only allocated."""
        assert not (self.pods and self.claims)

    @invariant()
    def ledger_has_no_slice(self) -> None:
        """Only a node of DRA has a slice, and only its claims are prepared."""
        assert self.slice == "absent" or self.allocator == "dra"
        assert not self.serves or self.allocator == "dra"


World.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestWorld = World.TestCase


def follow(allocator: Allocator, *facts: Facts) -> list[tuple[str, str, bool]]:
    """Return the steps of a node from `allocator` on."""
    steps = []
    for each in facts:
        step = next_step(allocator, each)
        allocator = step.allocator
        steps.append((step.allocator, step.slice, step.serves))
    return steps


def test_way_to_dra() -> None:
    """The slice comes after the status, and both after the confirmation and the end of the last pod."""
    steps = follow(
        "ledger",
        Facts("dra"),
        Facts("dra", has_pods=True),
        Facts("dra", is_confirmed=True, has_pods=True),
        Facts("dra", is_confirmed=True),
        Facts("dra", serves=True),
    )
    assert steps == [
        ("draining", "absent", False),
        ("draining", "absent", False),
        ("draining", "absent", False),
        ("dra", "absent", True),
        ("dra", "open", True),
    ]


def test_way_back() -> None:
    """Claims that are left are served to their end; the last list of claims is after the last prepared one."""
    steps = follow(
        "dra",
        Facts("ledger", slice="open", serves=True),
        Facts("ledger", slice="closed", is_settled=False, serves=True),
        Facts("ledger", slice="closed", has_claims=True, serves=True),
        Facts("ledger", slice="closed", serves=True),
        Facts("ledger", slice="absent", is_settled=False, serves=True),
        Facts("ledger", slice="absent", serves=True),
        Facts("ledger", slice="absent", has_claims=True),
        Facts("ledger", slice="absent", serves=True),
        Facts("ledger", slice="absent"),
    )
    assert steps == [
        ("dra", "closed", True),
        ("dra", "closed", True),
        ("dra", "closed", True),
        ("dra", "absent", True),
        ("dra", "absent", True),
        ("dra", "absent", False),
        ("dra", "absent", True),
        ("dra", "absent", False),
        ("ledger", "absent", False),
    ]


def test_mind_that_changes_on_the_way() -> None:
    """A drain ends where nothing was published; a node that leaves DRA is opened again as it is."""
    assert follow("draining", Facts("ledger")) == [("ledger", "absent", False)]
    assert follow("draining", Facts("ledger", slice="open")) == [("draining", "absent", False)]
    assert follow("dra", Facts("dra", slice="closed")) == [("dra", "open", True)]
