"""Which source decides about a pod's cards: admission and the scheduler always agree, with each other and the docs.

Each draw is a pod with any static allocation, GPUBindings, GpuClaim, resources and defaults. Admission sees all of it
at once; the scheduler sees the pod as admission prepared it before the rest appeared.
"""

from typing import Any

import msgspec
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from allocation import names
from allocation.errors import AllocationError
from allocation.names import SHARE_MODE_PREFIX
from allocation.request import read_request
from allocation.settings import AllocationSettings, BindingSettings
from scheduler.gpu_requirements import WaitingPodError
from scheduler.objects import Pod
from tests.scheduler.support.builders import node, state, status
from tests.scheduler.support.sources import (
    AMOUNTS,
    CARDS,
    DEVICES,
    STATIC,
    Drawn,
    admit,
    prepared_before,
    read,
    scheduler,
)
from webhook.review import ForbiddenPodError


def refusal(act: Any) -> str:
    """Return why a pod is refused; empty if it is not, or if it only waits for a first binding."""
    try:
        act()
    except WaitingPodError:
        return ""
    except (AllocationError, ForbiddenPodError) as error:
        return str(error)
    return ""


def differing(drawn: Drawn) -> tuple[str, ...]:
    """Return what an error must name, by the table in docs/gpubindings.md; empty if no two sources differ."""
    static, devices = drawn.static, drawn.devices
    bound = None if drawn.bindings is None else {CARDS[at]: mib for at, mib in enumerate(drawn.bindings) if mib != -1}
    if static is not None and devices is not None:
        cores = {"Exclusive": 1000}.get(devices["exclusivity"], devices.get("cores", 0) * 10 or static["cores"])
        if devices.get("memoryMiB", static["memoryMiB"]) != static["memoryMiB"] or cores != static["cores"]:
            return (names.ALLOCATION, "GpuClaim c")
    if static is not None and bound is not None:
        if static["uuid"] not in bound:
            return (names.ALLOCATION, "no GPUBinding gives it to app comfyui of alice")
        if bound[static["uuid"]] not in (None, static["memoryMiB"]):
            return (names.ALLOCATION, "GPUBinding b")
    if static is None and bound and devices and devices["exclusivity"] == "Shared" and "memoryMiB" in devices:
        amounts = set(bound.values())
        if amounts.isdisjoint({None, devices["memoryMiB"]}):
            return ("GpuClaim c", "GPUBinding b")
    return ()


def decided(drawn: Drawn) -> int | None:
    """Return the memory of each card by the first source that says it; None for a whole card, or any instance."""
    devices, amounts = drawn.devices or {}, {mib for mib in drawn.bindings or () if mib != -1}
    if drawn.static is not None:
        return int(drawn.static["memoryMiB"])
    claimed: int | None = devices.get("memoryMiB")
    if drawn.kind in ("Exclusive", "MIG"):
        return claimed
    agreed = {mib for mib in amounts if claimed is None or mib in (None, claimed)}
    if len(agreed) == 1 and (mib := agreed.pop()) is not None:
        return mib
    if devices:
        return claimed or 0
    return drawn.stated or drawn.default or None


DRAWS = st.builds(
    Drawn,
    static=st.sampled_from(STATIC),
    bindings=st.none() | st.tuples(st.sampled_from((*AMOUNTS, -1)), st.sampled_from((*AMOUNTS, -1))),
    devices=st.sampled_from(DEVICES),
    stated=st.sampled_from(AMOUNTS),
    default=st.sampled_from((0, 700)),
)


@given(DRAWS)
@example(Drawn(bindings=(2000, -1), devices=DEVICES[3]))
@example(Drawn(bindings=(2000, 3000), devices=DEVICES[3]))
@example(Drawn(bindings=(2000, -1), devices=DEVICES[6]))
@example(Drawn(static=STATIC[1], bindings=(3000, -1)))
@example(Drawn(static=STATIC[5], bindings=(None, None)))
@example(Drawn(static=STATIC[1], devices=DEVICES[1]))
def test_admission_and_scheduler_refuse_the_same_in_the_same_words(drawn: Drawn) -> None:
    """Whatever the sources say: a pod whose sources differ is refused by both, and the message names both sources."""
    expected = differing(drawn)
    at_admission = refusal(lambda: admit(drawn))
    in_scheduler = refusal(lambda: read(drawn, prepared_before(drawn)))
    assert at_admission == in_scheduler
    assert bool(at_admission) == bool(expected)
    assert all(each in at_admission for each in expected)


@given(DRAWS)
@example(Drawn(bindings=(2000, -1), devices=DEVICES[2]))
@example(Drawn(bindings=(2000, 2000), devices=DEVICES[1]))
@example(Drawn(bindings=(2000, 2000), devices=DEVICES[6]))
@example(Drawn(bindings=(None, None), stated=None, default=700))
@example(Drawn(bindings=(3000, 3000), stated=2000))
def test_admission_writes_what_the_first_source_says(drawn: Drawn) -> None:
    """With a static allocation and a claim it writes what the claim says; the allocation says the same, or more."""
    assume(not differing(drawn))
    (written,) = read_request(msgspec.convert(admit(drawn), Pod).spec, drawn.settings).gpu_containers
    expected = decided(drawn)
    if drawn.kind == "Exclusive":
        assert (written.memory_mib, written.memory_percent, written.cores) == (None, 100, 1000)
    elif drawn.kind == "MIG":
        assert written.memory_mib == ((drawn.devices or {}).get("memoryMiB") or drawn.default or None)
    elif expected and not (drawn.static and drawn.devices):
        assert written.memory_mib == expected


@given(DRAWS)
@example(Drawn(bindings=(2000, 3000), devices=DEVICES[3]))
@example(Drawn(bindings=(2000, 3000), devices=DEVICES[1]))
@example(Drawn(bindings=(2000, 2000), devices=DEVICES[6]))
@example(Drawn(bindings=(None, 3000), stated=2000))
def test_the_scheduler_reserves_what_the_first_source_says(drawn: Drawn) -> None:
    """Of each card that the pod may have, by a pod that admission prepared."""
    assume(not differing(drawn))
    assume(drawn.static or drawn.bindings is None or drawn.granted())  # else it waits for a binding
    required = read(drawn, admit(drawn))
    if required.fixed is not None:
        (share,) = required.fixed.containers["main"]
        assert (required.bound, share.memory_mib) == (None, decided(drawn))
        return
    (requested,) = required.request.gpu_containers
    if required.bound is None:
        assert (drawn.bindings, requested.memory_mib or None) == (None, decided(drawn) or None)
        return
    of_cards = {card.uuid: card.request(requested) for card in required.bound.cards}
    assert {each.whole for each in of_cards.values()} == {drawn.kind == "Exclusive"}
    for uuid, each in of_cards.items():
        bound, claimed = (drawn.bindings or ())[CARDS.index(uuid)], (drawn.devices or {}).get("memoryMiB")
        said = claimed if drawn.kind == "MIG" else claimed or bound
        if said is None and drawn.kind is None:
            said = drawn.stated or drawn.default
        assert (each.memory_mib or None) == (said or None)


def test_a_claim_for_instances_gets_them_as_it_says_whatever_share_mode_and_binding_say() -> None:
    """An instance is not divided."""
    drawn = Drawn(bindings=(2000, -1), devices={"exclusivity": "MIG", "memoryMiB": 3000})
    made = scheduler(drawn)
    for modes in ("0", "1", "2"):
        annotations = {f"{SHARE_MODE_PREFIX}{card}": modes for card in CARDS}
        made.set_node(node("n0", metadata={"name": "n0", "labels": {}, "annotations": annotations}))
        required = made.requirements.of(msgspec.convert(admit(drawn), Pod))
        (requested,) = required.request.gpu_containers
        assert required.bound is not None
        assert [card.request(requested) for card in required.bound.cards] == [requested]


def test_a_static_allocation_without_the_label_of_an_application_needs_no_binding() -> None:
    """Also where every other pod needs one: there is nothing that it could differ from."""
    drawn = Drawn(static=STATIC[1])
    made = state(settings=AllocationSettings(bindings=BindingSettings("required")))
    made.set_node(node("n0"))
    made.agent_reports.set(status("n0", memory=40960))
    required = made.requirements.of(msgspec.convert(admit(drawn), Pod))
    assert required.fixed is not None
    with pytest.raises(WaitingPodError):
        made.requirements.of(msgspec.convert(admit(Drawn(stated=2000)), Pod))
