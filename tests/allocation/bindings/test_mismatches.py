"""The reasons why a binding does not count for a pod are complete: a binding without one counts."""

import itertools
from typing import Any

import msgspec
import pytest

from allocation.bindings import grants
from allocation.bindings.binding import AppIdentity, Binding, BindingSpec

ALICE = AppIdentity("comfyui", "alice", "ns-a")
LABELS = {"tier": "gpu"}


def spec(**fields: Any) -> BindingSpec:
    """Return the spec of a binding for every pod of the application, unless `fields` say something else."""
    return msgspec.convert({"uuid": "GPU-0", "appName": "comfyui", "podSelector": {}, **fields}, BindingSpec)


CHOICES: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("uuid", ("GPU-0", "")),
    ("appName", ("comfyui", "ollama")),
    ("owner", ("", "alice", "bob")),
    ("namespace", ("", "ns-a", "ns-b")),
    ("podSelector", (None, {}, {"matchLabels": {"tier": "gpu"}}, {"matchLabels": {"tier": "cpu"}})),
    ("memory", (None, "24k", "many")),
)


@pytest.mark.parametrize("require_namespace", [False, True])
def test_a_binding_without_a_reason_against_it_gives_its_card(require_namespace: bool) -> None:  # noqa: FBT001
    """And one with a reason gives none, for every combination of fields."""
    names, values = zip(*CHOICES, strict=True)
    outcomes = set()
    for chosen in itertools.product(*values):
        each = spec(**dict(zip(names, chosen, strict=True)))
        reasons = grants.mismatches(each, ALICE, LABELS, require_namespace=require_namespace)
        granted = grants.of_pod([Binding("b", "", each)], ALICE, LABELS, require_namespace=require_namespace)
        assert bool(granted) is not bool(reasons), (each, reasons)
        outcomes.add(bool(granted))
    assert outcomes == {True, False}


def test_every_reason_against_a_binding_is_named() -> None:
    """Somebody who mends one of them sees the others at once."""
    wrong = spec(owner="bob", namespace="ns-b", podSelector={"matchLabels": {"tier": "cpu"}}, memory="many")
    *reasons, memory = grants.mismatches(wrong, ALICE, LABELS)
    assert reasons == ["is for owner bob", "is for namespace ns-b", "does not select the pod's labels"]
    assert memory.startswith("has a memory that cannot be read: 'many'")
