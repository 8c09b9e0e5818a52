"""The dry run of admission gives the result of a real admission."""

from itertools import product
from typing import Any, Literal

import msgspec
import pytest
import yaml

from allocation import names
from allocation.bindings.binding import Binding, BindingSpec
from allocation.claim import ClaimDevices, ClaimSpec
from allocation.fairness.queue_spec import QueueSpec
from allocation.label_selector import Expression, LabelSelector, accepts
from allocation.settings import AllocationSettings, BindingSettings
from cluster.manifest import NotAdmittedError, UnreadableManifestError
from tests.support.cases import case
from tests.webhook.test_manifests import BASE, WEBHOOKS
from webhook import dry_run
from webhook.settings import WebhookSettings

INJECTION, HAMI = "gpu.scheduling/injection", "hami.io/webhook"
WORDS = (None, "enabled", "disabled", "other")
NAMESPACES = ("team", "kube-system", "tranche-system", "gpu-scheduler")
BOUND = Binding("chat-a", "", BindingSpec("GPU-a", "chat", pod_selector=LabelSelector({"app": "chat"}), memory=2000))


def pod(memory: object = 3000, labels: Any = None, **spec: Any) -> dict[str, Any]:
    """Return a manifest."""
    limits = {"nvidia.com/gpumem": memory}
    container = {"name": "main", "resources": {"limits": limits}, "env": None}
    return {"metadata": {"name": "a", "labels": labels}, "spec": {"containers": [container], **spec}}


def _expressions(selector: dict[str, Any]) -> tuple[Expression, ...]:
    assert list(selector) == ["matchExpressions"]
    return msgspec.convert(selector["matchExpressions"], tuple[Expression, ...])


def run(
    made: dict[str, Any],
    labels: dict[str, str] | None,
    *,
    namespace: str = "team",
    settings: WebhookSettings = WebhookSettings(),  # noqa: B008 -- immutable
    mode: Literal["off", "labelled", "required"] = "off",
) -> tuple[str, ...]:
    """Dry-run the creation of a pod in a namespace."""
    return dry_run.dry_run(
        made,
        namespace=namespace,
        labels=labels,
        quotas={},
        gpu_quotas={},
        find_claim={"single-gpu": ClaimSpec(ClaimDevices(1))}.get,
        find_queue={"team-a": QueueSpec(namespace_selector=LabelSelector({"team": "a"}), resreq="gpu=1")}.get,
        find_bindings={"chat": [BOUND]}.get,
        allocation=AllocationSettings(bindings=BindingSettings(mode=mode)),
        settings=settings,
    )


def _included() -> dict[str, Any]:
    """Return the selectors of the webhook that manifests/gpu-scheduler adds for a namespace, by its name."""
    component = yaml.safe_load((BASE.parent / "gpu-scheduler" / "kustomization.yaml").read_text(encoding="utf-8"))
    (patch,) = (each["patch"] for each in component["patches"] if each["target"]["kind"].startswith("Mutating"))
    values = {each["path"]: each.get("value") for each in yaml.safe_load(patch)}
    return {name: values[f"/webhooks/1/{name}"] for name in ("namespaceSelector", "objectSelector")}


@pytest.mark.parametrize("included", [(), ("gpu-scheduler",)], ids=["by label", "by name"])
def test_dry_run_selects_pods_as_the_manifests_do(included: tuple[str, ...]) -> None:
    """For all labels of namespace and pod, the dry run and the selectors of the webhook's configuration agree.

    Without, and with a namespace that is opted in by its name, as that of a release is.
    """
    settings = WebhookSettings(included_namespaces=included)
    hooks = [*WEBHOOKS, _included()] if included else WEBHOOKS
    for namespace, theirs, own, hami in product(NAMESPACES, WORDS, WORDS, (None, "ignore", "other")):
        with case(namespace=namespace, theirs=theirs, own=own, hami=hami):
            space = {"kubernetes.io/metadata.name": namespace, **({INJECTION: theirs} if theirs else {})}
            labels = {key: value for key, value in ((INJECTION, own), (HAMI, hami)) if value}
            sent = any(
                accepts(_expressions(each["namespaceSelector"]), space)
                and accepts(_expressions(each["objectSelector"]), labels)
                for each in hooks
            )
            made = pod(labels=labels)
            run(made, space, namespace=namespace, settings=settings)
            assert (made["spec"].get("schedulerName") == "tranche") is sent


def test_missing_namespace_counts_as_opted_in() -> None:
    """Such a namespace is likely to be created for this pod."""
    made = pod()
    run(made, None)
    assert made["spec"]["schedulerName"] == "tranche"


def test_a_pod_of_a_queue_is_admitted_by_the_namespace_and_gets_what_the_queue_says() -> None:
    """Admission refuses it where the queue is not for the namespace, and warns of a queue that does not exist."""
    queued = {"gpu.scheduling/queue": "team-a"}
    opted_in = {INJECTION: "enabled"}
    with pytest.raises(NotAdmittedError, match="GpuQueue team-a, whose spec.namespaceSelector does not match"):
        run(pod(labels=queued), opted_in)
    made: dict[str, Any] = {"metadata": {"name": "a", "labels": queued}, "spec": {"containers": [{"name": "main"}]}}
    assert run(made, {**opted_in, "team": "a"}) == ()
    assert made["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    (warning,) = run(pod(labels={"gpu.scheduling/queue": "ghost"}), opted_in)
    assert warning.startswith("GpuQueue ghost does not exist")


def test_an_excluded_namespace_is_not_reviewed() -> None:
    """The setting follows the selectors where an installation excludes other namespaces."""
    made = pod()
    run(made, {INJECTION: "enabled"}, namespace="infra", settings=WebhookSettings(excluded_namespaces=("infra",)))
    assert "schedulerName" not in made["spec"]


def test_the_memory_of_gpubindings_takes_the_place_of_the_pods_own() -> None:
    """As admission writes it; where no binding counts, the pod keeps its own."""
    labels = {names.APP_NAME: "chat", "app": "chat"}
    made = pod(labels=labels)
    (warning,) = run(made, None, mode="labelled")
    assert made["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpumem"] == "2000"
    assert "GPUBindings of app chat set nvidia.com/gpumem 2000" in warning
    made = pod(labels=labels)
    assert run(made, None) == ()
    assert made["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpumem"] == 3000
    (warning,) = run(pod(), None, mode="required")
    assert "it has no owner application" in warning


def claim_pod(name: str) -> dict[str, Any]:
    """Return a pod that names a GpuClaim and requests nothing itself."""
    annotations = {"gpu.scheduling/claim": name}
    return {"metadata": {"name": "a", "annotations": annotations}, "spec": {"containers": [{"name": "main"}]}}


def test_dry_run_writes_what_the_claim_gives() -> None:
    """The claim is found by its name."""
    made = claim_pod("single-gpu")
    run(made, None)
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "100", "nvidia.com/gpucores": "100"}
    assert made["spec"]["containers"][0]["resources"]["limits"] == limits


def test_dry_run_refuses_a_missing_claim() -> None:
    """The message names the claim and the namespace, as that of admission does."""
    with pytest.raises(NotAdmittedError, match="GpuClaim other does not exist in namespace team: create it there"):
        run(claim_pod("other"), None)


def test_dry_run_refuses_what_admission_refuses() -> None:
    """An invalid value, an unreadable pod and a pod with a node are refused with admission's messages."""
    with pytest.raises(NotAdmittedError, match="must be a whole number of MiB"):
        run(pod("10Gi"), None)
    with pytest.raises(NotAdmittedError, match="pod has node assigned"):
        run(pod(nodeName="n1"), None)
    with pytest.raises(UnreadableManifestError, match="labels"):
        run(pod(labels=[1]), None)


def test_a_gang_is_refused_or_warned_of_as_in_a_real_admission() -> None:
    """Also what its template lacks and its controller adds counts, because pods are tried and not templates."""
    made, gang = pod(labels={"gpu.scheduling/gang": "a", "job": "b"}), "gpu.scheduling/gang"
    made["metadata"]["annotations"] = {f"{gang}-min-members": "many"}
    with pytest.raises(NotAdmittedError, match="it must be a number of pods, 1 to 2048"):
        run(made, {INJECTION: "enabled"})
    made["metadata"]["annotations"] = {f"{gang}-by": "job"}
    assert "the pod names two gangs, 'b' by" in run(made, {INJECTION: "enabled"})[-1]
    plain = pod(memory=0, labels={gang: "a"})
    plain["spec"]["containers"][0]["resources"] = {}
    plain["metadata"]["annotations"] = {f"{gang}-min-members": "many"}
    assert run(plain, {INJECTION: "enabled"}) == ()
