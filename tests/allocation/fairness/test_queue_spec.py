"""Which queue a pod belongs to, and which namespaces a queue is for."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation import names
from allocation.fairness.queue_spec import QueueKey, QueueSpec

NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)


def spec(**fields: Any) -> QueueSpec:
    """Return a spec from the fields as users write them."""
    return msgspec.convert(fields, QueueSpec)


@given(NAMES, st.booleans())
def test_the_annotation_of_a_bound_pod_says_who_pays(name: str, is_gpu_queue: bool) -> None:  # noqa: FBT001 -- drawn
    """What is written with the Binding is read as the same queue, even if a GpuQueue is named `namespace`."""
    key = QueueKey(name=name) if is_gpu_queue else QueueKey(namespace=name)
    assert QueueKey.of_annotation(str(key)) == key


def test_keys_are_written_as_the_documentation_says() -> None:
    """A GpuQueue by its name, the own queue of a namespace with a prefix."""
    assert str(QueueKey(name="team-a")) == "team-a"
    assert str(QueueKey(namespace="team-a")) == "namespace/team-a"


@pytest.mark.parametrize(
    ("of_pod", "of_namespace", "key"),
    [
        ("x", "y", QueueKey(name="x")),
        ("x", None, QueueKey(name="x")),
        (None, "y", QueueKey(name="y")),
        (None, None, QueueKey(namespace="team")),
        ("", "y", QueueKey(name="y")),
        ("", "", QueueKey(namespace="team")),
    ],
)
def test_the_label_of_the_pod_counts_before_that_of_its_namespace(
    of_pod: str | None, of_namespace: str | None, key: QueueKey
) -> None:
    """Without either, or with empty ones, the namespace is a queue of its own."""

    def labels(value: str | None) -> dict[str, str]:
        return {"app": "web"} if value is None else {names.QUEUE: value}

    assert QueueKey.of_labels(labels(of_pod), namespace="team", namespace_labels=labels(of_namespace)) == key


@pytest.mark.parametrize(
    ("selector", "accepted"),
    [
        ({"namespaceSelector": {}}, {"a", "b", "none"}),
        ({}, set()),
        ({"namespaceSelector": {"matchLabels": {"team": "a"}}}, {"a"}),
        ({"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}}, {"a", "b"}),
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}},
            {"b", "none"},
        ),
    ],
)
def test_a_queue_is_for_the_namespaces_that_its_selector_matches(selector: dict[str, Any], accepted: set[str]) -> None:
    """An empty selector matches all namespaces, a missing one none."""
    namespaces = {"a": {"team": "a"}, "b": {"team": "b"}, "none": {}}
    assert {name for name, labels in namespaces.items() if spec(**selector).accepts(labels)} == accepted


def test_what_is_not_written_is_the_default() -> None:
    """An empty spec is that of a namespace's own queue: weight 1, no tier, no limits."""
    assert spec() == QueueSpec()
    assert (spec().weight, spec().priority, spec().limits, spec().max_instances, spec().batch_size) == (
        1,
        0,
        {},
        None,
        1,
    )


def test_what_no_queue_can_be_named_is_not_kept() -> None:
    """Pods of a queue share its key; names in manifests that were never admitted take no memory afterwards."""
    for length, is_kept in ((names.MAX_NAME_LENGTH, True), (names.MAX_NAME_LENGTH + 1, False)):
        first, second = (
            QueueKey.of_labels({names.QUEUE: "a" * length}, namespace="team", namespace_labels={}) for _ in range(2)
        )
        assert first == second
        assert (first is second) is is_kept
        assert QueueKey.of_annotation("a" * length) == first
    long = "namespace/" + "a" * (names.MAX_NAME_LENGTH + 1)
    assert QueueKey.of_annotation(long) is not QueueKey.of_annotation(long)
