"""docs/gpubindings.md says what the code does: its example, its tables, its flags."""

import re
from pathlib import Path

import msgspec
import pytest
import yaml

from allocation.bindings import grants
from allocation.bindings.binding import AppIdentity, Binding, BindingSpec, share_modes
from allocation.names import SHARE_MODE_PREFIX
from allocation.quantity import binding_mib
from allocation.settings import BindingSettings
from cluster import configuration
from cluster.gpu_binding import GpuBinding
from scheduler.settings import SchedulerSettings

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "gpubindings.md").read_text(encoding="utf-8")


def rows(title: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without its head."""
    text = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert table is not None, title
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table[0].splitlines()[2:]]


def test_example_gives_its_pod_the_card() -> None:
    """The binding at the top of the page selects the pod below it."""
    example = re.search(r"```yaml\n(apiVersion: gpu\.bytetrade.*?)```", PAGE, re.DOTALL)
    assert example is not None
    binding, pod = yaml.safe_load_all(example[1])
    labels = pod["metadata"]["labels"]
    identity = AppIdentity.of_labels(labels, pod["metadata"]["namespace"])
    assert identity is not None
    (grant,) = grants.of_pod([msgspec.convert(binding, GpuBinding).binding], identity, labels, require_namespace=True)
    assert (grant.card, grant.memory_mib) == (binding["spec"]["uuid"], 23552)


@pytest.mark.parametrize(("written", "meaning"), rows("Memory"))
def test_table_of_memory(written: str, meaning: str) -> None:
    """Each row is how the scheduler reads it."""
    assert f"{binding_mib(written.strip('`'))} MiB" == meaning


@pytest.mark.parametrize(("row", "alices", "bobs"), rows("Which pods"))
def test_table_of_matches(row: str, alices: str, bobs: str) -> None:
    """Each row is whether the binding gives its card to the pod; the selector is that of the app."""
    owner = "alice" if "owner alice" in row else ""
    namespace = found[1] if (found := re.search(r"namespace `([\w-]+)`", row)) else ""
    spec = BindingSpec("GPU-a", "app", owner=owner, namespace=namespace, pod_selector=None)
    binding = Binding("one", "", spec)
    for user, said in (("alice", alices), ("bob", bobs)):
        identity = AppIdentity("app", user, f"ns-{user[0]}")
        assert identity.has(binding.spec) == (said == "yes")


def test_table_of_share_modes() -> None:
    """The values and their names are those that the scheduler reads."""
    shown = {value: mode.replace(" ", "-") for cell, mode, *_ in rows("How much of a card") for value in cell[1:2]}
    assert shown == {value: share_modes({f"{SHARE_MODE_PREFIX}GPU-a": value})["GPU-a"] for value in "012"}
    assert share_modes({f"{SHARE_MODE_PREFIX}GPU-a": "3"}) == {"GPU-a": "time-slicing"}


def test_flags_and_components_exist() -> None:
    """A reader can copy each."""
    flags = sorted(set(re.findall(r"`(--allocation-bindings-[a-z-]+)`", PAGE)))
    assert flags == ["--allocation-bindings-mode", "--allocation-bindings-require-namespace"]
    parsed = configuration.parse(
        "", source="page", flags=[f"{flags[0]}=required", flags[1]], section="scheduler", settings=SchedulerSettings
    )
    assert parsed.allocation.bindings == BindingSettings("required", require_namespace=True)
    components = set(re.findall(r"`(manifests/gpubindings[/a-z-]*)`", PAGE))
    assert len(components) == 4
    assert all((ROOT / each / "kustomization.yaml").is_file() for each in components)
