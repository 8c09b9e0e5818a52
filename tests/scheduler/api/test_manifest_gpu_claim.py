"""A GpuClaim that does not exist yet is read by the rules of its definition, and refused in words."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.manifest import UnreadableManifestError
from scheduler.api import manifest_gpu_claim
from scheduler.api.manifest_gpu_claim import read_gpu_claim
from tests.scheduler.support.claims import manifest

DEFINITION = Path(__file__).parents[3] / "manifests" / "base" / "crds" / "gpuclaims.yaml"


def test_a_claim_has_the_defaults_of_its_definition() -> None:
    """Null members count as missing, as for the API server."""
    made = manifest("a", labels={"rack": "1"}, memoryMiB=None)
    read = read_gpu_claim({**made, "status": {"phase": "Bound"}})
    devices = read.spec.devices
    assert (read.metadata.name, read.metadata.namespace, devices.count) == ("a", "", 1)
    assert (devices.exclusivity, devices.visible_as, devices.memory_mib) == ("Exclusive", "Index", None)
    assert read.spec.node_labels == {"rack": "1"}


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (manifest(""), "no metadata.name"),
        ({"metadata": {"name": "a"}, "spec": {}}, "cannot be read: Object missing required field `devices`"),
        (manifest("a", exclusivity="exclusive"), "cannot be read: Invalid enum value 'exclusive'"),
        (manifest("a", count=0), "GpuClaim a: spec.devices.count holds 0; write a number of cards from 1 to 128"),
        (manifest("a", count=129), "holds 129"),
        (manifest("a", memoryMiB=1), "memoryMiB is for exclusivity Shared and MIG"),
        (manifest("a", exclusivity="Shared", memoryMiB=0), "memoryMiB holds 0; write a number above 0"),
        (manifest("a", exclusivity="Shared", cores=101), "cores holds 101; write a percentage from 1 to 100"),
        (manifest("a", exclusivity="MIG", cores=10), "cores is for exclusivity Shared, and exclusivity holds MIG"),
        (manifest("a", exclusivity="Shared", profile="1g.10gb"), "profile is for exclusivity MIG"),
    ],
)
def test_an_invalid_claim_is_refused(made: dict[str, Any], message: str) -> None:
    """The message names the claim, the field, and what it may hold."""
    with pytest.raises(UnreadableManifestError) as raised:
        read_gpu_claim(made)
    assert message in str(raised.value)


def test_the_largest_count_is_that_of_the_definition() -> None:
    """The API server refuses the same claims."""
    schema = yaml.safe_load(DEFINITION.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    devices = schema["properties"]["spec"]["properties"]["devices"]["properties"]
    assert (devices["count"]["minimum"], devices["count"]["maximum"]) == (1, manifest_gpu_claim.MOST_CARDS)
    assert (devices["cores"]["minimum"], devices["cores"]["maximum"]) == (1, manifest_gpu_claim.MOST_CORES)
