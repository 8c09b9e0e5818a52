"""The models whose TFLOPs are known, by whatever name a card reports."""

import re
from pathlib import Path

import pytest

from allocation.models import TFLOPS, tflops_of

PAGE = (Path(__file__).parents[2] / "docs" / "tflops.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("model", "tflops"),
    [
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 312),
        ("NVIDIA-NVIDIA A100-PCIE-40GB", 312),
        ("NVIDIA-Tesla V100-PCIE-32GB", 112),
        ("NVIDIA A10", 100),
        ("Acme 9000", 7),
        ("NVIDIA A100", 0),
        ("", 0),
    ],
)
def test_tflops_of_a_model(model: str, tflops: int) -> None:
    """HAMi's plugin writes another name, an instance has that of its card; the configuration adds and overrides."""
    assert tflops_of(model, {"NVIDIA A10": 100, "Acme 9000": 7}) == tflops


def test_the_page_lists_the_models() -> None:
    """With their TFLOPs."""
    rows = re.findall(r"^\| (`.*?`) \| (\d+) \| NVIDIA", PAGE, re.MULTILINE)
    assert {name: int(tflops) for names, tflops in rows for name in re.findall("`(.*?)`", names)} == TFLOPS
