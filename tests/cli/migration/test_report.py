"""Whatever a cluster holds, there is a report, short for people and whole for programs."""

import json
import string

import yaml
from hypothesis import given
from hypothesis import strategies as st

from cli.migration.findings import SEVERITIES
from cli.tables import structured
from tests.cli.migration.surveys import container, hami_node, judged, pod, workload

KEYS = st.sampled_from(
    [
        "gpu.scheduling/allocation",
        "hami.io/vgpu-devices-allocated",
        "hami.io/vgpu-mig-allocations",
        "hami.io/node-nvidia-register",
        "hami.io/node-nvidia-score",
        "hami.io/node-handshake",
        "hami.io/mutex.lock",
        "nvidia.com/vgpu-mode",
    ]
)
VALUES = st.one_of(
    st.text(alphabet=string.printable, max_size=40),
    st.sampled_from(
        ["{}", "[]", "null", "[{}]", ";;", "a,b,c,d:;", '{"v":1,"node":"n1","containers":{"x":[{}]}}', "[1]"]
    ),
)
ANNOTATIONS = st.dictionaries(KEYS, VALUES, max_size=5)
QUANTITIES = st.one_of(st.integers(-5, 2**40).map(str), st.sampled_from(["10Gi", "", "x", "1e3", "0.5", "-1"]))


@given(on_node=ANNOTATIONS, on_pod=ANNOTATIONS, advertised=st.none() | QUANTITIES, asked=QUANTITIES)
def test_no_annotation_and_no_quantity_ends_the_command(
    on_node: dict[str, str], on_pod: dict[str, str], advertised: str | None, asked: str
) -> None:
    """Malformed objects are findings; the numbers of the summary are those of the findings."""
    main = container(resources={"limits": {"nvidia.com/gpu": asked}})
    report = judged(
        nodes=[hami_node(advertised=advertised, **on_node)],
        pods=[pod("runs", main, node="n1", annotations=on_pod), pod("waits", main, annotations=on_pod)],
        workloads=[workload("Deployment", main, annotations=on_pod)],
    )
    for severity in SEVERITIES:
        count = sum(finding.severity == severity for finding in report.findings)
        assert report.summary.findings[severity] == count
        assert (severity.upper() in report.text().splitlines()) == bool(count)
    assert report.is_clear == (not report.summary.findings["blocks"])


def test_json_and_yaml_hold_the_same() -> None:
    """Programs get every object of a finding, and camel-cased names."""
    report = judged(workloads=[workload(name=f"w{each}") for each in range(9)])
    data = json.loads(structured(report, output="json") or "")
    assert data == yaml.safe_load(structured(report, output="yaml") or "")
    assert data["summary"]["new"] == {"mutated": 9}
    assert len(data["findings"][0]["objects"]) == 9
    assert "nextStep" in data["findings"][0]


def test_the_summary_comes_first_and_the_worst_next() -> None:
    """A person sees the numbers, then what to do."""
    report = judged(nodes=[hami_node(advertised="0")], workloads=[workload()])
    lines = report.text().splitlines()
    assert lines[0] == "1 thing to do first, 1 change, 1 note"
    assert lines[1:5] == [
        "mode: loop; Tranche is not installed",
        "nodes: 1 nobody",
        "running GPU pods: none",
        "new GPU pods, by template: 1 mutated",
    ]
    headings = [line for line in lines if line.isupper() and not line.startswith(" ")]
    assert headings == ["BLOCKS", "CHANGES", "NOTES"]
