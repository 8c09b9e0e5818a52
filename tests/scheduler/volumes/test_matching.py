"""An unbound claim gets the smallest PersistentVolume that fits it and its node."""

from typing import Any

import pytest

from scheduler.volumes.bindings import ClaimKey
from scheduler.volumes.compiled_volume import CompiledVolume
from scheduler.volumes.matching import ClaimMatcher, VolumeIndex
from scheduler.volumes.objects import Claim, PersistentVolume
from tests.scheduler.support.builders import node
from tests.scheduler.support.storage import claim, volume

KEY = ClaimKey("default", "data")


def found(wanted: Claim, *volumes: PersistentVolume, on: str = "n1", taken: tuple[str, ...] = ()) -> str:
    """Return the volume that a claim gets on a node, or an empty string."""
    index = VolumeIndex()
    for each in volumes:
        index.add(CompiledVolume.of(each))
    reserved = [each for each in index.reserved(KEY) if each.is_reserved_for(KEY, wanted.metadata.uid)]
    match = ClaimMatcher(KEY, wanted, index, reserved=reserved).find(node(on), taken)
    return match.name if match is not None else ""


def test_the_smallest_volume_that_fits_is_found() -> None:
    """Volumes of other nodes and smaller ones do not fit."""
    volumes = (
        volume("large", size="1Ti"),
        volume("fits", size="20Gi", node="n1"),
        volume("elsewhere", size="10Gi", node="n2"),
        volume("small", size="9Gi"),
    )
    assert found(claim("data"), *volumes) == "fits"
    assert found(claim("data"), *volumes, taken=("fits",)) == "large"
    assert found(claim("data"), *volumes, on="n2") == "elsewhere"


@pytest.mark.parametrize(
    "fields",
    [
        {"storage_class": "other"},
        {"phase": "Released"},
        {"modes": ("ReadOnlyMany",)},
        {"volumeMode": "Block"},
        {"deleted": "2026-01-01T00:00:00Z"},
        {"volumeAttributesClassName": "gold"},
        {"claim": "other"},
        {"claim": "data", "claim_uid": "older"},
        {"labels": {"disk": "hdd"}},
    ],
)
def test_an_unsuitable_volume_is_not_found(fields: dict[str, Any]) -> None:
    """By class, phase, modes, deletion, attributes, reservation or selector."""
    wanted = claim("data", selector={"matchLabels": {"disk": "ssd"}})
    assert found(wanted, volume("pv", labels={"disk": "ssd"})) == "pv"
    assert found(wanted, volume("pv", **{"labels": {"disk": "ssd"}, **fields})) == ""


def test_a_volume_reserved_for_the_claim_comes_first() -> None:
    """Even where a smaller one is free, and though its phase and modes are not compared; elsewhere nothing else is."""
    volumes = (volume("free"), volume("mine", size="1Ti", node="n1", claim="data", modes=(), phase="Pending"))
    assert found(claim("data"), *volumes) == "mine"
    assert found(claim("data"), *volumes, on="n2") == ""
