"""Arbitrary pods with all fields that admission reads."""

from typing import Any

from hypothesis import strategies as st

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
