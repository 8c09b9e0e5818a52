"""Cards of claims: alone or shared as the claim says, each charged once, whatever else is placed around them."""

import random
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocation import names
from allocation.allocation import Exclusivity, charges
from allocation.claim import ClaimDevices, ClaimSpec, resources
from allocation.constraints import read_constraints
from allocation.inventory import Card, NodeInventory
from allocation.isolation import Isolation
from allocation.ledger.ledger import Ledger
from allocation.ledger.ledger_view import LedgerView
from allocation.placement import fit
from allocation.placement.fit import ConstraintMasks
from allocation.placement.node_cards import NodeCards
from allocation.placement.placement import NoPlacement, Placement, place
from allocation.placement.query import PlacementQuery
from allocation.pod import Container, Resources
from allocation.settings import AllocationSettings
from allocation.sharing import SharingRules
from allocation.steps import finish
from allocation.wire import environment, pod_allocation
from scheduler import gpu_requirements
from scheduler.gpu_requirements import GpuRequirements
from tests.allocation.ledger.test_ledger import recount
from tests.allocation.support.builders import card, container, mixed, pod, put, reasons, whole
from tests.allocation.support.mig_cards import instance, mig_card

SETTINGS = AllocationSettings()
NAMES = SETTINGS.resources
ISOLATIONS = (Isolation.NONE, Isolation.MPS)
KINDS: tuple[Exclusivity, ...] = ("Exclusive", "Shared", "MIG")


class ClaimPod:
    """A pod as admission leaves it: each of its GPU containers has the resources that the claim gives."""

    def __init__(self, devices: ClaimDevices, *, containers: int = 1, init: int = 0) -> None:
        self.devices = devices
        limits = {name: str(amount) for name, amount in resources(devices, SETTINGS).items()}
        made = [Container(name=f"c{each}", resources=Resources(limits=dict(limits))) for each in range(containers)]
        first = [Container(name=f"i{each}", resources=Resources(limits=dict(limits))) for each in range(init)]
        regular = [*made, Container(name="log")]
        self.spec = SimpleNamespace(containers=regular, init_containers=first, node_selector={})
        self.requirements: GpuRequirements = gpu_requirements.read(
            self.spec, {names.CLAIM: "c"}, SETTINGS, find_claim=lambda _: ClaimSpec(devices)
        )

    @property
    def query(self) -> PlacementQuery:
        """What is placed for it."""
        return PlacementQuery(self.requirements.request, self.requirements.constraints)

    def place(self, ledger: Ledger, uid: str) -> Placement | NoPlacement:
        """Place it on any node, and reserve."""
        outcome = finish(place(LedgerView(ledger), self.query, ledger.nodes))
        if isinstance(outcome, Placement):
            ledger.assume(uid, outcome.allocation.node, outcome.charges)
        return outcome


def exclusive(count: int = 1) -> ClaimPod:
    """Return a pod with an Exclusive claim."""
    return ClaimPod(ClaimDevices(count))


def shared(**devices: int) -> ClaimPod:
    """Return a pod with a Shared claim for one card."""
    return ClaimPod(msgspec.structs.replace(ClaimDevices(1, "Shared"), **devices))


def mig(profile: str = "", *, memory: int | None = None) -> ClaimPod:
    """Return a pod with a claim for one MIG instance."""
    return ClaimPod(ClaimDevices(1, "MIG", memory_mib=memory, profile=profile))


# ---- alone -----------------------------------------------------------------------------------------------------------

OTHERS = (
    container(memory=1),
    container(),
    container(memory=1, cores=1000),
    container(percent=100),
    container(cores=10),
    whole(),
)


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("cores", [1000, 2000])
def test_an_exclusive_card_is_never_shared(other: msgspec.Struct, cores: int) -> None:
    """Whatever the other pod requests, whoever comes first, and even if the card has compute left (`core_scaling`)."""
    ledger = mixed(card(0, cores=cores))
    assert isinstance(exclusive().place(ledger, "a"), Placement)
    outcome = put(ledger, pod(other))  # type: ignore[arg-type]
    assert reasons(outcome) in {"1/1 CardTimeSlicingExhausted", "1/1 ExclusiveDeviceAllocateConflict"}
    ledger = mixed(card(0, cores=cores))
    assert isinstance(put(ledger, pod(other)), Placement)  # type: ignore[arg-type]
    assert reasons(exclusive().place(ledger, "a")) in {
        "1/1 ExclusiveDeviceAllocateConflict",
        "1/1 CardTimeSlicingExhausted",
    }


def test_an_exclusive_pod_waits_for_a_shared_one_that_takes_nothing() -> None:
    """A Shared claim without amounts takes only a slot, and that is enough."""
    ledger = mixed(card(0))
    assert isinstance(shared().place(ledger, "s"), Placement)
    assert reasons(exclusive().place(ledger, "e")) == "1/1 ExclusiveDeviceAllocateConflict"
    ledger.release("s")
    assert isinstance(exclusive().place(ledger, "e"), Placement)
    assert reasons(shared().place(ledger, "s")) == "1/1 CardTimeSlicingExhausted"


def test_an_exclusive_claim_gets_all_its_cards_or_none() -> None:
    """Three idle cards of four are too few for a claim of four."""
    ledger = mixed(*(card(index) for index in range(4)))
    shared().place(ledger, "s")
    assert reasons(exclusive(4).place(ledger, "e")) == (
        "1/4 ExclusiveDeviceAllocateConflict, 3/4 AllocatedCardsInsufficientRequest"
    )
    outcome = exclusive(3).place(ledger, "e")
    assert isinstance(outcome, Placement)
    assert len(outcome.charges) == 3


# ---- shared ----------------------------------------------------------------------------------------------------------


def test_as_many_shared_pods_fit_as_a_card_has_slots() -> None:
    """Without amounts there is no other limit."""
    ledger = mixed(card(0, slots=10))
    for number in range(10):
        assert isinstance(shared().place(ledger, f"s{number}"), Placement)
    assert reasons(shared().place(ledger, "s10")) == "1/1 CardTimeSlicingExhausted"


def test_the_amounts_of_a_shared_claim_are_charged_once() -> None:
    """However many containers see the card: two pods of 400 MiB with three containers each fit 1000 MiB."""
    ledger = mixed(card(0))
    for number, outcome in enumerate((Placement, Placement, NoPlacement)):
        asks = ClaimPod(ClaimDevices(1, "Shared", memory_mib=400, cores=20), containers=3, init=1)
        assert isinstance(asks.place(ledger, f"s{number}"), outcome)
    assert ledger.free(0, 0) == (200, 600, 8, 0)


# ---- MIG -------------------------------------------------------------------------------------------------------------


def mig_node() -> Ledger:
    """Return a ledger with one undivided card, and one with two instances."""
    cards = (card(0, memory_mib=40960), mig_card(1), instance(1, "1g.5gb", 0), instance(1, "2g.10gb", 2))
    return mixed(*cards)


@pytest.mark.parametrize("asks", [exclusive(), shared(), shared(memory_mib=100)])
def test_no_claim_gets_an_instance_by_accident(asks: ClaimPod) -> None:
    """An Exclusive or Shared claim gets undivided cards only; a card in MIG mode does not count as one."""
    ledger = mig_node()
    outcome = asks.place(ledger, "a")
    assert isinstance(outcome, Placement)
    assert [charge.uuid for charge in outcome.charges] == ["GPU-n0-0"]
    ledger.release("a")
    exclusive().place(ledger, "other")
    why = "1/4 ExclusiveDeviceAllocateConflict" if asks.devices.exclusivity == "Exclusive" else ""
    assert reasons(asks.place(ledger, "a")) in {
        f"{why}, 3/4 ModeNotFit",
        "1/4 CardTimeSlicingExhausted, 3/4 ModeNotFit",
    }


def test_a_mig_claim_gets_instances_only() -> None:
    """The smaller the instances that fit, the better; an undivided card does not fit at all."""
    ledger = mig_node()
    found = [mig().place(ledger, f"m{number}") for number in range(3)]
    assert isinstance(found[0], Placement)
    assert isinstance(found[1], Placement)
    assert {charge.parent for each in found[:2] if isinstance(each, Placement) for charge in each.charges} == {
        "GPU-n0-1"
    }
    assert "1/4 ModeNotFit" in reasons(found[2])
    assert reasons(mig().place(mixed(card(0)), "m")) == "1/1 ModeNotFit"


@pytest.mark.parametrize(("profile", "start"), [("1g.5gb", 0), ("2g.10gb", 2)])
def test_the_profile_is_exact(profile: str, start: int) -> None:
    """No larger instance is taken for it, and no other profile that begins or ends alike."""
    for one in (mig(profile), mig(profile, memory=100)):
        outcome = one.place(mig_node(), "m")
        assert isinstance(outcome, Placement)
        assert [charge.uuid for charge in outcome.charges] == [f"MIG-n0-1-{start}"]
    for other in (profile[:-1], profile[1:], f"{profile}+me", "7g.40gb"):
        assert reasons(mig(other).place(mig_node(), "m")) == (
            "1/4 CardMigTopologyInfeasible, 1/4 ModeNotFit, 2/4 CardTypeMismatch"
        )


# ---- in any mix ------------------------------------------------------------------------------------------------------


def random_pod(chance: random.Random) -> ClaimPod:
    """Return a pod with a random claim and a random number of containers."""
    exclusivity = chance.choice(KINDS)
    devices = ClaimDevices(
        chance.randint(1, 2),
        exclusivity,
        memory_mib=chance.choice((None, 100, 700)) if exclusivity != "Exclusive" else None,
        cores=chance.choice((None, 10, 60, 100)) if exclusivity == "Shared" else None,
        profile=chance.choice(("", "1g.5gb")) if exclusivity == "MIG" else "",
    )
    made = ClaimPod(devices, containers=chance.randint(1, 3), init=chance.randint(0, 1))
    request = msgspec.structs.replace(made.requirements.request, isolation=chance.choice(ISOLATIONS))
    made.requirements = msgspec.structs.replace(made.requirements, request=request)
    return made


PLAIN = (
    pod(container(memory=300)),
    pod(container(memory=300, cores=500)),
    pod(container(memory=1, cores=1000)),
    pod(container(count=2, percent=50)),
    pod(container()),
    pod(container("a", memory=200), container("b", memory=600)),
)


class Mix:
    """A ledger on which pods of all kinds are placed and end, and whose cards change."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 -- a test
        self.ledger = Ledger(SharingRules(locks_isolation=self.chance.random() < 0.5), rows=1, cards=1)
        self.pods: list[str] = []
        self.serial = 0
        self.memory = {"n0": 1000, "n1": 1000}
        for node in self.memory:
            self.report(node)

    def report(self, node: str) -> None:
        """Report two undivided cards and one with instances; the former have more memory each time."""
        cores = 2000 if node == "n1" else 1000
        cards = [Card(f"GPU-{node}-{index}", index, self.memory[node], cores, slots=3) for index in range(2)]
        self.memory[node] += 500
        starts = (0, 1, 2) if node == "n0" else (6,)
        instances = [instance(2, "1g.5gb", start, node=node) for start in starts]
        self.ledger.set_node(NodeInventory(node, (*cards, mig_card(2, node=node), *instances)))

    def step(self) -> None:
        """Make one random change."""
        match self.chance.choices(("claim", "plain", "end", "report"), (6, 4, 4, 1))[0]:
            case "claim":
                self.place_claim()
            case "plain":
                request, isolation = self.chance.choice(PLAIN), self.chance.choice(ISOLATIONS)
                outcome = put(self.ledger, msgspec.structs.replace(request, isolation=isolation))
                self.check_others(outcome)
            case "report":
                self.report(self.chance.choice(("n0", "n1")))
            case _ if self.pods:
                uid = self.pods.pop(self.chance.randrange(len(self.pods)))
                self.ledger.release(uid)
        self.check()

    def place_claim(self) -> None:
        """Place a claim pod; what its annotation says after a restart is what was reserved."""
        asks, before = random_pod(self.chance), self.ledger.used.copy()
        self.serial += 1
        uid = f"claim-{self.serial}"
        in_use = {charge.uuid for each in self.ledger.reservations() for charge in each.charges}
        outcome = asks.place(self.ledger, uid)
        if not isinstance(outcome, Placement):
            assert np.array_equal(self.ledger.used, before)
            return
        taken = {charge.uuid for charge in outcome.charges}
        assert len(outcome.charges) == asks.devices.count
        assert all(charge.whole for charge in outcome.charges) == (asks.devices.exclusivity == "Exclusive")
        assert all(bool(charge.parent) == (asks.devices.exclusivity == "MIG") for charge in outcome.charges)
        if asks.devices.exclusivity == "Exclusive":
            assert not taken & in_use
        self.check_read_back(asks, outcome)
        self.ledger.release(uid)
        assert np.array_equal(self.ledger.used, before), "assume and release change nothing"
        self.ledger.record(uid, outcome.allocation.node, outcome.charges)
        self.pods.append(uid)

    def check_read_back(self, asks: ClaimPod, outcome: Placement) -> None:
        """Read the pod as a restarted scheduler does: from its spec and its annotations, without the claim."""
        allocation = asks.requirements.allocation(outcome.allocation)
        assert charges(allocation, asks.requirements.own) == outcome.charges
        annotations = environment.annotations(allocation)
        read = pod_allocation.read(asks.spec, annotations, node=allocation.node, settings=SETTINGS)
        assert read == (allocation, outcome.charges)

    def check_others(self, outcome: Placement | NoPlacement) -> None:
        """Note a plain pod, which `put` has reserved."""
        if isinstance(outcome, Placement):
            *_, last = self.ledger.reservations()
            self.pods.append(last.uid)

    def check(self) -> None:
        """Check all that holds between two changes."""
        ledger = self.ledger
        assert (ledger.used <= ledger.total).all()
        fresh = recount(ledger)
        for node in ledger.nodes:
            row, other = ledger.row(node), fresh.row(node)
            assert row is not None
            assert other is not None
            assert fresh.used_lists(other) == ledger.used_lists(row)
            assert fresh.fullness[other] == pytest.approx(ledger.fullness[row])
            for query in (random_pod(self.chance).query, PlacementQuery(PLAIN[0], read_constraints({}, SETTINGS))):
                (request,) = query.request.gpu_containers
                columns = fit.fitting(
                    ConstraintMasks(ledger, query.constraints).cards(row), query.for_container(request)
                )
                cards = NodeCards(ledger, row, query.constraints, query.request.isolation)
                assert cards.fitting(request, query.headroom) == np.flatnonzero(columns).tolist()
            assert ledger.difference(node) == fresh.difference(node) == ""
        holders: dict[str, list[bool]] = {}
        isolations: dict[str, set[str]] = {}
        for reservation in ledger.reservations():
            for charge in reservation.charges:
                holders.setdefault(charge.uuid, []).append(charge.whole)
                isolations.setdefault(charge.uuid, set()).add(charge.isolation)
        assert not ledger.rules.locks_isolation or all(len(each) == 1 for each in isolations.values())
        assert all(len(each) == 1 for each in holders.values() if any(each)), "an exclusive card has one pod"


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 40))
def test_any_mix_of_pods_keeps_the_ledger_right(seed: int, steps: int) -> None:
    """No card over its capacity, exclusive ones with one pod, a recount equal, both ways of filtering equal."""
    mix = Mix(seed)
    for _ in range(steps):
        mix.step()
    for uid in mix.pods:
        mix.ledger.release(uid)
    assert mix.ledger.used.sum() == 0
