"""The ResourceSlice of a node: what Kubernetes may allocate of its cards, and what changes its generation."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.dra import resource_slice
from agent.report import DeviceReport, NodeReport
from allocation import names, quantity
from allocation.inventory import Card

NODE = "n1"


def report(*devices: DeviceReport, driver: str = "") -> NodeReport:
    """Return a report of a node."""
    return NodeReport(NODE, devices, driver_version=driver)


def card(index: int = 0, **fields: Any) -> DeviceReport:
    """Return a card; fields of the report of a device go there."""
    of_report = {key: fields.pop(key) for key in ("island", "missing") if key in fields}
    values = {"memory_mib": 81920, "model": "NVIDIA H100", **fields}
    return DeviceReport(Card(values.pop("uuid", f"GPU-{index}"), index, **values), **of_report)


def devices_of(body: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the devices of a slice by name."""
    return {each["name"]: each for each in body["spec"]["devices"]}


def taints_of(device: dict[str, Any]) -> set[tuple[str, str]]:
    """Return the taints of a device."""
    return {(each["key"], each["effect"]) for each in device.get("taints", ())}


cards = st.lists(
    st.builds(
        card,
        st.integers(0, 7),
        memory_mib=st.integers(1, 200_000),
        cores=st.sampled_from([5, 1000, 1500]),
        slots=st.integers(0, 20),
        numa=st.integers(-1, 3),
        mode=st.sampled_from(["hami-core", "mig", "mps"]),
        healthy=st.booleans(),
        missing=st.booleans(),
        island=st.sampled_from(["", "0", "island-1"]),
    ),
    max_size=6,
    unique_by=lambda each: each.card.index,
)


def test_card_is_a_device_that_is_shared_by_memory_compute_and_slots() -> None:
    """All fields of a card with all facts; a request without an amount of memory has the whole card."""
    made = resource_slice.body(report(card(3, numa=1, island="0"), driver="535.104.05"), node_uid="u")
    assert made == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {
            "name": "gpu.scheduling-n1",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u"}],
        },
        "spec": {
            "driver": "gpu.scheduling",
            "nodeName": "n1",
            "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": "gpu-3",
                    "allowMultipleAllocations": True,
                    "attributes": {
                        "uuid": {"string": "GPU-3"},
                        "index": {"int": 3},
                        "model": {"string": "NVIDIA H100"},
                        "nvlinkIsland": {"string": "n1-0"},
                        "numa": {"int": 1},
                        "driverVersion": {"version": "535.104.5"},
                    },
                    "capacity": {
                        "memory": {
                            "value": "81920Mi",
                            "requestPolicy": {
                                "default": "81920Mi",
                                "validRange": {"min": "1Mi", "max": "81920Mi", "step": "1Mi"},
                            },
                        },
                        "cores": {
                            "value": "100",
                            "requestPolicy": {"default": "0", "validRange": {"min": "0", "max": "100", "step": "1"}},
                        },
                        "slots": {
                            "value": "10",
                            "requestPolicy": {"default": "1", "validRange": {"min": "1", "max": "1"}},
                        },
                    },
                }
            ],
        },
    }


@given(found=cards, cordoned=st.sets(st.integers(0, 7)), is_closed=st.booleans())
def test_each_device_is_a_card_that_can_be_shared(
    found: list[DeviceReport], cordoned: set[int], *, is_closed: bool
) -> None:
    """No card in MIG mode, none that is gone; bounds that the API server checks hold; taints only keep new pods off."""
    uuids = {f"GPU-{each}" for each in cordoned}
    made = devices_of(resource_slice.body(report(*found), cordoned=uuids, is_closed=is_closed))
    usable = sorted(
        each.card.index for each in found if each.card.mode != "mig" and not each.missing and each.card.slots
    )
    assert [*made] == [f"gpu-{index}" for index in usable]
    by_name = {f"gpu-{each.card.index}": each.card for each in found}
    for name, device in made.items():
        own = by_name[name]
        for capacity in device["capacity"].values():
            policy = capacity["requestPolicy"]
            value, default = (quantity.parse(each) for each in (capacity["value"], policy["default"]))
            bounds = {key: quantity.parse(each) for key, each in policy["validRange"].items()}
            assert bounds["min"] <= default <= bounds["max"] <= value
            if "step" in bounds:
                assert bounds["min"] + bounds["step"] <= value
                assert (default - bounds["min"]) % bounds["step"] == 0
        assert quantity.parse(device["capacity"]["memory"]["value"]) == own.memory_mib * 2**20
        keys = {
            *([names.CARD_UNHEALTHY_TAINT] if not own.healthy else []),
            *([names.CARD_CORDONED_TAINT] if own.uuid in uuids else []),
            *([names.NODE_DRAINING_TAINT] if is_closed else []),
        }
        assert taints_of(device) == {(key, "NoSchedule") for key in keys}
        assert all(len(each.get("string", "")) <= 64 for each in device["attributes"].values())


@given(first=cards, second=cards, cordoned=st.sets(st.integers(0, 7)), is_closed=st.booleans())
def test_generation_rises_only_with_another_set_of_devices(
    first: list[DeviceReport], second: list[DeviceReport], cordoned: set[int], *, is_closed: bool
) -> None:
    """Health, cordons and the way back to the ledger are taints within a generation."""
    before = resource_slice.body(report(*first))
    uuids = {f"GPU-{each}" for each in cordoned}
    after = resource_slice.body(report(*second), cordoned=uuids, is_closed=is_closed, present=before)
    is_another = devices_of(before).keys() != devices_of(after).keys()
    assert after["spec"]["pool"]["generation"] == (2 if is_another else 1)
    sick = [DeviceReport(Card(each.card.uuid, each.card.index, 1, healthy=False)) for each in first]
    healthy = [DeviceReport(Card(each.card.uuid, each.card.index, 1)) for each in first]
    present = resource_slice.body(report(*healthy))
    assert resource_slice.body(report(*sick), present=present)["spec"]["pool"]["generation"] == 1


def test_another_card_in_the_place_of_one_is_another_set() -> None:
    """A device keeps its name, and claims that have it have another card."""
    before = resource_slice.body(report(card(0)))
    after = resource_slice.body(report(card(0, uuid="GPU-new")), present=before)
    assert after["spec"]["pool"]["generation"] == 2


def as_stored(body: dict[str, Any]) -> dict[str, Any]:
    """Return a slice as the API server returns it: in its own units, and with the times of taints."""
    devices = []
    for each in body["spec"]["devices"]:
        memory = {**each["capacity"]["memory"], "value": "80Gi"}
        stored = [{**taint, "timeAdded": "2026-01-01T00:00:00Z"} for taint in each.get("taints", ())]
        changed = {**each, "capacity": {**each["capacity"], "memory": memory}}
        devices.append({**changed, "taints": stored} if stored else changed)
    return {**body, "spec": {**body["spec"], "devices": devices}}


def test_slice_is_written_only_if_it_differs() -> None:
    """What the API server adds and how it writes quantities makes no difference."""
    made = resource_slice.body(report(card(0, healthy=False), card(1)))
    assert resource_slice.is_same(made, as_stored(made))
    assert not resource_slice.is_same(made, None)
    for other in (
        report(card(0), card(1)),
        report(card(0, healthy=False)),
        report(card(0, healthy=False), card(1, memory_mib=1)),
    ):
        assert not resource_slice.is_same(resource_slice.body(other, present=made), as_stored(made))


def test_presence_is_closed_only_if_no_device_is_open() -> None:
    """An agent that restarts reads from its slice how far the last one was."""
    assert resource_slice.presence(None) == "absent"
    assert resource_slice.presence(resource_slice.body(report(card(0)))) == "open"
    closed = resource_slice.body(report(card(0), card(1)), is_closed=True)
    assert resource_slice.presence(closed) == "closed"
    closed["spec"]["devices"][0]["taints"] = []
    assert resource_slice.presence(closed) == "open"


@pytest.mark.parametrize(
    ("driver", "version"),
    [("550.54.15", "550.54.15"), ("535.104.05", "535.104.5"), ("615.10", "615.10.0"), ("", None), ("x", None)],
)
def test_driver_version_is_a_semantic_version(driver: str, version: str | None) -> None:
    """The API server refuses leading zeros; another text is left out."""
    (device,) = resource_slice.body(report(card(), driver=driver))["spec"]["devices"]
    assert device["attributes"].get("driverVersion", {}).get("version") == version


def test_slice_has_as_many_devices_as_the_api_server_accepts() -> None:
    """Of a node with more cards the first ones."""
    made = devices_of(resource_slice.body(report(*(card(99 - index) for index in range(100)))))
    assert [*made] == [f"gpu-{index}" for index in range(64)]


def test_names_fit() -> None:
    """A long model is cut, and a card whose UUID cannot be an attribute is left out."""
    made = resource_slice.body(report(card(0, model="m" * 100), card(1, uuid="u" * 65)))
    assert [*devices_of(made)] == ["gpu-0"]
    assert len(names.resource_slice("n" * 253)) == 253
