"""Which limit a program meets under the environment that Tranche gives its container, and what refuses it.

No GPU is needed: `tests.cuda.stub` says what its stubs show, and what they cannot show. `test_real_gpu.py` has the same
promises where a GPU is.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from allocation.allocation import CardShare
from allocation.isolation import Isolation
from allocation.wire import environment
from tests.cuda.programs import NotStartedError, Programs
from tests.cuda.stub import Node
from tests.limits import promises
from tests.limits.promises import SHARED, injected, references, start

A, B, C = (f"GPU-00000000-0000-0000-0000-00000000000{digit}" for digit in "abc")
INSTANCE = "MIG-00000000-0000-0000-0000-000000000001"
CARDS = dict.fromkeys((A, B, C), 8000)
FIRST = CardShare(A, 0, 3000, 300)
"""What most containers of these tests have of the node's first card."""
UNEQUAL = (CardShare(C, 2, 5000, 300), CardShare(A, 0, 3000, 300))


@pytest.fixture
def node(programs: Programs, tmp_path: Path) -> Iterator[Node]:
    """A node that can enforce limits in every way."""
    made = Node(programs, tmp_path, CARDS, has_limits=True, mps=True)
    yield made
    assert made.leftovers() == []


def reached(node: Node, isolation: Isolation, *shares: CardShare) -> list[int]:
    """Return the MiB of each card that a program gets in a new container, which is removed again."""
    container = start(node, "c", isolation, injected(isolation, *shares))
    mib = container.run().mib
    node.remove("c")
    return mib


def test_without_isolation_a_program_takes_the_whole_card(node: Node) -> None:
    """The limits are in its environment, and nothing reads them: the neighbour gets what is left."""
    greedy = start(node, "greedy", Isolation.NONE, injected(Isolation.NONE, FIRST))
    assert greedy.run().mib == [8000]
    neighbour = start(node, "neighbour", Isolation.NONE, injected(Isolation.NONE, FIRST))
    assert neighbour.run().mib == [0]
    node.remove("greedy")
    node.remove("neighbour")


@pytest.mark.parametrize("isolation", SHARED)
def test_two_containers_of_one_card_reach_their_own_limits(node: Node, isolation: Isolation) -> None:
    """Whichever comes first."""
    promises.two_containers_of_one_card_reach_their_own_limits(node, isolation)


@pytest.mark.parametrize("isolation", [*SHARED, Isolation.NONE])
def test_a_container_sees_its_own_cards_in_order(node: Node, isolation: Isolation) -> None:
    """By UUID and by position."""
    promises.a_container_sees_its_own_cards_in_order(node, isolation)


def test_mps_leaves_a_client_its_share_of_the_compute(node: Node) -> None:
    """Of 100 multiprocessors a client with 30 % has 30."""
    promises.mps_leaves_a_client_its_share_of_the_compute(node)


def test_hami_core_shows_the_limit_as_the_memory_of_the_card(node: Node) -> None:
    """Of a card of 8000 MiB a container with 3000 sees 3000."""
    promises.hami_core_shows_the_limit_as_the_memory_of_the_card(node)


@pytest.mark.parametrize(
    ("isolation", "mib"),
    [(Isolation.MPS, [3000, 5000]), (Isolation.HAMI_CORE, [3000, 5000]), (Isolation.CUDA, [3000, 3000])],
)
def test_unequal_shares_of_several_cards(node: Node, isolation: Isolation, mib: list[int]) -> None:
    """Each card has its own limit; the driver has one for all cards, which is the smallest."""
    assert reached(node, isolation, *UNEQUAL) == mib


def test_hami_core_misreads_uuids(node: Node) -> None:
    """With UUIDs in place of ordinals both cards share one count: the second has what the first leaves of its limit."""
    values = injected(Isolation.HAMI_CORE, *UNEQUAL)
    assert values["CUDA_VISIBLE_DEVICES"] == "0,1"
    container = node.start("c", {**values, "CUDA_VISIBLE_DEVICES": f"{A},{C}"}, preload=True)
    assert container.run().mib == [3000, 2000]
    node.remove("c")


def test_an_instance_is_its_own_limit(programs: Programs, tmp_path: Path) -> None:
    """The hardware has no more of it."""
    node = Node(programs, tmp_path, {A: 8000, INSTANCE: 4500})
    assert reached(node, Isolation.MIG, CardShare(INSTANCE, 1, 4500, 142, A)) == [4500]


@pytest.mark.parametrize("isolation", SHARED)
def test_a_restarted_container_has_the_same_limit(node: Node, isolation: Isolation) -> None:
    """What the former one had is given back."""
    promises.a_restarted_container_has_the_same_limit(node, isolation)


@pytest.mark.parametrize("isolation", SHARED)
@pytest.mark.parametrize("size", [2000, 4000])
def test_a_resize_takes_effect_at_the_next_start(node: Node, isolation: Isolation, size: int) -> None:
    """Until then the container has its old size."""
    container = start(node, "c", isolation, injected(isolation, FIRST))
    assert container.run().mib == [3000]
    assert start(node, "c", isolation, injected(isolation, FIRST, resized=size)).run().mib == [size]
    node.remove("c")


@pytest.mark.parametrize(
    ("isolation", "mib"), [(Isolation.CUDA, [0]), (Isolation.MPS, [3000]), (Isolation.HAMI_CORE, [3000])]
)
def test_a_second_process_of_a_container(node: Node, isolation: Isolation, mib: list[int]) -> None:
    """The driver limits the container, MPS each of its clients. The stand-in for HAMi-core knows one process."""
    container = start(node, "c", isolation, injected(isolation, FIRST))
    assert container.run().mib == [3000]
    assert container.run().mib == mib
    node.remove("c")


@pytest.mark.parametrize(
    ("isolation", "unset", "mib"),
    [
        (Isolation.CUDA, ("NVIDIA_GPU_MEMORY_LIMIT", "NVIDIA_GPU_MEMORY_REQUEST"), [3000]),
        (Isolation.MPS, ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",), [8000]),
        (Isolation.HAMI_CORE, ("LD_PRELOAD",), [8000]),
    ],
)
def test_a_process_that_changes_its_own_environment(
    node: Node, isolation: Isolation, unset: tuple[str, ...], mib: list[int]
) -> None:
    """Only the driver's limit does not depend on it: docs/isolation.md says so of the others."""
    container = start(node, "c", isolation, injected(isolation, FIRST))
    assert container.run(unset=unset).mib == mib
    node.remove("c")


@pytest.mark.parametrize(("isolation", "mib"), [(Isolation.CUDA, [3000]), (Isolation.MPS, [8000])])
def test_a_process_that_sees_one_of_its_cards(node: Node, isolation: Isolation, mib: list[int]) -> None:
    """As launchers start workers: MPS then drops all limits, because its variable names a card that is missing."""
    container = start(node, "c", isolation, injected(isolation, *UNEQUAL))
    assert container.run(CUDA_VISIBLE_DEVICES=A).mib == mib
    node.remove("c")


@pytest.mark.parametrize("isolation", [*SHARED, Isolation.NONE])
def test_a_container_without_its_allocation_gets_nothing(node: Node, isolation: Isolation) -> None:
    """An annotation that is missing is an empty variable: the toolkit fails, or CUDA shows no card."""
    values = environment.resolve(references(isolation, 1), {})
    if isolation is Isolation.CUDA:
        with pytest.raises(NotStartedError):
            start(node, "c", isolation, values)
        return
    assert start(node, "c", isolation, values).run().result == "cuInit: error 100"
    node.remove("c")


def test_the_drivers_limits_start_no_container_where_the_driver_has_none(programs: Programs, tmp_path: Path) -> None:
    """So these variables are in no other pod, and such pods get no such node."""
    node = Node(programs, tmp_path, CARDS)
    with pytest.raises(NotStartedError):
        node.start("c", injected(Isolation.CUDA, FIRST))
    for isolation in (Isolation.NONE, Isolation.MPS, Isolation.HAMI_CORE, Isolation.MIG):
        start(node, "c", isolation, injected(isolation, FIRST))
    node.remove("c")
