"""The mutation is idempotent and changes only our fields, for arbitrary pods."""

import copy
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from allocation import variables
from allocation.wire import environment
from webhook.settings import WebhookSettings

Make = Callable[..., Any]

OURS = ("nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores")
VARIABLES = (
    "NVIDIA_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_MEMORY_LIMIT",
    "CUDA_DEVICE_MEMORY_LIMIT_0",
    "CUDA_DEVICE_MEMORY_LIMIT_7",
    "CUDA_DEVICE_SM_LIMIT",
    "PATH",
    "HOME",
)
SETTINGS = WebhookSettings(runtime_class_name="nvidia", takeover=("batch",))

amounts = st.fixed_dictionaries(
    {}, optional={**{name: st.sampled_from(["0", "1", "2", "50", "100"]) for name in OURS}, "cpu": st.just("1")}
)
resources = st.fixed_dictionaries({}, optional={"limits": amounts, "requests": amounts})
entries = st.one_of(
    st.fixed_dictionaries(
        {"name": st.sampled_from(VARIABLES)}, optional={"value": st.sampled_from(["", "all", "void"])}
    ),
    st.builds(
        lambda name, container: {
            "name": name,
            "valueFrom": {
                "fieldRef": {
                    "apiVersion": "v1",
                    "fieldPath": f"metadata.annotations['{name.lower().replace('_', '-')}.gpu.scheduling/{container}']",
                }
            },
        },
        st.sampled_from(VARIABLES),
        st.sampled_from(["c0", "i0"]),
    ),
)
containers = st.fixed_dictionaries(
    {},
    optional={
        "resources": resources,
        "env": st.one_of(st.none(), st.lists(entries, max_size=6)),
        "restartPolicy": st.just("Always"),
        "securityContext": st.sampled_from([{}, {"privileged": False}]),
    },
)


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    """Generate pods with up to three containers and two init containers, with all fields that admission reads."""
    spec = {"containers": [{"name": f"c{n}", **draw(containers)} for n in range(draw(st.integers(1, 3)))]}
    if count := draw(st.integers(0, 2)):
        spec["initContainers"] = [{"name": f"i{n}", **draw(containers)} for n in range(count)]
    spec |= draw(
        st.fixed_dictionaries(
            {},
            optional={
                "schedulerName": st.sampled_from(["", "default-scheduler", "tranche", "batch", "other"]),
                "runtimeClassName": st.sampled_from(["nvidia", "kata"]),
                "terminationGracePeriodSeconds": st.sampled_from([0, 1, 30]),
            },
        )
    )
    return {"metadata": {"name": "p"}, "spec": spec}


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
