"""How fast cards are: the TFLOPs of a model, by the name that NVML reports.

FP16 on tensor cores, dense (NVIDIA's data sheets of newer models print the double, with sparsity), rounded down to
whole TFLOPs. A model that is not known has 0, so that none of its cards fits a container that requests TFLOPs.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from allocation.inventory import NodeInventory

_PLUGIN: Final = "NVIDIA-"
"""Begins the model in the register annotation of HAMi's plugin."""
_MIG: Final = " MIG "
"""Stands between the model of a card and the profile in the model of a MIG instance."""

TFLOPS: Final[Mapping[str, int]] = {
    # NVIDIA V100 data sheet: 125 (SXM2), 112 (PCIe)
    "Tesla V100-SXM2-16GB": 125,
    "Tesla V100-SXM2-32GB": 125,
    "Tesla V100-PCIE-16GB": 112,
    "Tesla V100-PCIE-32GB": 112,
    # NVIDIA T4 data sheet: 65
    "Tesla T4": 65,
    # NVIDIA A100 data sheet: 312 in every form
    "NVIDIA A100-SXM4-40GB": 312,
    "NVIDIA A100-SXM4-80GB": 312,
    "NVIDIA A100-PCIE-40GB": 312,
    "NVIDIA A100 80GB PCIe": 312,
    # NVIDIA A10, A30, A40 and A2 data sheets: 125, 165, 149.7 and 18
    "NVIDIA A10": 125,
    "NVIDIA A30": 165,
    "NVIDIA A40": 149,
    "NVIDIA A2": 18,
    # NVIDIA L4 data sheet: 242 with sparsity; NVIDIA L40 and L40S: 181.05 and 362.05 without
    "NVIDIA L4": 121,
    "NVIDIA L40": 181,
    "NVIDIA L40S": 362,
    # NVIDIA H100 and H200 data sheets: 1,979 (SXM), 1,513 (PCIe) and 1,671 (NVL) with sparsity
    "NVIDIA H100 80GB HBM3": 989,
    "NVIDIA H100 PCIe": 756,
    "NVIDIA H100 NVL": 835,
    "NVIDIA H200": 989,
    "NVIDIA H200 NVL": 835,
    # NVIDIA HGX B200 data sheet: 36,000 of eight, with sparsity
    "NVIDIA B200": 2250,
}


def tflops_of(model: str, added: Mapping[str, int]) -> int:
    """Return the TFLOPs of a whole card of a model; of a MIG instance's, those of its card; 0 if it is not known.

    `added` are the models of the configuration, which come first.
    """
    name = model.removeprefix(_PLUGIN).partition(_MIG)[0]
    return added.get(name, TFLOPS.get(name, 0))


def rated(inventory: NodeInventory, added: Mapping[str, int]) -> NodeInventory:
    """Return the inventory with the TFLOPs of each card; a card that says them itself keeps them."""
    rates = [card.tflops or tflops_of(card.model, added) for card in inventory.cards]
    cards = (msgspec.structs.replace(card, tflops=rate) for card, rate in zip(inventory.cards, rates, strict=True))
    return msgspec.structs.replace(inventory, cards=tuple(cards))
