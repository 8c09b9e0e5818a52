"""A GpuClaim that does not exist yet is read by the rules of its definition, and refused in words."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from allocation.claim import ClaimDevices, ClaimNetwork, ClaimSpec, ClaimStorage, ClaimTopology
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


def _with(*, exclusivity: str = "Exclusive", **spec: Any) -> dict[str, Any]:
    """Return the manifest of a claim for one card, with other fields of its `spec`."""
    made = manifest("a", exclusivity=exclusivity)
    return {**made, "spec": {**made["spec"], **spec}}


def test_every_field_is_read() -> None:
    """A simulation takes a claim as the scheduler would read it from the API server."""
    made = _with(
        topology={"mode": "Ignore", "minBandwidthGBps": 25, "maxTier": 0},
        network={"rdmaRequired": True, "minPorts": 2, "preferredHcas": ["mlx5_0"]},
        storage={"cuFile": "Preferred"},
        gangRef="group.a",
    )
    made["spec"]["devices"] |= {"policy": "preferIds", "preferIds": [3, 0]}
    assert read_gpu_claim(made).spec == ClaimSpec(
        ClaimDevices(1, policy="preferIds", prefer_ids=(3, 0)),
        topology=ClaimTopology("Ignore", 25, 0),
        network=ClaimNetwork(rdma_required=True, min_ports=2, preferred_hcas=("mlx5_0",)),
        storage=ClaimStorage("Preferred"),
        gang_ref="group.a",
    )


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
        (manifest("a", policy="best"), "cannot be read: Invalid enum value 'best'"),
        (manifest("a", policy="preferIds"), "GpuClaim a: spec.devices.preferIds is empty"),
        (
            manifest("a", preferIds=[0, 1, 0]),
            "preferIds must be at most 128 indexes of cards from 0 to 1023, each once",
        ),
        (manifest("a", preferIds=[1024]), "from 0 to 1023"),
        (manifest("a", preferIds=list(range(129))), "at most 128"),
        (manifest("a", exclusivity="MIG", policy="spread"), "policy holds spread, and MIG instances are chosen by"),
        (_with(exclusivity="MIG", topology={"mode": "Required"}), "topology.mode holds Required, and MIG instances"),
        (_with(topology={"minBandwidthGBps": -1}), "topology.minBandwidthGBps holds -1; write GB/s in one direction"),
        (_with(topology={"minBandwidthGBps": 1_000_001}), "topology.minBandwidthGBps holds 1000001"),
        (_with(topology={"maxTier": 4}), "topology.maxTier holds 4; write a tier from 0 to 3, or leave it out"),
        (_with(network={"minPorts": 65}), "network.minPorts holds 65; write a number of ports from 0 to 64"),
        (_with(network={"preferredHcas": ["a b"]}), "network.preferredHcas must be at most 16 names of adapters"),
        (_with(network={"preferredHcas": ["a", "a"]}), "network.preferredHcas must be at most 16 names of adapters"),
        (_with(storage={"cuFile": "yes"}), "cannot be read: Invalid enum value 'yes'"),
        (_with(gangRef="-a"), "gangRef holds '-a'; write the name of a group"),
    ],
)
def test_an_invalid_claim_is_refused(made: dict[str, Any], message: str) -> None:
    """The message names the claim, the field, and what it may hold."""
    with pytest.raises(UnreadableManifestError) as raised:
        read_gpu_claim(made)
    assert message in str(raised.value)


def test_the_bounds_are_those_of_the_definition() -> None:
    """The API server refuses the same claims."""
    schema = yaml.safe_load(DEFINITION.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec = schema["properties"]["spec"]["properties"]
    devices, topology, network = (spec[part]["properties"] for part in ("devices", "topology", "network"))
    ids, hcas, group = devices["preferIds"], network["preferredHcas"], spec["gangRef"]

    def bounds(field: dict[str, Any]) -> tuple[int, int]:
        return field["minimum"], field["maximum"]

    assert bounds(devices["count"]) == (1, manifest_gpu_claim.MOST_CARDS)
    assert bounds(devices["cores"]) == (1, manifest_gpu_claim.MOST_CORES)
    assert (*bounds(ids["items"]), ids["maxItems"]) == (0, manifest_gpu_claim.HIGHEST_ID, manifest_gpu_claim.MOST_CARDS)
    assert bounds(topology["maxTier"]) == (0, manifest_gpu_claim.HIGHEST_TIER)
    assert bounds(topology["minBandwidthGBps"]) == (0, manifest_gpu_claim.HIGHEST_BANDWIDTH)
    assert bounds(network["minPorts"]) == (0, manifest_gpu_claim.MOST_PORTS)
    assert (hcas["maxItems"], hcas["items"]["maxLength"], hcas["items"]["pattern"]) == (
        manifest_gpu_claim.MOST_HCAS,
        manifest_gpu_claim.MOST_HCA_CHARACTERS,
        manifest_gpu_claim.HCA,
    )
    assert (group["maxLength"], group["pattern"]) == (
        manifest_gpu_claim.MOST_GROUP_CHARACTERS,
        manifest_gpu_claim.GROUP,
    )
