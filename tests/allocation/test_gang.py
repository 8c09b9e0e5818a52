"""What pods declare of their gangs, in every form that people already write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.errors import AllocationError
from allocation.gang import MOST_MEMBERS, Declaration, declared, named
from allocation.names import GANG_KEYS

GROUP = "scheduling.x-k8s.io/pod-group"
OLD = "pod-group.scheduling.sigs.k8s.io"
KOORDINATOR = "gang.scheduling.koordinator.sh"
FUSION = "tensor-fusion.ai/gang"
SIZE, TIMEOUT = "gpu.scheduling/gang-min-members", "gpu.scheduling/gang-timeout"


@pytest.mark.parametrize(
    ("labels", "annotations", "expected"),
    [
        ({}, {}, None),
        ({"app": "x"}, {SIZE: "4"}, None),
        ({"gpu.scheduling/gang": "a"}, {}, Declaration("a")),
        ({}, {"gpu.scheduling/gang": "a", SIZE: "4", TIMEOUT: "10m"}, Declaration("a", 4, 600.0)),
        ({"gpu.scheduling/gang": "a"}, {SIZE: "4", TIMEOUT: "0"}, Declaration("a", 4)),
        ({"gpu.scheduling/gang": "a"}, {"gpu.scheduling/gang-block": "rack"}, Declaration("a", block="rack")),
        ({"job": "uid-1"}, {"gpu.scheduling/gang-by": "job", SIZE: "2"}, Declaration("uid-1", 2)),
        ({GROUP: "a"}, {SIZE: "3"}, Declaration("a", 3, is_pod_group=True)),
        ({f"{OLD}/name": "a", f"{OLD}/min-available": "3"}, {}, Declaration("a", 3)),
        ({OLD: "a"}, {}, Declaration("a")),
        (
            {},
            {f"{KOORDINATOR}/name": "a", f"{KOORDINATOR}/min-available": "3", f"{KOORDINATOR}/waiting-time": "30s"},
            Declaration("a", 3, 30.0),
        ),
        ({f"{KOORDINATOR}/name": "a", f"{KOORDINATOR}/min-available": "3"}, {}, Declaration("a", 3)),
        (
            {"kueue.x-k8s.io/pod-group-name": "a"},
            {"kueue.x-k8s.io/pod-group-total-count": "5"},
            Declaration("a", 5),
        ),
        ({}, {f"{FUSION}-enabled": "true", f"{FUSION}-min-members": "2"}, None),
        ({}, {f"{FUSION}-enabled": "false", f"{FUSION}-group-key": "a"}, None),
        (
            {},
            {
                f"{FUSION}-enabled": "true",
                f"{FUSION}-group-key": "a",
                f"{FUSION}-min-members": "2",
                f"{FUSION}-timeout": "5m",
            },
            Declaration("a", 2, 300.0),
        ),
        (
            {},
            {
                f"{FUSION}-enabled": "true",
                f"{FUSION}-group-key": "a",
                f"{FUSION}-min-members": "2",
                f"{FUSION}-required-members": "4",
            },
            Declaration("a", 4),
        ),
        ({f"{OLD}/name": "a", f"{OLD}/min-available": "3"}, {SIZE: "9"}, Declaration("a", 9)),
        ({"gpu.scheduling/gang": "a", GROUP: "b", "job": "c"}, {"gpu.scheduling/gang-by": "job"}, Declaration("c")),
        ({GROUP: "b", f"{OLD}/name": "a", f"{OLD}/min-available": "3"}, {}, Declaration("b", is_pod_group=True)),
    ],
)
def test_each_form_is_read(labels: dict[str, str], annotations: dict[str, str], expected: Declaration | None) -> None:
    """The first form that names a gang counts, with the size and the timeout of this form, or our own."""
    assert declared(labels, annotations) == expected


def test_the_claim_comes_first() -> None:
    """Its `gangRef` counts whatever the pod says; the size is that of our own annotation."""
    labels = {GROUP: "a", f"{OLD}/min-available": "3"}
    assert declared(labels, {SIZE: "2"}, gang_ref="train") == Declaration("train", 2)
    assert list(named(labels, {}, gang_ref="train").values()) == ["train", "a"]


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({SIZE: "many"}, rf'metadata.annotations\["{SIZE}"\] holds .many.: it must be a number of pods'),
        ({SIZE: "0"}, "number of pods"),
        ({SIZE: "-1"}, "number of pods"),
        ({SIZE: str(MOST_MEMBERS + 1)}, "number of pods"),
        ({SIZE: "٤"}, "number of pods"),
        ({SIZE: "9" * 5000}, "number of pods"),
        ({TIMEOUT: "10"}, "must be a duration"),
        ({"gpu.scheduling/gang-by": "team"}, "must be the key of a label of the pod"),
        ({"gpu.scheduling/gang": "a" * 254}, "254 characters"),
    ],
)
def test_what_cannot_be_read_is_an_error(annotations: dict[str, str], message: str) -> None:
    """It names the annotation, the value and what is expected; it is never long."""
    with pytest.raises(AllocationError, match=message) as raised:
        declared({GROUP: "a"} if "gpu.scheduling/gang" not in annotations else {}, annotations)
    assert len(str(raised.value)) < 600


@given(
    st.dictionaries(st.sampled_from(sorted(GANG_KEYS | {GROUP, OLD, "kueue.x-k8s.io/pod-group-name"})), st.text()),
    st.dictionaries(st.sampled_from(sorted(GANG_KEYS)), st.text() | st.integers(0, 3000).map(str)),
)
def test_whatever_a_tenant_writes_is_read_or_refused(labels: dict[str, str], annotations: dict[str, str]) -> None:
    """No other error, and every number is within its limits."""
    try:
        found = declared(labels, annotations)
    except AllocationError:
        return
    if found is not None:
        assert found.name
        assert 0 <= found.size <= MOST_MEMBERS
        assert found.timeout >= 0
