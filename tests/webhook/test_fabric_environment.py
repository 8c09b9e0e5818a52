"""Variables of a node's adapters and storage: admission adds them where a GpuClaim asks, and keeps those of users."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from allocation.claim import ClaimSpec
from allocation.fabric import VARIABLES
from tests.webhook.support.claims import SPECS, Claims, claims

Make = Callable[..., Any]

NCCL, CUFILE = VARIABLES[:2], VARIABLES[2:]
TRUSTED = "system:serviceaccount:tranche-system:tranche-static"
SHARE = {"uuid": "GPU-a", "index": 0, "memoryMiB": 40960, "cores": 1000}


def claim(network: dict[str, Any] | None = None, storage: dict[str, Any] | None = None) -> ClaimSpec:
    """Return a claim of one card with these demands."""
    return msgspec.convert({"devices": {"count": 1}, "network": network or {}, "storage": storage or {}}, ClaimSpec)


CLAIMS = Claims(
    {
        **SPECS,
        "rdma": claim({"rdmaRequired": True}),
        "ports": claim({"minPorts": 2}),
        "preferring": claim({"preferredHcas": ["mlx5_0"]}),
        "stored": claim(storage={"cuFile": "Preferred"}),
        "both": claim({"rdmaRequired": True}, {"cuFile": "Required"}),
        "undemanding": claim({"rdmaRequired": False, "minPorts": 0, "preferredHcas": []}),
    }
)


def entries(container: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the entries of a container for these variables."""
    return [entry for entry in container.get("env", ()) if entry["name"] in VARIABLES]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((name, NCCL) for name in ("rdma", "ports", "preferring")),
        ("stored", CUFILE),
        ("both", VARIABLES),
        *((name, ()) for name in ("exclusive", "undemanding")),
    ],
)
def test_variables_are_added_only_for_what_the_claim_asks(
    admit: Make, pod: Make, reference: Make, name: str, expected: tuple[str, ...]
) -> None:
    """Each is a reference to an annotation of the Binding, because the node is not known yet."""
    env = admit(claims(pod({"name": "main"}), name), claims=CLAIMS).pod["spec"]["containers"][0]
    assert entries(env) == [reference(variable, "main") for variable in expected]


def test_pod_without_claim_has_none(admit: Make, pod: Make, gpu: Make) -> None:
    """Only a claim can ask."""
    assert entries(admit(pod(gpu())).pod["spec"]["containers"][0]) == []


def test_every_gpu_container_has_them_and_no_other(admit: Make, pod: Make, gpu: Make, reference: Make) -> None:
    """A container without a GPU transfers nothing from one."""
    asking = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    sidecar = {"name": "side", "restartPolicy": "Always", **asking}
    sent = pod({"name": "main", **asking}, {"name": "blind"}, init=(sidecar,))
    spec = admit(claims(sent, "both"), claims=CLAIMS).pod["spec"]
    main, blind, side = (*spec["containers"], *spec["initContainers"])
    for container in (main, side):
        assert entries(container) == [reference(variable, container["name"]) for variable in VARIABLES]
    assert entries(blind) == []


@pytest.mark.parametrize(
    "own", [{"value": "=mlx5_7"}, {"value": ""}, {}, {"valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}]
)
def test_users_own_entry_stays_as_it_is(admit: Make, pod: Make, reference: Make, own: dict[str, Any]) -> None:
    """It gives no card, so its user knows best; the other variables are added all the same."""
    entry = {"name": "NCCL_IB_HCA", **own}
    verdict = admit(claims(pod({"name": "main", "env": [entry]}), "both"), claims=CLAIMS)
    env = verdict.pod["spec"]["containers"][0]
    assert sorted(entries(env), key=lambda each: VARIABLES.index(each["name"])) == [
        entry,
        *(reference(variable, "main") for variable in VARIABLES[1:]),
    ]
    assert not verdict.warnings


def test_users_entry_can_refer_to_them(admit: Make, pod: Make) -> None:
    """A user's `$(NCCL_IB_HCA)` expands only variables that are defined before it."""
    own = {"name": "UCX_NET_DEVICES", "value": "$(NCCL_IB_HCA)"}
    env = admit(claims(pod({"name": "main", "env": [own]}), "rdma"), claims=CLAIMS).pod["spec"]["containers"][0]["env"]
    assert env[-1] == own
    assert "NCCL_IB_HCA" in [entry["name"] for entry in env[:-1]]


@pytest.mark.parametrize("env", [[], [{"name": "NCCL_NET_GDR_LEVEL", "value": "SYS"}]])
def test_second_admission_changes_nothing(admit: Make, pod: Make, env: list[dict[str, str]]) -> None:
    """What was added is left alone like a user's entry."""
    once = admit(claims(pod({"name": "main", "env": env}), "both"), claims=CLAIMS)
    again = admit(once.pod, claims=CLAIMS)
    assert again.allowed
    assert not again.operations


def test_static_allocation_refers_to_the_annotations_of_the_binding(admit: Make, pod: Make, reference: Make) -> None:
    """Its cards are known at admission, the fabric of its node is not: the scheduler writes it with the Binding."""
    record = json.dumps({"v": 1, "node": "n1", "containers": {"main": [SHARE]}})
    sent = claims(pod({"name": "main"}), "both", **{"gpu.scheduling/allocation": record})
    once = admit(sent, username=TRUSTED, claims=CLAIMS)
    assert entries(once.pod["spec"]["containers"][0]) == [reference(variable, "main") for variable in VARIABLES]
    assert not {key for key in once.pod["metadata"]["annotations"] if key.startswith(("nccl", "cufile"))}
    assert not admit(once.pod, username=TRUSTED, claims=CLAIMS).operations


@pytest.mark.parametrize("username", ["alice", TRUSTED])
@pytest.mark.parametrize("key", ["nccl-ib-hca", "nccl-net-gdr-level", "cufile-env-path-json"])
def test_nobody_writes_the_annotations_beforehand(admit: Make, pod: Make, key: str, username: str) -> None:
    """The kubelet would take their values before the scheduler has chosen a node."""
    record = {"gpu.scheduling/allocation": json.dumps({"v": 1, "node": "n1", "containers": {"main": [SHARE]}})}
    forged = {f"{key}.gpu.scheduling/main": "=mlx5_9", **(record if username == TRUSTED else {})}
    verdict = admit(claims(pod({"name": "main"}), "both", **forged), username=username, claims=CLAIMS)
    assert not verdict.allowed
    assert f"{key}.gpu.scheduling/main" in verdict.message
