"""What containers get of a claim: CDI names for each device, and the environment of each request."""

from __future__ import annotations

import pytest

from agent.dra import cdi
from agent.refusal import Refusal
from allocation.inventory import Card
from tests.agent.support.dra_node import NODE, claim, result

CARDS = {f"gpu-{index}": Card(f"GPU-{name}", index, 81920) for index, name in enumerate("abc")}


def test_parts_of_cards_become_limits() -> None:
    """Per request: its cards by their UUIDs, its memory and compute; the names of the host's own devices as well."""
    results = claim(
        "c",
        result("train", "gpu-1", consumedCapacity={"memory": "10Gi", "cores": "30", "slots": "1"}, shareID="s1"),
        result("train", "gpu-0", consumedCapacity={"memory": "5Gi", "cores": "20", "slots": "1"}, shareID="s2"),
        result("show/small", "gpu-2", consumedCapacity={"memory": "1Mi", "cores": "0", "slots": "1"}),
    ).results(NODE)
    specification, prepared = cdi.prepare("1a-2b", results, CARDS)
    assert specification == {
        "cdiVersion": "0.5.0",
        "kind": "gpu.scheduling/claim",
        "devices": [
            {
                "name": "1a-2b-train",
                "containerEdits": {
                    "env": [
                        "NVIDIA_VISIBLE_DEVICES=void",
                        "CUDA_VISIBLE_DEVICES=GPU-b,GPU-a",
                        "CUDA_DEVICE_MEMORY_LIMIT=5120m",
                        "CUDA_DEVICE_MEMORY_LIMIT_0=10240m",
                        "CUDA_DEVICE_MEMORY_LIMIT_1=5120m",
                        "CUDA_DEVICE_SM_LIMIT=20",
                    ]
                },
            },
            {
                "name": "1a-2b-show",
                "containerEdits": {
                    "env": [
                        "NVIDIA_VISIBLE_DEVICES=void",
                        "CUDA_VISIBLE_DEVICES=GPU-c",
                        "CUDA_DEVICE_MEMORY_LIMIT=1m",
                        "CUDA_DEVICE_MEMORY_LIMIT_0=1m",
                        "CUDA_DEVICE_SM_LIMIT=0",
                    ]
                },
            },
        ],
    }
    assert [(each.request, each.device, each.cdi_names, each.share_id) for each in prepared] == [
        ("train", "gpu-1", ("nvidia.com/gpu=GPU-b", "gpu.scheduling/claim=1a-2b-train"), "s1"),
        ("train", "gpu-0", ("nvidia.com/gpu=GPU-a",), "s2"),
        ("show", "gpu-2", ("nvidia.com/gpu=GPU-c", "gpu.scheduling/claim=1a-2b-show"), None),
    ]


def test_claim_without_amounts_has_the_whole_card() -> None:
    """As after administrative access, which consumes nothing."""
    specification, _ = cdi.prepare("u", claim("c", result()).results(NODE), CARDS)
    (device,) = specification["devices"]
    assert "CUDA_DEVICE_MEMORY_LIMIT_0=81920m" in device["containerEdits"]["env"]


def test_devices_of_other_drivers_and_nodes_are_left_to_them() -> None:
    """A claim may have them beside our cards."""
    results = claim("c", result(), {**result(), "driver": "rdma.example.com"}, {**result(), "pool": "n2"}).results(NODE)
    assert len(results) == 1


def test_card_that_is_gone_is_refused() -> None:
    """Nothing is given in its place."""
    with pytest.raises(Refusal, match="the node has no card gpu-7"):
        cdi.prepare("u", claim("c", result(device="gpu-7")).results(NODE), CARDS)


def test_amount_that_cannot_be_read_is_refused() -> None:
    """A limit that is not known is not none."""
    with pytest.raises(Refusal, match="cannot be read"):
        cdi.prepare("u", claim("c", result(consumedCapacity={"memory": "much"})).results(NODE), CARDS)
