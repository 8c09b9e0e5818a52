"""The GpuClaim kind on a real API server: defaults, values, rules, columns, its status, and who may do what with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from allocation.claim import ClaimDevices, ClaimNetwork, ClaimSpec, ClaimStorage, ClaimTopology
from cluster.gpu_claim import GpuClaim
from lab import manifests, wait
from lab.connection import RefusedError
from tests.cluster.support.stored import Stored
from tests.support import namespaces
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver

NAMESPACE = "gpu-claims"
EDITOR, VIEWER = "claims-editor", "claims-viewer"


def claim(name: str = "single-gpu", **spec: Any) -> dict[str, Any]:
    """Return a claim; `devices` are merged with a count of 1."""
    devices = {"count": 1, **spec.pop("devices", {})}
    return {
        "apiVersion": "gpu.scheduling/v1",
        "kind": "GpuClaim",
        "metadata": {"name": name},
        "spec": {"devices": devices, **spec},
    }


@pytest.fixture(scope="module")
def claims(control_plane: Layout) -> Iterator[Stored]:
    """Yield an empty namespace in which one user has the role `edit`, another `view`."""
    manifests.install(control_plane)
    namespaces.create(control_plane, NAMESPACE)
    made = Stored(control_plane, "gpuclaims.gpu.scheduling", namespace=NAMESPACE)
    for user, role in ((EDITOR, "edit"), (VIEWER, "view")):
        made.grant(user, role)
    yield made
    made.api.delete("namespace", NAMESPACE, wait=False)


def test_defaults_are_those_of_the_product(claims: Stored) -> None:
    """A claim that states only a count is exclusive; what the API server adds is what our code assumes."""
    stored = claims.would_be(claim("plain", network={}))
    assert stored["spec"] == {
        "devices": {
            "count": 1,
            "policy": "contiguous",
            "preferIds": [],
            "exclusivity": "Exclusive",
            "visibleAs": "Index",
        },
        "topology": {"mode": "Preferred", "minBandwidthGBps": 0},
        "network": {"rdmaRequired": False, "minPorts": 0},
    }
    assert msgspec.convert(stored, GpuClaim).spec == ClaimSpec(ClaimDevices(1))


def test_every_field_that_our_code_reads_is_stored(claims: Stored) -> None:
    """The names of the fields are the same in the schema and in the code."""
    devices = {"count": 3, "exclusivity": "Shared", "visibleAs": "UUID", "memoryMiB": 3000, "cores": 30}
    stored = claims.would_be(claim(devices=devices, selector={"matchLabels": {"pool": "a"}}))
    read = msgspec.convert(stored, GpuClaim).spec
    assert read.devices == ClaimDevices(3, "Shared", "UUID", 3000, 30)
    assert read.node_labels == {"pool": "a"}
    mig = claims.would_be(claim(devices={"exclusivity": "MIG", "profile": "1g.10gb"}))
    assert msgspec.convert(mig, GpuClaim).spec.devices == ClaimDevices(1, "MIG", profile="1g.10gb")
    placing = claim(
        devices={"policy": "preferIds", "preferIds": [3, 0]},
        topology={"mode": "Required", "minBandwidthGBps": 25, "maxTier": 1},
        network={"rdmaRequired": True, "minPorts": 2, "preferredHcas": ["mlx5_1", "mlx5_0"]},
        storage={"cuFile": "Preferred"},
        gangRef="group.a",
    )
    assert msgspec.convert(claims.would_be(placing), GpuClaim).spec == ClaimSpec(
        ClaimDevices(1, policy="preferIds", prefer_ids=(3, 0)),
        topology=ClaimTopology("Required", 25, 1),
        network=ClaimNetwork(rdma_required=True, min_ports=2, preferred_hcas=("mlx5_1", "mlx5_0")),
        storage=ClaimStorage("Preferred"),
        gang_ref="group.a",
    )


@pytest.mark.parametrize("devices", [ClaimDevices(8), ClaimDevices(1, "Shared", memory_mib=3000, cores=10)])
def test_devices_that_our_code_writes_are_valid(claims: Stored, devices: ClaimDevices) -> None:
    """With all their defaults, as the benchmarks write them; what is unset is left out."""
    written = {key: value for key, value in msgspec.to_builtins(devices).items() if value not in (None, "")}
    stored = claims.would_be(claim(devices=written))
    assert msgspec.convert(stored, GpuClaim).spec == ClaimSpec(devices)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"devices": {"count": 0}}, "spec.devices.count: Invalid value"),
        ({"devices": {"count": 129}}, "spec.devices.count: Invalid value"),
        ({"devices": {"count": "1"}}, "spec.devices.count: Invalid value"),
        ({"devices": {"policy": "best"}}, 'Unsupported value: "best"'),
        ({"devices": {"exclusivity": "exclusive"}}, 'Unsupported value: "exclusive"'),
        ({"devices": {"visibleAs": "Name"}}, 'Unsupported value: "Name"'),
        ({"devices": {"preferIds": [0, 0]}}, "Duplicate value: 0"),
        ({"devices": {"preferIds": [1024]}}, "preferIds[0]: Invalid value"),
        ({"devices": {"exclusivity": "Shared", "cores": 101}}, "spec.devices.cores: Invalid value"),
        ({"devices": {"exclusivity": "Shared", "memoryMiB": 0}}, "spec.devices.memoryMiB: Invalid value"),
        ({"topology": {"mode": "required"}}, 'Unsupported value: "required"'),
        ({"topology": {"maxTier": 4}}, "spec.topology.maxTier: Invalid value"),
        ({"topology": {"minBandwidthGBps": -1}}, "spec.topology.minBandwidthGBps: Invalid value"),
        ({"topology": {"minBandwidthGBps": 1_000_001}}, "spec.topology.minBandwidthGBps: Invalid value"),
        ({"network": {"preferredHcas": ["a b"]}}, "preferredHcas[0]: Invalid value"),
        ({"storage": {"cuFile": "yes"}}, 'Unsupported value: "yes"'),
        ({"gangRef": "-a"}, "spec.gangRef: Invalid value"),
        # rules
        ({"devices": {"policy": "preferIds"}}, "policy preferIds needs preferIds"),
        ({"devices": {"memoryMiB": 1}}, "an exclusive card is given whole"),
        ({"devices": {"exclusivity": "Exclusive", "cores": 1}}, "an exclusive card is given whole"),
        ({"devices": {"exclusivity": "MIG", "cores": 1}}, "cores is for exclusivity Shared"),
        ({"devices": {"exclusivity": "Shared", "profile": "1g.10gb"}}, "profile is for exclusivity MIG"),
        (
            {"devices": {"exclusivity": "MIG"}, "topology": {"mode": "Required"}},
            "MIG instances cannot reach each other",
        ),
        ({"devices": {"exclusivity": "MIG", "policy": "spread"}}, "MIG instances are chosen by profile and memory"),
    ],
)
def test_invalid_value_is_refused(claims: Stored, spec: dict[str, Any], words: str) -> None:
    """The message names the field, or the rule."""
    assert words in claims.refusal(claim(**spec))


@pytest.mark.parametrize(
    "spec",
    [
        {"devices": {"policy": "preferIds", "preferIds": [3, 1]}},
        {"devices": {"exclusivity": "MIG", "memoryMiB": 1}},
        {"devices": {"exclusivity": "MIG"}, "topology": {"mode": "Preferred", "minBandwidthGBps": 25}},
        {"devices": {"exclusivity": "MIG"}, "topology": {"mode": "Ignore"}, "network": {"rdmaRequired": True}},
        {"devices": {"exclusivity": "Shared", "policy": "spread"}, "topology": {"mode": "Required", "maxTier": 3}},
        {"devices": {"preferIds": [0]}, "topology": {"mode": "Ignore", "minBandwidthGBps": 25, "maxTier": 0}},
        {"devices": {"exclusivity": "Shared"}},
        {"network": {"preferredHcas": ["mlx5_0"], "minPorts": 2}, "storage": {"cuFile": "Required"}, "gangRef": "a"},
    ],
)
def test_valid_value_is_accepted(claims: Stored, spec: dict[str, Any]) -> None:
    """No rule refuses what it does not name."""
    claims.would_be(claim(**spec))


def test_claim_needs_devices(claims: Stored) -> None:
    """A claim without a spec, or without a count, gives nothing."""
    missing: dict[str, Any] = claim()
    del missing["spec"]["devices"]["count"]
    assert "spec.devices.count: Required value" in claims.refusal(missing)
    del missing["spec"]["devices"]
    assert "spec.devices: Required value" in claims.refusal(missing)
    del missing["spec"]
    assert "spec: Required value" in claims.refusal(missing)


def test_spec_cannot_be_changed(claims: Stored) -> None:
    """What admission read of a claim is what the scheduler reads; labels may change."""
    claims.create(claim("fixed"))
    for changed in ({"devices": {"count": 2}}, {"selector": {"matchLabels": {"pool": "b"}}}, {"gangRef": "g"}):
        with pytest.raises(RefusedError, match="spec cannot be changed: delete the claim and create it again"):
            claims.patch("fixed", {"spec": changed})
    claims.patch("fixed", {"metadata": {"labels": {"team": "a"}}})
    claims.api.apply(claim("fixed"), namespace=NAMESPACE)


def test_status_is_a_subresource(claims: Stored) -> None:
    """A write of the claim does not write its status, and a write of the status not the claim."""
    claims.create({**claim("viewed"), "status": {"phase": "Bound"}})
    assert "status" not in claims.get("viewed")
    patch = {"status": {"phase": "Bound", "allocated": "n1:0"}, "spec": {"devices": {"count": 5}}}
    claims.patch("viewed", patch, subresource="status")
    stored = claims.get("viewed")
    assert stored["status"] == {"phase": "Bound", "allocated": "n1:0"}
    assert stored["spec"]["devices"]["count"] == 1
    with pytest.raises(RefusedError, match='Unsupported value: "Done"'):
        claims.patch("viewed", {"status": {"phase": "Done"}}, subresource="status")


def test_columns_of_a_listing(claims: Stored) -> None:
    """`kubectl get gclaim` has the columns of the project that the kind comes from."""
    claims.create(claim("listed", devices={"count": 2, "policy": "spread"}, topology={"mode": "Required"}))
    status = {"phase": "Bound", "allocated": "gpu-sim-0:0,1", "message": "bound"}
    claims.patch("listed", {"status": status}, subresource="status")
    head, row = claims.listing("listed", kind="gclaim")
    assert head == ["NAME", "REQ", "POLICY", "TOPOLOGY", "ALLOCATED", "AGE"]
    assert row[:5] == ["listed", "2", "spread", "Required", "gpu-sim-0:0,1"]
    head, row = claims.listing("listed", "-o", "wide", kind="gclaim")
    assert head == ["NAME", "REQ", "POLICY", "TOPOLOGY", "ALLOCATED", "PHASE", "MESSAGE", "AGE"]
    assert row[5:7] == ["Bound", "bound"]


def test_columns_of_a_nodes_listing(claims: Stored) -> None:
    """`kubectl get gns` shows the node and the number of its devices."""
    status = {"apiVersion": "gpu.scheduling/v1", "kind": "GpuNodeStatus"}
    claims.api.apply({**status, "metadata": {"name": "listed"}, "spec": {"nodeName": "listed"}})
    try:
        claims.api.patch("gns", "listed", {"status": {"total": 8}}, subresource="status")
        for options in ((), ("-o", "wide")):
            head, row = claims.listing("listed", *options, kind="gns")
            assert head[:3] == ["NAME", "NODE", "DEVICES"]
            assert row[:3] == ["listed", "listed", "8"]
    finally:
        claims.api.delete("gns", "listed")


@pytest.mark.parametrize(
    ("user", "allowed", "refused"),
    [
        (
            EDITOR,
            ("get", "list", "watch", "create", "update", "patch", "delete"),
            (("patch", "status"), ("update", "status")),
        ),
        (VIEWER, ("get", "list", "watch"), (("create", ""), ("patch", "status"))),
    ],
)
def test_kubernetes_own_roles_include_claims(
    claims: Stored, user: str, allowed: tuple[str, ...], refused: tuple[tuple[str, str], ...]
) -> None:
    """Who has `edit` in a namespace may write claims, who has `view` may read them; none of them writes status."""
    wait.until(
        lambda: all(claims.may(user, verb) for verb in allowed), what="the roles aggregated", timeout_s=PATIENCE_S
    )
    assert not [each for each in refused if claims.may(user, each[0], subresource=each[1])]
