"""The body of a simulation is a Pod, or a List of a Pod and its claims; everything else is refused in words."""

from typing import Any

import msgspec
import pytest
import yaml

from allocation import limits
from cluster.manifest import UnreadableManifestError
from scheduler.api import request_body
from scheduler.api.request_body import Manifests

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train"}}
CLAIM = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}}
GPU_CLAIM = {"apiVersion": "gpu.scheduling/v1", "kind": "GpuClaim", "metadata": {"name": "data"}}


def listed(*items: Any) -> dict[str, Any]:
    """Return a List."""
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


@pytest.mark.parametrize("gpu_claim", [None, GPU_CLAIM])
@pytest.mark.parametrize("claims", [(), (CLAIM,), (CLAIM, CLAIM)])
def test_what_is_encoded_is_parsed(claims: tuple[dict[str, Any], ...], gpu_claim: dict[str, Any] | None) -> None:
    """A pod without claims is sent alone, so that earlier releases read it, too."""
    manifests = Manifests(POD, claims, gpu_claim)
    body = request_body.encode(manifests)
    assert request_body.parse_json(body) == request_body.parse(body) == manifests
    assert (msgspec.json.decode(body) == POD) is (not claims and gpu_claim is None)


def test_a_list_may_be_in_yaml_and_in_any_order() -> None:
    """The claims keep their order."""
    body = yaml.safe_dump(listed(GPU_CLAIM, CLAIM, POD)).encode()
    assert request_body.parse(body) == Manifests(POD, (CLAIM,), GPU_CLAIM)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([POD], "not a Kubernetes object"),
        (CLAIM, "the body has kind PersistentVolumeClaim"),
        ({**POD, "kind": "PodList"}, "the body has kind PodList"),
        (listed(), "0 Pods"),
        (listed(POD, POD), "2 Pods"),
        (listed(POD, {**CLAIM, "kind": "Secret"}), r"items\[1\] of the List has kind Secret"),
        (listed(POD, "claim"), r"items\[1\] of the List has kind None"),
        ({**listed(), "items": {}}, "not a list"),
        (listed(POD, {**GPU_CLAIM, "apiVersion": "v1"}), r"items\[1\] of the List has kind GpuClaim and apiVersion v1"),
        (listed(POD, GPU_CLAIM, GPU_CLAIM), "2 GpuClaims, and a pod names one"),
        (listed(POD, *[CLAIM] * (limits.VOLUMES + 1)), "65 PersistentVolumeClaims; 64 is the limit"),
    ],
)
def test_another_content_is_refused(content: Any, message: str) -> None:
    """The message says what the body holds and what to send."""
    with pytest.raises(UnreadableManifestError, match=message):
        request_body.manifests_of(content)
