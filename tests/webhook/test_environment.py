"""The environment of every container of a managed pod."""

from collections.abc import Callable
from typing import Any

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
    """Regular, init and sidecar containers alike."""
    sidecar = gpu("side", restartPolicy="Always")
    spec = admit(pod(gpu("a"), gpu("b"), init=(gpu("first"), sidecar))).pod["spec"]
    for container in (*spec["initContainers"], *spec["containers"]):
        assert container["env"] == [reference(name, container["name"]) for name in VARIABLES]


def test_several_cards_have_several_memory_limits(admit: Make, pod: Make, gpu: Make) -> None:
    """One variable for each card that the container will see."""
    container = gpu()
    container["resources"]["limits"]["nvidia.com/gpu"] = "3"
    container["resources"].pop("requests")
    limits = [name for name in names(admit(pod(container)).pod["spec"]["containers"][0]) if "LIMIT_" in name]
    assert limits == [f"CUDA_DEVICE_MEMORY_LIMIT_{card}" for card in range(3)]


def test_ours_stands_before_the_users(admit: Make, pod: Make, gpu: Make) -> None:
    """A user's `$(CUDA_VISIBLE_DEVICES)` expands only what was defined before it."""
    own = [{"name": "CARDS", "value": "$(CUDA_VISIBLE_DEVICES)"}, {"name": "EMPTY"}]
    env = admit(pod(gpu(env=own))).pod["spec"]["containers"][0]["env"]
    assert [entry["name"] for entry in env] == [*VARIABLES, "CARDS", "EMPTY"]
    assert env[-2:] == own


def test_null_environment_is_filled(admit: Make, pod: Make, gpu: Make) -> None:
    """A missing, null or empty list becomes ours."""
    for sent in (gpu(), gpu(env=None), gpu(env=[])):
        assert names(admit(pod(sent)).pod["spec"]["containers"][0]) == list(VARIABLES)


def test_users_value_is_replaced_where_it_stands(admit: Make, pod: Make, gpu: Make, reference: Make) -> None:
    """Nobody gives himself devices; the warning names container and variable and stays short."""
    own = [{"name": "A", "value": "1"}, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, {"name": "B", "value": "2"}]
    verdict = admit(pod(gpu(env=own)))
    env = verdict.pod["spec"]["containers"][0]["env"]
    assert [entry["name"] for entry in env] == [*VARIABLES[1:], "A", "NVIDIA_VISIBLE_DEVICES", "B"]
    assert env[-2] == reference("NVIDIA_VISIBLE_DEVICES", "main")
    [warning] = verdict.warnings
    assert "main" in warning
    assert "NVIDIA_VISIBLE_DEVICES" in warning
    assert len(warning) <= 120


def test_limits_of_cards_that_are_not_there_are_removed(admit: Make, pod: Make, gpu: Make) -> None:
    """A second card's limit on a container with one card has no annotation to read."""
    verdict = admit(pod(gpu(env=[{"name": "CUDA_DEVICE_MEMORY_LIMIT_1", "value": "99999m"}])))
    assert names(verdict.pod["spec"]["containers"][0]) == list(VARIABLES)
    assert "CUDA_DEVICE_MEMORY_LIMIT_1" in verdict.warnings[0]


def test_repeated_variables_cannot_win(admit: Make, pod: Make, gpu: Make, reference: Make) -> None:
    """The last entry of a name counts in a container, so only one of each is left."""
    own = [{"name": "CUDA_VISIBLE_DEVICES", "value": str(number)} for number in range(3)]
    env = admit(pod(gpu(env=own))).pod["spec"]["containers"][0]["env"]
    assert [entry for entry in env if entry["name"] == "CUDA_VISIBLE_DEVICES"] == [
        reference("CUDA_VISIBLE_DEVICES", "main")
    ]


def test_other_containers_see_no_gpu(admit: Make, pod: Make, gpu: Make) -> None:
    """A container without GPU beside one with: `void`, whatever its image or its author says."""
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
    """Resource names and annotation keys hold slashes, which a JSON Pointer writes `~1`."""
    verdict = admit(pod({"name": "main", "resources": {"limits": {"nvidia.com/gpumem": "3k"}}}))
    assert "/spec/containers/0/resources/limits/nvidia.com~1gpu" in [o["path"] for o in verdict.operations]


def test_longest_names_keep_their_own_keys(admit: Make, pod: Make, gpu: Make) -> None:
    """Two containers whose 63 characters differ in the last have different annotations, each a valid key."""
    a, b = (f"{'c' * 62}{end}" for end in "ab")
    spec = admit(pod(gpu(a), gpu(b))).pod["spec"]
    paths = [e["valueFrom"]["fieldRef"]["fieldPath"] for c in spec["containers"] for e in c["env"]]
    assert len(set(paths)) == 2 * len(VARIABLES)
