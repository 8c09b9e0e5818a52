"""Admission without an API server says what admission with one would."""

from itertools import product
from typing import Any

import msgspec
import pytest

from allocation.settings import AllocationSettings
from cluster.manifest import NotAdmittedError, UnreadableManifestError
from scheduler.objects import Expression
from scheduler.selectors import accepts
from tests.webhook.test_manifests import WEBHOOKS
from webhook import rehearsal
from webhook.settings import WebhookSettings

INJECTION, HAMI = "gpu.scheduling/injection", "hami.io/webhook"
WORDS = (None, "enabled", "disabled", "other")


def pod(memory: object = 3000, labels: Any = None, **spec: Any) -> dict[str, Any]:
    """Answer a manifest."""
    limits = {"nvidia.com/gpumem": memory}
    container = {"name": "main", "resources": {"limits": limits}, "env": None}
    return {"metadata": {"name": "a", "labels": labels}, "spec": {"containers": [container], **spec}}


def _expressions(selector: dict[str, Any]) -> tuple[Expression, ...]:
    assert list(selector) == ["matchExpressions"]
    return msgspec.convert(selector["matchExpressions"], tuple[Expression, ...])


def rehearse(made: dict[str, Any], labels: dict[str, str] | None, *, namespace: str = "team") -> tuple[str, ...]:
    """Let a pod be created in a namespace."""
    return rehearsal.rehearse(
        made,
        namespace=namespace,
        labels=labels,
        quotas={},
        allocation=AllocationSettings(),
        settings=WebhookSettings(),
    )


@pytest.mark.parametrize("namespace", ["team", "kube-system", "tranche-system"])
@pytest.mark.parametrize(("theirs", "own", "hami"), [*product(WORDS, WORDS, (None, "ignore", "other"))])
def test_who_is_sent_to_admission_is_what_the_manifest_says(
    namespace: str, theirs: str | None, own: str | None, hami: str | None
) -> None:
    """For every label of namespace and pod: by the selectors of manifests/base/webhook.yaml."""
    space = {"kubernetes.io/metadata.name": namespace, **({INJECTION: theirs} if theirs else {})}
    labels = {key: value for key, value in ((INJECTION, own), (HAMI, hami)) if value}
    sent = any(
        accepts(_expressions(each["namespaceSelector"]), space)
        and accepts(_expressions(each["objectSelector"]), labels)
        for each in WEBHOOKS
    )
    made = pod(labels=labels)
    rehearse(made, space, namespace=namespace)
    assert (made["spec"].get("schedulerName") == "tranche") is sent


def test_a_namespace_that_does_not_exist_counts_as_opted_in() -> None:
    """It will be made for this pod."""
    made = pod()
    rehearse(made, None)
    assert made["spec"]["schedulerName"] == "tranche"


def test_what_admission_refuses_is_refused() -> None:
    """A wrong value, a pod that is none, a pod with a node: each in admission's words."""
    with pytest.raises(NotAdmittedError, match="must be a whole number of MiB"):
        rehearse(pod("10Gi"), None)
    with pytest.raises(NotAdmittedError, match="pod has node assigned"):
        rehearse(pod(nodeName="n1"), None)
    with pytest.raises(UnreadableManifestError, match="labels"):
        rehearse(pod(labels=[1]), None)
