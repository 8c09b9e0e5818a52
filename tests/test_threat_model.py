"""Every promise of docs/threat-model.md has a test."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from allocation.variables import TABLE as TABLE_OF_VARIABLES
from cluster.disruption_budget import PodDisruptionBudget
from cluster.http.connections import DEFAULT_TIMEOUTS
from scheduler.state import kinds

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "threat-model.md").read_text()
TABLE = PAGE.partition("## Forgery table")[2].partition("\n## ")[0]
LINES = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in TABLE.splitlines() if line.startswith("|")
][2:]


def section(title: str) -> str:
    """Return the text below a heading of the second level."""
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


HOSTILE = [
    [cell.strip() for cell in line.split("|")[1:-1]]
    for line in section("Hostile bytes").splitlines()
    if line.startswith("|")
][2:]
DERIVED = frozenset({"excess", "is_oversized", "isOversized", "requires_all"})
"""Attributes that follow from others when an object is read."""
TOPICS = (
    *("envFrom", "valueFrom", "at creation", "later", "status", "hami.io/", "LD_PRELOAD", "CUDA_DISABLE_CONTROL"),
    *("CUDA_DEVICE_SM_LIMIT_0", "CUDA_MPS_", "SYS_ADMIN", "nvidia.com/gpu: 0", "DaemonSet", "nodeSelectorTerms"),
    *("nvidia.cdi.k8s.io/*", "cdi.k8s.io/*", "nvidia.com/container.*", "devices.nri.io/*"),
    *("/var/run/nvidia-container-devices", "pods/binding", "legacy `bindings`", "nodeName", "foreign `schedulerName`"),
    *("labels of namespace or pod", "debug container", "resize", "privileged", "`/dev`", "use-gpuuuid"),
    *("label of its application", "names no namespace", "share mode", "GPUBinding written"),
    *("GpuQueue of another team", "gpu.scheduling/charged-to", "gpu.scheduling/resreq", "GpuQueue or GpuQuota written"),
    *("a GpuQuota changed", "late eviction", "who may evict", "evicts pods of the system", "PodDisruptionBudget"),
    *("drained", "nominatedNodeName"),
    *("an agent's token", "the webhook's token", "Lease `tranche-scheduler`", "deposed leader"),
)


def test_no_cell_of_the_table_is_empty() -> None:
    """Each row has an attack, what stops it, and a test."""
    assert len(LINES) > 40
    assert all(len(cells) == 3 and all(cells) for cells in LINES)


def module_of(row: str, test: str) -> str:
    """Return the text of the module that has the test of a row."""
    named = re.fullmatch(r"`(\S+)::(test_\w+)`", test)
    assert named is not None, row
    text = (ROOT / "tests" / named[1]).read_text()
    assert re.search(rf"^(async )?def {named[2]}\(", text, re.MULTILINE), row
    return text


def test_each_attack_has_a_test_on_a_real_api_server() -> None:
    """The test exists and is marked `apiserver`."""
    for attack, _, test in LINES:
        text = module_of(attack, test)
        assert re.search(r"^pytestmark = .*pytest\.mark\.apiserver", text, re.MULTILINE), attack


def test_each_kind_of_hostile_bytes_has_a_test() -> None:
    """The test exists; it needs no API server."""
    assert len(HOSTILE) > 10
    for sent, _, test in HOSTILE:
        module_of(sent, test)


def test_page_shows_the_timeouts_of_every_port() -> None:
    """The timeouts on the page are those of the listener."""
    said = " ".join(what for _, what, _ in HOSTILE)
    assert f"{DEFAULT_TIMEOUTS.request:.0f} s after its first byte" in said
    assert f"cut off after {DEFAULT_TIMEOUTS.handshake:.0f} s" in said
    assert f"cut off after {DEFAULT_TIMEOUTS.answer:.0f} s" in said
    assert f"end after {DEFAULT_TIMEOUTS.idle:.0f} s" in said
    assert f"Of more than {DEFAULT_TIMEOUTS.connections:,} the quietest" in said


BOUNDS = [
    [cell.strip() for cell in line.split("|")[1:-1]]
    for line in section("What one tenant costs the others").partition("| kind | field |")[2].splitlines()
    if line.startswith("|")
][1:]
"""Of each row: kind, fields, bound, what happens beyond it, and the test."""


def watched() -> dict[str, type]:
    """Return every kind that an informer of the scheduler watches, by its name in Kubernetes."""
    of_state = kinds.needed(
        has_storage=True, has_bindings=True, has_foreign_drivers=True, has_pod_groups=True, with_images=False
    )
    return {kind.resource.kind: kind.decoded for kind in of_state} | {"PodDisruptionBudget": PodDisruptionBudget}


def fields(kind: msgspec.inspect.Type, path: str = "") -> Iterator[str]:
    """Yield the paths of all fields that are decoded; only the metadata and the spec of an object are taken apart."""
    if isinstance(kind, msgspec.inspect.UnionType):
        for one in kind.types:
            yield from fields(one, path)
    elif isinstance(kind, msgspec.inspect.StructType) and path in ("", "metadata", "spec"):
        for each in kind.fields:
            if each.encode_name not in DERIVED:
                yield from fields(each.type, f"{path}.{each.encode_name}".lstrip("."))
    elif not isinstance(kind, msgspec.inspect.NoneType):
        yield path


def test_each_field_that_a_tenant_may_write_has_a_row() -> None:
    """A field that is decoded tomorrow, and a kind that is watched, need a bound and a row."""
    by_kind: dict[str, set[str]] = {}
    for kind, names, *_ in BOUNDS:
        by_kind.setdefault(kind, set()).update(re.findall(r"`([\w.]+)`", names))
    decoded = watched()
    for kind, named in by_kind.items():
        found = set(fields(msgspec.inspect.type_info(decoded[kind])))
        covered = {field for field in found if field in named or field.partition(".")[0] in named}
        assert sorted(found - covered) == [], kind
        assert [name for name in named if not any(f"{each}.".startswith(f"{name}.") for each in found)] == [], kind
    rest = section("What one tenant costs the others").partition("A tenant writes none of the other kinds")[2]
    assert set(re.findall(r"[A-Z]\w+", rest)) == decoded.keys() - by_kind.keys()


def test_each_bound_has_a_test() -> None:
    """Where the API server is the bound, nothing of ours could be tested."""
    assert len(BOUNDS) > 10
    for kind, names, bound, beyond, test in BOUNDS:
        assert bound, (kind, names)
        if test:
            module_of(f"{kind} {names}", test)
        else:
            assert not beyond, (kind, names)


def unbounded(schema: dict[str, Any], path: str) -> Iterator[str]:
    """Yield the parts of a schema that may be as large as an object may be."""
    limit = {"string": "maxLength", "array": "maxItems", "integer": "maximum"}.get(schema["type"], "")
    if limit and limit not in schema and schema.get("format") != "int32" and "enum" not in schema:
        yield path
    if "additionalProperties" in schema:
        if "maxProperties" not in schema or "size(key) <=" not in str(schema.get("x-kubernetes-validations")):
            yield path
        yield from unbounded(schema["additionalProperties"], f"{path}.*")
    for name, each in schema.get("properties", {}).items():
        yield from unbounded(each, f"{path}.{name}")
    if "items" in schema:
        yield from unbounded(schema["items"], f"{path}[]")


def test_everything_in_a_gpuclaim_has_a_maximum() -> None:
    """The API server refuses what exceeds it."""
    definition = yaml.safe_load((ROOT / "manifests" / "base" / "crds" / "gpuclaims.yaml").read_text())
    (version,) = definition["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert list(unbounded(spec, "spec")) == []


def test_no_known_attack_is_missing() -> None:
    """Attacks that succeeded against similar projects, and those found here, are on the page."""
    assert [topic for topic in TOPICS if not any(topic in attack for attack, _, _ in LINES)] == []


def test_page_shows_the_table_of_variables() -> None:
    """The rows are those of allocation/variables.py, in the same order."""
    printed = [line for line in section("Variables").splitlines() if line.startswith("| `")]
    assert printed == [f"| `{row.name}` | {row.ruling.value} | {row.reason} |" for row in TABLE_OF_VARIABLES]


def test_page_names_each_policy_that_exists() -> None:
    """A policy that the page omits has an unknown purpose; a policy that only the page names protects nothing."""
    policies = {
        each["metadata"]["name"]
        for folder in (
            "base",
            "hami-nodes",
            "gpubindings/writers",
            "missing-devices",
            "expander",
            "rigid-budgets",
            "dra",
            "dra-guard",
            "resize",
        )
        for file in (ROOT / "manifests" / folder).glob("*.yaml")
        for each in yaml.safe_load_all(file.read_text())
        if each["kind"] == "ValidatingAdmissionPolicy"
    }
    named = set(re.findall(r"`(tranche-[a-z-]+)`", "".join(how for _, how, _ in LINES)))
    against_mistakes = {"tranche-limits", "tranche-queue-deletion"}
    assert policies - {"tranche-fence", *against_mistakes} == named
    assert "the fence" in TABLE
