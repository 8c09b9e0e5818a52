"""What the pods of an owner hold: the running sums equal sums over all reservations, whatever happened."""

from collections.abc import Callable
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from allocation.allocation import Charge
from allocation.inventory import Card, NodeInventory
from allocation.ledger.ledger import Ledger
from scheduler.fairness.use import Use, UseByOwner

UIDS = ("a", "b", "c")
OWNER = {"a": "x", "b": "x", "c": "y"}
CPU = {"a": 500, "b": 0, "c": 2000}
AMOUNTS = (100, 250)


def recounted(ledger: Ledger, counted: set[str], owner: str) -> Use:
    """Return what the counted pods of an owner hold, by a sum over the ledger."""
    pods = [uid for uid in counted if OWNER[uid] == owner]
    held = [
        charge
        for reservation in ledger.reservations()
        if reservation.uid in counted and OWNER[reservation.uid] == owner
        for charge in reservation.charges
    ]
    return Use(
        memory_mib=sum(charge.memory_mib for charge in held),
        cores=sum(charge.cores for charge in held),
        cards=sum(charge.slots for charge in held),  # each container takes a slot of its own
        cpu=sum(CPU[uid] for uid in pods),
        memory_bytes=2 * len(pods),
        pods=len(pods),
    )


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("assume", "record", "release", "add", "remove")),
            st.sampled_from(UIDS),
            st.sampled_from(AMOUNTS),
            st.sampled_from((1, 2)),
        ),
        max_size=30,
    )
)
def test_the_sums_follow_the_ledger(steps: list[tuple[str, str, int, int]]) -> None:
    """Assumed, confirmed with other amounts, forgotten, released, and left out by hypothesis."""
    ledger = Ledger()
    ledger.set_node(NodeInventory("n", (Card("GPU-0", 0, 1000, slots=9),)))
    use, counted = UseByOwner[str](ledger), set[str]()

    def check() -> None:
        assert {name: use.of(name) for name in ("x", "y")} == {
            name: recounted(ledger, counted, name) for name in ("x", "y")
        }
        for name, uid in product(("x", "y"), UIDS):
            left, expected = use.of(name, without=[uid]), recounted(ledger, counted - {uid}, name)
            assert left.amounts[:3] == expected.amounts[:3], "cards only"

    for what, uid, memory, containers in steps:
        charges = (Charge("GPU-0", memory, 10, containers),)
        actions: dict[str, Callable[[], object]] = {
            "assume": lambda: ledger.reservation(uid) or ledger.assume(uid, "n", charges),  # noqa: B023 -- called here
            "record": lambda: ledger.record(uid, "n", charges),  # noqa: B023
            "release": lambda: ledger.release(uid),  # noqa: B023
            "add": lambda: (use.add_pod(uid, OWNER[uid], cpu=CPU[uid], memory_bytes=2), counted.add(uid)),  # noqa: B023
            "remove": lambda: (use.remove_pod(uid), counted.discard(uid)),  # noqa: B023
        }
        actions[what]()
        check()
