"""The environment of every container of a managed pod."""

from collections.abc import Callable
from typing import Any

import pytest

from allocation.variables import TABLE, Ruling

Make = Callable[..., Any]

VARIABLES = (
    "NVIDIA_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_MEMORY_LIMIT",
    "CUDA_DEVICE_MEMORY_LIMIT_0",
    "CUDA_DEVICE_SM_LIMIT",
)
VOID = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}


def names(container: dict[str, Any]) -> list[str]:
    """List the names of a container's environment."""
    return [entry["name"] for entry in container["env"]]


def test_every_gpu_container_reads_its_own_annotations(admit: Make, pod: Make, gpu: Make, reference: Make) -> None:
    """This holds for regular, init and sidecar containers."""
    sidecar = gpu("side", restartPolicy="Always")
    spec = admit(pod(gpu("a"), gpu("b"), init=(gpu("first"), sidecar))).pod["spec"]
    for container in (*spec["initContainers"], *spec["containers"]):
        assert container["env"] == [reference(name, container["name"]) for name in VARIABLES]


def test_every_card_has_a_memory_limit(admit: Make, pod: Make, gpu: Make) -> None:
    """The container has one variable for each of its cards."""
    container = gpu()
    container["resources"]["limits"]["nvidia.com/gpu"] = "3"
    container["resources"].pop("requests")
    limits = [name for name in names(admit(pod(container)).pod["spec"]["containers"][0]) if "LIMIT_" in name]
    assert limits == [f"CUDA_DEVICE_MEMORY_LIMIT_{card}" for card in range(3)]


def test_our_variables_precede_the_users(admit: Make, pod: Make, gpu: Make) -> None:
    """A user's `$(CUDA_VISIBLE_DEVICES)` expands only variables that are defined before it."""
    own = [{"name": "CARDS", "value": "$(CUDA_VISIBLE_DEVICES)"}, {"name": "EMPTY"}]
    env = admit(pod(gpu(env=own))).pod["spec"]["containers"][0]["env"]
    assert [entry["name"] for entry in env] == [*VARIABLES, "CARDS", "EMPTY"]
    assert env[-2:] == own


def test_null_environment_is_filled(admit: Make, pod: Make, gpu: Make) -> None:
    """A missing, null or empty list is replaced by our entries."""
    for sent in (gpu(), gpu(env=None), gpu(env=[])):
        assert names(admit(pod(sent)).pod["spec"]["containers"][0]) == list(VARIABLES)


def test_users_value_is_replaced_in_place(admit: Make, pod: Make, gpu: Make, reference: Make) -> None:
    """Users cannot choose devices; the warning names container and variable and is short."""
    own = [{"name": "A", "value": "1"}, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, {"name": "B", "value": "2"}]
    verdict = admit(pod(gpu(env=own)))
    env = verdict.pod["spec"]["containers"][0]["env"]
    assert [entry["name"] for entry in env] == [*VARIABLES[1:], "A", "NVIDIA_VISIBLE_DEVICES", "B"]
    assert env[-2] == reference("NVIDIA_VISIBLE_DEVICES", "main")
    [warning] = verdict.warnings
    assert "main" in warning
    assert "NVIDIA_VISIBLE_DEVICES" in warning
    assert len(warning) <= 120


def test_limits_of_missing_cards_are_removed(admit: Make, pod: Make, gpu: Make) -> None:
    """A container with one card has no annotation for the limit of a second card."""
    verdict = admit(pod(gpu(env=[{"name": "CUDA_DEVICE_MEMORY_LIMIT_1", "value": "99999m"}])))
    assert names(verdict.pod["spec"]["containers"][0]) == list(VARIABLES)
    assert "CUDA_DEVICE_MEMORY_LIMIT_1" in verdict.warnings[0]


def test_repeated_variables_cannot_override_ours(admit: Make, pod: Make, gpu: Make, reference: Make) -> None:
    """The last entry of a name takes effect in a container, so only ours is left."""
    own = [{"name": "CUDA_VISIBLE_DEVICES", "value": str(number)} for number in range(3)]
    env = admit(pod(gpu(env=own))).pod["spec"]["containers"][0]["env"]
    assert [entry for entry in env if entry["name"] == "CUDA_VISIBLE_DEVICES"] == [
        reference("CUDA_VISIBLE_DEVICES", "main")
    ]


def test_other_containers_see_no_gpu(admit: Make, pod: Make, gpu: Make) -> None:
    """A container without GPU in a GPU pod gets `void`, whatever its image or its spec sets."""
    plain = {"name": "log"}
    loud = {
        "name": "loud",
        "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "0"}, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
    }
    verdict = admit(pod(gpu(), plain, init=(loud,)))
    assert verdict.pod["spec"]["containers"][1]["env"] == [VOID]
    assert verdict.pod["spec"]["initContainers"][0]["env"] == [VOID]
    assert len(verdict.warnings) == 2


def test_names_with_slashes_are_escaped(admit: Make, pod: Make) -> None:
    """A JSON Pointer writes the slashes of resource names and annotation keys as `~1`."""
    verdict = admit(pod({"name": "main", "resources": {"limits": {"nvidia.com/gpumem": "3k"}}}))
    assert "/spec/containers/0/resources/limits/nvidia.com~1gpu" in [o["path"] for o in verdict.operations]


def test_containers_with_the_longest_names_have_distinct_keys(admit: Make, pod: Make, gpu: Make) -> None:
    """Containers whose names of 63 characters differ only in the last one have different annotations."""
    a, b = (f"{'c' * 62}{end}" for end in "ab")
    spec = admit(pod(gpu(a), gpu(b))).pod["spec"]
    paths = [e["valueFrom"]["fieldRef"]["fieldPath"] for c in spec["containers"] for e in c["env"]]
    assert len(set(paths)) == 2 * len(VARIABLES)


@pytest.mark.parametrize(("cards", "indexes"), [("1", "sees as 0"), ("4", "sees as 0..3")])
def test_warning_for_a_dropped_card_choice_names_the_visible_cards(
    admit: Make, pod: Make, gpu: Make, cards: str, indexes: str
) -> None:
    """The warning has the user's value and the indexes that are valid in this container."""
    sent = gpu(env=[{"name": "CUDA_VISIBLE_DEVICES", "value": "2,3"}])
    sent["resources"] = {"limits": {"nvidia.com/gpu": cards}}
    [warning] = admit(pod(sent)).warnings
    assert "container main: CUDA_VISIBLE_DEVICES=2,3 was dropped" in warning
    assert warning.endswith(indexes)
    assert len(warning) <= 120


def test_warning_for_a_container_without_gpu_says_that_it_sees_none(admit: Make, pod: Make, gpu: Make) -> None:
    """The warning says that the container sees no card, and truncates a long value."""
    other = {"name": "other", "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "0," * 500}]}
    [warning] = admit(pod(gpu(), other)).warnings
    assert warning.endswith("was dropped: the container asks for no GPU and sees none")
    assert len(warning) <= 130


@pytest.mark.parametrize("row", [row.name for row in TABLE if row.ruling in (Ruling.REMOVED, Ruling.BY_ISOLATION)])
@pytest.mark.parametrize("asking", [True, False])
def test_variable_that_weakens_a_limit_is_removed_with_a_warning(
    admit: Make,
    pod: Make,
    gpu: Make,
    row: str,
    asking: bool,  # noqa: FBT001
) -> None:
    """This applies to every container of a GPU pod, with or without a GPU."""
    name = row.replace("*", "LIMIT")
    own = [{"name": "A", "value": "1"}, {"name": name, "value": "x"}]
    containers = (gpu(env=own), {"name": "other"}) if asking else (gpu(), {"name": "other", "env": own})
    verdict = admit(pod(*containers))
    env = verdict.pod["spec"]["containers"][0 if asking else 1]["env"]
    assert name not in [entry["name"] for entry in env]
    assert env[-1] == own[0]
    [warning] = verdict.warnings
    assert name in warning


@pytest.mark.parametrize("row", [row.name for row in TABLE if row.ruling is Ruling.ADMITTED])
def test_harmless_variable_is_kept(admit: Make, pod: Make, gpu: Make, row: str) -> None:
    """A harmless variable stays, without a warning."""
    own = {"name": row.replace("*", "CUDA"), "value": "1"}
    verdict = admit(pod(gpu(env=[own])))
    assert own in verdict.pod["spec"]["containers"][0]["env"]
    assert not verdict.warnings
