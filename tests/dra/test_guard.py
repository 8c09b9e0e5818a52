"""The component manifests/dra-guard keeps the devices of another DRA driver from pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lab import manifests, wait
from lab.client import client
from lab.connection import RefusedError
from tests.dra.conftest import NODE
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import dra_driver as driver

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.dra]
OURS = {"key": "gpu.scheduling/ledger", "operator": "Exists"}
MESSAGE = "tolerates the taint gpu.scheduling/ledger"


def tolerating(*tolerations: dict[str, str], alternative: bool = False) -> dict[str, Any]:
    """Return a claim with tolerations, on its only request or on an alternative of it."""
    made = driver.claim("tolerating")
    (request,) = made["spec"]["devices"]["requests"]
    request["exactly"]["tolerations"] = list(tolerations)
    if alternative:
        request["firstAvailable"] = [{"name": "first", **request.pop("exactly")}]
    return made


def is_refused(tenant: Namespace) -> bool:
    """Whether the policy refuses a claim that tolerates the taint."""
    try:
        tenant.api.create(tolerating(OURS), namespace=tenant.name, dry_run=True)
    except RefusedError as error:
        return MESSAGE in error.message
    return False


@pytest.fixture
def guarded(dra_cluster: Layout, tenant: Namespace) -> Iterator[Namespace]:
    """A namespace of a cluster with the component, a class and a device."""
    objects = manifests.read((manifests.ROOT / "dra-guard" / "guard.yaml").read_text(encoding="utf-8"))
    api = client(dra_cluster)
    api.apply(*objects)
    api.create(driver.device_class(), driver.slice_of(NODE, "GPU-of-another-driver"))
    # The API server reads a new policy a moment later.
    wait.until(lambda: is_refused(tenant), what="the policy in force", timeout_s=PATIENCE_S)
    yield tenant
    for each in objects:
        if api.find(each["kind"], each["metadata"]["name"]) is not None:
            api.delete(each["kind"], each["metadata"]["name"])


def template_of(claim: dict[str, Any]) -> dict[str, Any]:
    """Return a template of a claim."""
    return {**claim, "kind": "ResourceClaimTemplate", "spec": {"spec": claim["spec"]}}


def test_tainted_device_is_given_to_no_extended_resource(guarded: Namespace) -> None:
    """Once the rule is deleted, the waiting pod gets it."""
    guarded.create(pod("p", gpu=1, gpucores=0))

    def waits(pods: Mapping[str, Any]) -> bool:
        conditions = pods["p"]["status"].get("conditions", [])
        return any("cannot allocate all claims" in each.get("message", "") for each in conditions)

    guarded.until(waits, what="the reason")
    assert guarded.list("resourceclaims") == []
    guarded.api.delete("devicetaintrule", "tranche-ledger-gpu.nvidia.com")
    guarded.until(lambda pods: "extendedResourceClaimStatus" in pods["p"]["status"], what="a device")


@pytest.mark.parametrize(
    "claim",
    [
        tolerating(OURS),
        tolerating(OURS, alternative=True),
        tolerating({"operator": "Exists"}),
        tolerating({"key": "gpu.scheduling/ledger", "operator": "Equal", "effect": "NoSchedule"}),
        tolerating({"key": "other", "operator": "Exists"}, OURS),
    ],
)
def test_toleration_of_the_taint_is_refused_outside_the_drivers_namespaces(
    guarded: Namespace, dra_cluster: Layout, claim: dict[str, Any]
) -> None:
    """In a claim and in a template, in whatever form; the driver's own claims are admitted."""
    own = driver.namespace(dra_cluster, "nvidia-dra-driver-gpu")
    for each in (claim, template_of(claim)):
        with pytest.raises(RefusedError, match=MESSAGE):
            guarded.create(each)
        own.create(each)
        own.delete(f"{each['kind'].lower()}s", "tolerating")


@pytest.mark.parametrize(
    "claim",
    [
        driver.claim("tolerating"),
        tolerating({"key": "other", "operator": "Exists"}),
        tolerating({"key": "gpu.scheduling/ledger", "operator": "Exists", "effect": "NoExecute"}),
    ],
)
def test_other_claims_are_admitted(guarded: Namespace, claim: dict[str, Any]) -> None:
    """The policy concerns one taint and one effect."""
    for each in (claim, template_of(claim)):
        guarded.create(each)
        guarded.delete(f"{each['kind'].lower()}s", "tolerating")
