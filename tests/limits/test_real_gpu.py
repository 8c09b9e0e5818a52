"""On a machine with a GPU, the limits hold under the real driver, MPS and HAMi-core: `make gpu-test`.

The promises are those of `test_limits_hold.py`. What a machine lacks is what the agent says that it lacks.
"""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING

import pytest

from agent.settings import AgentSettings
from allocation.isolation import Isolation
from tests.cuda import real
from tests.cuda.programs import Programs
from tests.limits import promises
from tests.limits.promises import SHARED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="this machine has no GPU"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="the probe needs a C compiler"),
]


@pytest.fixture
def node(programs: Programs, tmp_path: Path) -> Iterator[Callable[[Isolation], real.RealNode]]:
    """A function that returns this machine as a node with an isolation, and skips the test if it cannot be one."""
    nodes: list[real.RealNode] = []
    library = AgentSettings().hami_core_library

    def machine(isolation: Isolation, mps: Path | str = "") -> real.RealNode:
        _, found = real.offered(mps=mps)
        real.require(isolation, found)
        if isolation is Isolation.CUDA:
            real.require_cgroups()
        nodes.append(real.RealNode(programs, tmp_path, library=library, mps=mps))
        return nodes[-1]

    with contextlib.ExitStack() as stack:

        def made(isolation: Isolation) -> real.RealNode:
            if isolation is not Isolation.MPS:
                return machine(isolation)
            return machine(isolation, stack.enter_context(real.mps_daemon()))

        yield made
        for each in nodes:
            each.close()


@pytest.mark.parametrize("isolation", SHARED)
def test_two_containers_of_one_card_reach_their_own_limits(
    node: Callable[[Isolation], real.RealNode], isolation: Isolation
) -> None:
    """An allocation beyond the slice is refused, and the neighbour has what it was promised."""
    promises.two_containers_of_one_card_reach_their_own_limits(node(isolation), isolation)


@pytest.mark.parametrize("isolation", SHARED)
def test_a_restarted_container_has_the_same_limit(
    node: Callable[[Isolation], real.RealNode], isolation: Isolation
) -> None:
    """What the former one had is given back."""
    promises.a_restarted_container_has_the_same_limit(node(isolation), isolation)


@pytest.mark.parametrize("isolation", [*SHARED, Isolation.NONE])
def test_a_container_sees_its_own_cards_in_order(
    node: Callable[[Isolation], real.RealNode], isolation: Isolation
) -> None:
    """The driver reads CUDA_VISIBLE_DEVICES as admission writes it."""
    promises.a_container_sees_its_own_cards_in_order(node(isolation), isolation)


def test_mps_leaves_a_client_its_share_of_the_compute(node: Callable[[Isolation], real.RealNode]) -> None:
    """30 % of the multiprocessors of the card."""
    promises.mps_leaves_a_client_its_share_of_the_compute(node(Isolation.MPS))


def test_hami_core_shows_the_limit_as_the_memory_of_the_card(node: Callable[[Isolation], real.RealNode]) -> None:
    """Of the card that the ordinal names."""
    promises.hami_core_shows_the_limit_as_the_memory_of_the_card(node(Isolation.HAMI_CORE))


def test_the_drivers_limits_are_offered_from_its_version_on() -> None:
    """An older one is the reason that the agent gives."""
    version, found = real.offered()
    reasons = [each.message for each in found.problems if each.isolation == Isolation.CUDA.value]
    if int(version.partition(".")[0]) < 615:
        assert reasons == [f"the driver must be 615 or newer, and is {version}"]
    else:
        assert not [reason for reason in reasons if "driver" in reason]
