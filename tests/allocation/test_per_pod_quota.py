"""What one pod may have: each limit holds to the last unit, and defaults are the smallest of all quotas."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.fairness.quota_spec import QuotaSpec
from allocation.per_pod_quota import Default, defaults, exceeded
from allocation.request import ContainerRequest, Kind, PodRequest
from allocation.settings import AllocationSettings, ResourceNames

SETTINGS = AllocationSettings()
MEMORY, PERCENT, CORES = "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"


def quota(**single: Any) -> QuotaSpec:
    """Return a quota with these fields of `spec.single`."""
    return msgspec.convert({"single": single}, QuotaSpec)


def container(name: str = "main", *, kind: Kind = Kind.REGULAR, count: int = 1, **more: Any) -> ContainerRequest:
    """Return what a GPU container requests."""
    return ContainerRequest(name, kind, f"spec.containers[{name}]", count, **more)


def pod(*containers: ContainerRequest) -> PodRequest:
    """Return the request of a pod."""
    return PodRequest(containers)


@pytest.mark.parametrize(
    ("single", "at_maximum", "above", "message"),
    [
        (
            {"limits": {MEMORY: 4000}},
            container(memory_mib=4000, count=8),
            container(memory_mib=4001),
            f'spec.single.limits["{MEMORY}"] is 4000, and container main requests 4001 of each card',
        ),
        (
            {"limits": {CORES: 30}},
            container(cores=300, count=8),
            container(cores=310),
            f'spec.single.limits["{CORES}"] is 30, and container main requests 31 of each card',
        ),
        ({"maxCards": 2}, container(count=2), container(count=3), "spec.single.maxCards is 2, and the pod requests 3"),
    ],
)
def test_the_maximum_passes_and_one_more_does_not(
    single: dict[str, Any], at_maximum: ContainerRequest, above: ContainerRequest, message: str
) -> None:
    """Row 63 of the features, for each field; the message has the object, the field and both numbers."""
    quotas = {"team": quota(**single)}
    assert exceeded(pod(at_maximum), quotas, SETTINGS) == ""
    assert exceeded(pod(above), quotas, SETTINGS) == f"GpuQuota team: {message}"
    assert message in exceeded(pod(container("first", count=0), above), quotas, SETTINGS)


@pytest.mark.parametrize(
    ("single", "smallest"),
    [
        ({"limits": {MEMORY: 0}}, container(memory_mib=1)),
        ({"limits": {CORES: 0}}, container(cores=10)),
        ({"maxCards": 0}, container()),
    ],
)
def test_zero_is_none_and_nothing_is_unlimited(single: dict[str, Any], smallest: ContainerRequest) -> None:
    """Unlike TensorFusion, where 0 of one card is unlimited."""
    assert exceeded(pod(smallest), {"team": quota(**single)}, SETTINGS)
    assert exceeded(pod(container(memory_mib=2**31, cores=1000, count=99)), {"team": quota()}, SETTINGS) == ""


def test_an_amount_is_of_each_card_of_one_container() -> None:
    """Containers and cards do not add up, not even where they share a card."""
    two = pod(container("a", memory_mib=4000, cores=300, count=4), container("b", memory_mib=4000, cores=300))
    assert exceeded(two, {"team": quota(limits={MEMORY: 4000, CORES: 30})}, SETTINGS) == ""


def test_cards_are_counted_as_they_are_used_together() -> None:
    """Regular containers and sidecars add up; an init container ends before the regular ones start."""
    quotas = {"team": quota(maxCards=3)}
    sidecar = container("side", kind=Kind.SIDECAR, count=1)
    init = container("init", kind=Kind.INIT, count=2)
    assert exceeded(pod(sidecar, init, container(count=2)), quotas, SETTINGS) == ""
    assert "requests 4" in exceeded(pod(sidecar, init, container(count=3)), quotas, SETTINGS)
    assert "requests 4" in exceeded(pod(sidecar, container("init", kind=Kind.INIT, count=3)), quotas, SETTINGS)


def test_a_percentage_of_memory_has_no_amount_yet() -> None:
    """It depends on the card, and is compared once there is one."""
    assert exceeded(pod(container(memory_percent=100)), {"team": quota(limits={MEMORY: 1})}, SETTINGS) == ""


def test_a_pod_without_a_gpu_exceeds_nothing() -> None:
    """Not even a namespace that may have none."""
    nothing = {"team": quota(maxCards=0, limits={MEMORY: 0, CORES: 0})}
    assert exceeded(pod(container(count=0)), nothing, SETTINGS) == ""


def test_limits_are_in_the_units_and_by_the_names_of_the_settings() -> None:
    """With a factor of 1024 users write GiB, and so do administrators."""
    settings = AllocationSettings(memory_factor=1024, resources=ResourceNames(memory="example.com/mem"))
    quotas = {"team": quota(limits={"example.com/mem": 4})}
    assert exceeded(pod(container(memory_mib=4096)), quotas, settings) == ""
    assert "is 4, and container main requests 5 of" in exceeded(pod(container(memory_mib=4097)), quotas, settings)


requests = st.builds(
    pod,
    st.builds(container, st.just("a"), count=st.integers(0, 3), memory_mib=st.integers(0, 3), cores=st.integers(0, 3)),
    st.builds(container, st.just("b"), count=st.integers(0, 3), cores=st.sampled_from([0, 10, 20])),
)
specs = st.builds(
    lambda limits, cards: quota(limits=limits, maxCards=cards),
    st.fixed_dictionaries({}, optional={MEMORY: st.integers(0, 3), CORES: st.integers(0, 2)}),
    st.one_of(st.none(), st.integers(0, 6)),
)


@given(requests, st.dictionaries(st.sampled_from("abc"), specs))
def test_all_quotas_of_a_namespace_hold(request: PodRequest, quotas: dict[str, QuotaSpec]) -> None:
    """The message is that of the first by name that alone would refuse the pod."""
    alone = [exceeded(request, {name: spec}, SETTINGS) for name, spec in sorted(quotas.items())]
    assert exceeded(request, quotas, SETTINGS) == next(filter(None, alone), "")


def test_the_smallest_default_of_each_resource_counts() -> None:
    """Of equal ones that of the first name; memory and cores may come from different quotas."""
    quotas = {
        "c": quota(defaults={MEMORY: 3000}),
        "b": quota(defaults={MEMORY: 2000, CORES: 20}),
        "a": quota(defaults={MEMORY: 2000, CORES: 30, "nvidia.com/gpu": 1}),
        "z": quota(),
    }
    assert defaults(quotas, SETTINGS) == (Default(MEMORY, 2000, "a"), Default(CORES, 20, "b"))
    assert defaults({}, SETTINGS) == ()


def test_a_percentage_is_the_default_only_where_no_amount_is() -> None:
    """A container can have only one of the two."""
    share = {"a": quota(defaults={PERCENT: 25})}
    assert defaults(share, SETTINGS) == (Default(PERCENT, 25, "a"),)
    assert defaults({**share, "b": quota(defaults={MEMORY: 2000})}, SETTINGS) == (Default(MEMORY, 2000, "b"),)


def test_a_default_of_zero_memory_is_none_but_zero_cores_reserve_none() -> None:
    """As in a request, where 0 MiB are read as if nothing was written."""
    zero = {"a": quota(defaults={MEMORY: 0, PERCENT: 0, CORES: 0}), "b": quota(defaults={MEMORY: 2000, CORES: 10})}
    assert defaults(zero, SETTINGS) == (Default(MEMORY, 2000, "b"), Default(CORES, 0, "a"))
