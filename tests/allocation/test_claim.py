"""A claim gives each GPU container the same cards; what a container states must be what the claim gives."""

from types import SimpleNamespace

import msgspec
import pytest

from allocation.allocation import Allocation, CardShare, ClaimMark
from allocation.claim import ClaimDevices, ClaimRequest, ClaimSpec, check, read_request, resources
from allocation.errors import AllocationError, InvalidFieldError
from allocation.pod import Container, Resources
from allocation.quantity import Quantity
from allocation.request import ContainerRequest, Kind
from allocation.request import read_request as read_own
from allocation.settings import AllocationSettings

SETTINGS = AllocationSettings()
GPU, MEMORY, PERCENT, CORES, _ = SETTINGS.resources.gpu_resources()
EXCLUSIVE, SHARED, MIG = ClaimDevices(2), ClaimDevices(1, "Shared"), ClaimDevices(1, "MIG")


def devices(of: ClaimDevices, **changes: object) -> ClaimDevices:
    """Return `of` with other fields."""
    return msgspec.structs.replace(of, **changes)


def container(name: str = "main", *, requests: dict[str, Quantity] | None = None, **limits: Quantity) -> Container:
    """Return a container with GPU limits, by short names, and with `requests` by resource name."""
    keys = {"gpu": GPU, "memory": MEMORY, "percent": PERCENT, "cores": CORES}
    stated = {keys[key]: value for key, value in limits.items()}
    return Container(name=name, resources=Resources(limits=stated or None, requests=requests))


def read(
    of: ClaimDevices, *containers: Container, init: tuple[Container, ...] = (), settings: AllocationSettings = SETTINGS
) -> ClaimRequest:
    """Return what a pod of these containers requests by a claim called `c`."""
    spec = SimpleNamespace(containers=containers, init_containers=init)
    return read_request(spec, read_own(spec, settings), "c", ClaimSpec(of), settings)


# ---- the claim -------------------------------------------------------------------------------------------------------


def test_a_claim_is_read_as_users_write_it() -> None:
    """Everything but the number of cards has a default; fields that the scheduler does not read are ignored."""
    written = b"""{"selector": {"matchLabels": {"zone": "a"}}, "gangRef": "g", "devices": {"count": 2}}"""
    spec = msgspec.json.decode(written, type=ClaimSpec)
    assert spec.devices == ClaimDevices(2, "Exclusive", "Index")
    assert spec.node_labels == {"zone": "a"}
    all_fields = (
        b'{"devices":{"count":1,"exclusivity":"Shared","visibleAs":"UUID","memoryMiB":8,"cores":5,"profile":""}}'
    )
    assert msgspec.json.decode(all_fields, type=ClaimSpec).devices == ClaimDevices(1, "Shared", "UUID", 8, 5)
    assert msgspec.json.decode(b'{"devices":{"count":1}}', type=ClaimSpec).node_labels == {}


@pytest.mark.parametrize(
    ("of", "given"),
    [
        (EXCLUSIVE, {GPU: 2, PERCENT: 100, CORES: 100}),
        (SHARED, {GPU: 1}),
        (devices(SHARED, memory_mib=4096), {GPU: 1, MEMORY: 4096}),
        (devices(SHARED, memory_mib=4096, cores=30), {GPU: 1, MEMORY: 4096, CORES: 30}),
        (devices(SHARED, count=3, cores=30), {GPU: 3, CORES: 30}),
        (devices(MIG, count=2), {GPU: 2}),
        (devices(MIG, memory_mib=10240), {GPU: 1, MEMORY: 10240}),
        (devices(MIG, profile="1g.10gb"), {GPU: 1}),
    ],
)
def test_each_claim_gives_resources(of: ClaimDevices, given: dict[str, int]) -> None:
    """An exclusive one gives all of each card; the others give what they name, and else nothing but the cards."""
    assert resources(of, SETTINGS) == given


def test_memory_is_given_in_units_of_the_resource() -> None:
    """With `memory_factor` 1024 users write GiB, but a claim always has MiB, so some amounts cannot be given."""
    settings = AllocationSettings(memory_factor=1024)
    assert resources(devices(SHARED, memory_mib=4096), settings) == {GPU: 1, MEMORY: 4}
    assert read(devices(SHARED, memory_mib=4096), container(gpu="1", memory="4"), settings=settings)
    with pytest.raises(InvalidFieldError, match=r"spec.devices.memoryMiB of the GpuClaim .* multiple of 1024"):
        resources(devices(SHARED, memory_mib=4000), settings)


# ---- what containers state -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of", "stated"),
    [
        (EXCLUSIVE, container(gpu="2")),
        (EXCLUSIVE, container(gpu="2", percent="100", cores="100")),
        (EXCLUSIVE, container(gpu=2, requests={GPU: "2", CORES: "100"})),
        (EXCLUSIVE, container(requests={GPU: "2"})),
        (SHARED, container(gpu="1")),
        (devices(SHARED, memory_mib=4000), container(gpu="1", memory="4k")),
        (devices(SHARED, memory_mib=4000, cores=30), container(memory="4000", cores="30")),
        (MIG, container(gpu="1")),
    ],
)
def test_what_the_claim_gives_may_be_stated(of: ClaimDevices, stated: Container) -> None:
    """In limits or requests, all of it or a part, in any form of the number."""
    assert read(of, stated).placed.gpu_containers[0].count == of.count


@pytest.mark.parametrize(
    ("of", "stated", "field", "expected"),
    [
        (EXCLUSIVE, container(gpu="1"), f'limits["{GPU}"]', "gives 2"),
        (EXCLUSIVE, container(gpu="2", percent="50"), f'limits["{PERCENT}"]', "gives 100"),
        (EXCLUSIVE, container(gpu="2", cores="50"), f'limits["{CORES}"]', "gives 100"),
        (EXCLUSIVE, container(gpu="2", memory="8"), f'limits["{MEMORY}"]', "does not give"),
        (EXCLUSIVE, container(gpu="2", requests={GPU: "1"}), f'requests["{GPU}"]', "gives 2"),
        (SHARED, container(gpu="1", memory="8"), f'limits["{MEMORY}"]', "does not give"),
        (SHARED, container(gpu="1", cores="8"), f'limits["{CORES}"]', "does not give"),
        (SHARED, container(gpu="1", memory="0"), f'limits["{MEMORY}"]', "does not give"),
        (devices(SHARED, cores=30), container(gpu="1", cores="0"), f'limits["{CORES}"]', "gives 30"),
        (devices(SHARED, memory_mib=8), container(gpu="1", memory="9"), f'limits["{MEMORY}"]', "gives 8"),
        (devices(SHARED, memory_mib=8), container(memory="8", requests={MEMORY: "7"}), f'requests["{MEMORY}"]', "8"),
        (MIG, container(gpu="1", percent="50"), f'limits["{PERCENT}"]', "does not give"),
        (MIG, container(gpu="3"), f'limits["{GPU}"]', "gives 1"),
    ],
)
def test_another_amount_is_an_error(of: ClaimDevices, stated: Container, field: str, expected: str) -> None:
    """The error names the field and what the claim gives; an explicit zero is an amount, too."""
    with pytest.raises(InvalidFieldError) as caught:
        read(of, stated)
    assert caught.value.field == f"spec.containers[0].resources.{field}"
    assert "GpuClaim c" in str(caught.value)
    assert expected in str(caught.value)


def test_every_gpu_container_is_checked() -> None:
    """Also init containers; a container that requests no GPU gets none of the cards, whatever else it states."""
    plain, none, wrong = container("a", gpu="2"), container("b", gpu="0"), container("c", gpu="1")
    read(EXCLUSIVE, plain, none, container("d"), init=(container("i", gpu="2"),))
    with pytest.raises(InvalidFieldError, match=r"spec\.containers\[2\]"):
        read(EXCLUSIVE, plain, none, wrong)
    with pytest.raises(InvalidFieldError, match=r"spec\.initContainers\[1\]"):
        read(EXCLUSIVE, plain, init=(none, wrong))


def test_a_pod_that_requests_no_gpu_was_not_prepared() -> None:
    """A claim is not a request by itself, because a pod's annotation can be written after its admission."""
    for stated in (container(), container(gpu="0", memory="0")):
        with pytest.raises(AllocationError, match="admission did not prepare the pod"):
            read(EXCLUSIVE, stated)
    spec = SimpleNamespace(containers=(container(),), init_containers=())
    check(spec, read_own(spec, SETTINGS), "c", ClaimSpec(EXCLUSIVE), SETTINGS)


# ---- what is placed --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of", "stated", "placed"),
    [
        (EXCLUSIVE, container(gpu="2"), {"count": 2, "memory_percent": 100, "cores": 1000, "whole": True}),
        (SHARED, container(gpu="1"), {"count": 1, "memory_mib": 0, "cores": 0}),
        (
            devices(SHARED, memory_mib=4000, cores=30),
            container(gpu="1"),
            {"count": 1, "memory_mib": 4000, "cores": 300},
        ),
        (devices(MIG, count=3), container(gpu="3"), {"count": 3, "memory_mib": 0}),
        (devices(MIG, memory_mib=9000), container(gpu="1"), {"count": 1, "memory_mib": 9000}),
    ],
)
def test_one_container_is_placed_for_all(of: ClaimDevices, stated: Container, placed: dict[str, object]) -> None:
    """What is placed depends on the claim alone, not on what its containers would request without it."""
    second = Container(name="second", resources=stated.resources)
    for containers, init in (((stated,), ()), ((stated, second), ()), ((container("log"), second), (stated,))):
        found = read(of, *containers, init=init)
        (only,) = found.placed.containers
        assert only == ContainerRequest(name="main", kind=Kind.REGULAR, field=only.field, **placed)  # type: ignore[arg-type]
        assert found.mark == ClaimMark("c", of.exclusivity)


def test_a_claim_passes_on_how_its_cards_are_seen() -> None:
    """The names of the cards and the profile are not part of the request that is placed."""
    found = read(devices(MIG, visible_as="UUID", profile="1g.10gb"), container(gpu="1"))
    assert (found.devices.visible_as, found.devices.profile) == ("UUID", "1g.10gb")


def test_every_gpu_container_gets_the_placed_cards() -> None:
    """Each sees the same cards in the same order; a container without a GPU request sees none."""
    spec = SimpleNamespace(
        containers=(container("a", gpu="2"), container("log"), container("b", gpu="2")),
        init_containers=(container("i", gpu="2"),),
    )
    own = read_own(spec, SETTINGS)
    found = read_request(spec, own, "c", ClaimSpec(EXCLUSIVE), SETTINGS)
    shares = (CardShare("GPU-b", 1, 8, 1000), CardShare("GPU-a", 0, 8, 1000))
    spread = found.spread(Allocation("n1", {"i": shares}), own)
    assert spread == Allocation("n1", dict.fromkeys(("i", "a", "b"), shares), ClaimMark("c", "Exclusive"))


@pytest.mark.parametrize(("exclusivity", "leased"), [("Exclusive", True), ("Shared", False), ("MIG", True)])
def test_cards_of_one_pod_are_leased(exclusivity: str, *, leased: bool) -> None:
    """Pods that share a card cannot each hold its Lease."""
    assert msgspec.convert({"name": "c", "exclusivity": exclusivity}, ClaimMark).is_leased is leased
