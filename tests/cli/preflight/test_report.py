"""There is a report on any cluster, short as text and complete as JSON and YAML."""

import json
import string

import yaml
from hypothesis import given
from hypothesis import strategies as st

from cli.preflight.cluster_snapshot import NamedObject
from cli.preflight.findings import SEVERITIES
from cli.tables import structured
from cluster.metadata import ObjectMeta
from tests.cli.preflight.snapshots import about, container, hami_node, pod, report_on, workload

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
def test_malformed_annotations_and_quantities_become_findings(
    on_node: dict[str, str], on_pod: dict[str, str], advertised: str | None, asked: str
) -> None:
    """No content of an object ends the command, and the summary counts the findings."""
    main = container(resources={"limits": {"nvidia.com/gpu": asked}})
    report = report_on(
        nodes=[hami_node(advertised=advertised, **on_node)],
        pods=[pod("runs", main, node="n1", annotations=on_pod), pod("waits", main, annotations=on_pod)],
        workloads=[workload("Deployment", main, annotations=on_pod)],
    )
    for severity in SEVERITIES:
        count = sum(finding.severity == severity for finding in report.findings)
        assert report.summary.findings[severity] == count
        assert (severity.upper() in report.text().splitlines()) == bool(count)
    assert report.is_clear == (not report.summary.findings["blocks"])


def test_json_and_yaml_have_the_same_content() -> None:
    """Both list every object of a finding, with names in camel case."""
    report = report_on(workloads=[workload(name=f"w{each}") for each in range(9)])
    data = json.loads(structured(report, output="json") or "")
    assert data == yaml.safe_load(structured(report, output="yaml") or "")
    assert data["summary"]["new"] == {"mutated": 9}
    assert len(data["findings"][0]["objects"]) == 9
    assert "nextStep" in data["findings"][0]


def test_the_text_begins_with_the_summary_and_the_blockers() -> None:
    """The counts come first, then the findings by severity."""
    report = report_on(nodes=[hami_node(advertised="0")], workloads=[workload()])
    lines = report.text().splitlines()
    assert lines[0].startswith("Tranche is not installed: no GPU pod is admitted or placed by it; install it with")
    assert lines[1] == "1 thing to do first, 1 change, 1 note"
    assert lines[2:6] == [
        "mode: loop; Tranche is not installed",
        "nodes: 1 without a plugin",
        "running GPU pods: none",
        "new GPU pods, by template: 1 mutated",
    ]
    headings = [line for line in lines if line.isupper() and not line.startswith(" ")]
    assert headings == ["BLOCKS", "CHANGES", "NOTES"]


def test_a_pod_that_waits_for_a_removed_installation_blocks() -> None:
    """Nothing places such a pod after an uninstall, so the report is not clear."""
    waiting = pod("waits", schedulerName="tranche")
    report = report_on(pods=[waiting])
    assert about(report, "nothing places it").objects == ("pod team/waits",)
    assert not report.is_clear
    definition = NamedObject(ObjectMeta(name="gpunodestatuses.gpu.scheduling"))
    assert not [each for each in report_on(pods=[waiting], definitions=[definition]).findings if "places" in each.what]
