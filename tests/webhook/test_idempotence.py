"""The mutation is idempotent and changes only our fields, for arbitrary pods."""

import copy
from collections.abc import Callable
from typing import Any

from hypothesis import given

from allocation import variables
from allocation.wire import environment
from tests.webhook.support.pods import OURS, pods
from webhook.settings import WebhookSettings

Make = Callable[..., Any]

SETTINGS = WebhookSettings(runtime_class_name="nvidia", takeover=("batch",))


@given(pod=pods())
def test_second_mutation_is_empty(admit: Make, pod: Make) -> None:
    """The patch of a patched pod is empty, so a reinvocation of the webhook changes nothing."""
    once = admit(pod, settings=SETTINGS)
    if once.allowed:
        again = admit(once.pod, settings=SETTINGS)
        assert again.allowed
        assert not again.operations


@given(pod=pods())
def test_mutation_changes_only_our_fields(admit: Make, pod: Make) -> None:
    """Without our fields, the pods before and after are equal, including the order of entries."""
    verdict = admit(pod, settings=SETTINGS)
    assert _without_ours(verdict.pod) == _without_ours(pod)


@given(pod=pods())
def test_every_managed_container_has_its_environment(admit: Make, pod: Make) -> None:
    """In a managed pod each owned variable occurs at most once, and always with our value."""
    verdict = admit(pod, settings=SETTINGS)
    if not verdict.operations:
        return
    for container in (*verdict.pod["spec"]["containers"], *verdict.pod["spec"].get("initContainers", ())):
        owned = [entry for entry in container["env"] if variables.is_owned(entry["name"])]
        count = int((container.get("resources", {}).get("limits") or {}).get("nvidia.com/gpu", "0"))
        if count:
            keys = environment.references(container["name"], count)
            expected = {name: f"metadata.annotations['{key}']" for name, key in keys.items()}
            assert {e["name"]: e["valueFrom"]["fieldRef"]["fieldPath"] for e in owned} == expected
            assert len(owned) == len(expected)
        else:
            assert owned == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]


def _without_ours(pod: dict[str, Any]) -> dict[str, Any]:
    rest = copy.deepcopy(pod)
    rest["spec"].pop("schedulerName", None)
    rest["spec"].pop("runtimeClassName", None)
    rest["spec"].pop("terminationGracePeriodSeconds", None)
    for container in (*rest["spec"]["containers"], *rest["spec"].get("initContainers", ())):
        container["env"] = [e for e in container.get("env") or () if not variables.is_owned(e["name"])]
        held = container.setdefault("resources", {})
        for kind in ("limits", "requests"):
            held[kind] = {name: amount for name, amount in (held.get(kind) or {}).items() if name not in OURS}
    return rest
