"""docs/kueue.md charges what Kueue would: its table, computed by the configuration on the page."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from allocation import quantity
from allocation.claim import ClaimDevices, ClaimSpec
from allocation.names import RESREQ
from allocation.pod import Container
from allocation.request import read_request
from allocation.settings import AllocationSettings
from tests.webhook.support.claims import CLAIM, CORES, COUNT, MEMORY, Claims
from webhook.review import PodSpec

Make = Callable[..., Any]
Amounts = defaultdict[str, Fraction]
PAGE = (Path(__file__).parents[2] / "docs" / "kueue.md").read_text(encoding="utf-8")
CONFIGURATION, OBJECTS, JOB = (
    [*yaml.safe_load_all(block)] for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
)
CARD_MIB = 81_920
CLAIMS = Claims(
    {"exclusive": ClaimSpec(ClaimDevices(2)), "shared": ClaimSpec(ClaimDevices(2, "Shared", memory_mib=3000, cores=30))}
)
TOTALS = ("nvidia.com/gpumem-total", "nvidia.com/gpucores-total")


def rows() -> list[list[str]]:
    """Return the cells of the table of charges, without its head."""
    lines = PAGE.partition("\n## What Kueue charges\n")[2].partition("\nWhat still differs")[0].splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| ")][1:]


def template(described: str) -> dict[str, Any]:
    """Return the template of a row."""
    limits = {f"nvidia.com/{key}": value for key, value in re.findall(r"`(gpu[a-z-]*): (\d+)`", described)}
    containers = [
        {"name": f"c{n}", **({"resources": {"limits": limits}} if limits else {})}
        for n in range(2 if described.startswith("two containers") else 1)
    ]
    annotations = {}
    if "resreq" in described:
        annotations = {RESREQ: "gpu=2"}
    elif "GpuClaim" in described:
        annotations = {CLAIM: "shared" if "shared" in described else "exclusive"}
    return {"metadata": {"annotations": annotations}, "spec": {"containers": containers}}


def requests(found: Mapping[str, Any]) -> Amounts:
    """Return what the containers of a template request together, as Kueue adds it up."""
    total: Amounts = defaultdict(Fraction)
    for each in found["spec"]["containers"]:
        held = each.get("resources", {})
        for name, amount in {**held.get("limits", {}), **held.get("requests", {})}.items():
            total[name] += Fraction(quantity.parse(amount))
    return total


def charged(found: Mapping[str, Any]) -> tuple[int, ...]:
    """Return MiB and percent that Kueue charges for a pod of a template, with the transformations of the page."""
    (configuration,) = CONFIGURATION
    stated = requests(found)
    result: Amounts = defaultdict(Fraction)
    for each in configuration["resources"]["transformations"]:
        assert each["strategy"] == "Replace"
        if each["input"] in stated:
            amount = stated[each["input"]] * stated.get(each["multiplyBy"], 1)
            for name, factor in each["outputs"].items():
                result[name] += amount * Fraction(factor)
    return tuple(int(result[name]) for name in TOTALS)


def held(pod: Mapping[str, Any]) -> tuple[int, int]:
    """Return MiB and percent that a pod with these containers holds on cards of 80 GiB."""
    containers = msgspec.convert(pod["spec"]["containers"], list[Container])
    shares = read_request(PodSpec(containers), AllocationSettings()).containers  # type: ignore[arg-type]
    return (
        sum(each.count * each.memory_on(CARD_MIB) for each in shares),
        sum(each.count * each.cores // 10 for each in shares),
    )


def agrees(cell: str, amounts: tuple[int, ...]) -> bool:
    """Whether a cell says these MiB and, where it says so, these percent."""
    memory = [int(each.replace(",", "")) for each in re.findall(r"([\d,]+) MiB", cell)]
    cores = [int(each) for each in re.findall(r"(\d+) %", cell)]
    return memory == [amounts[0]] and cores in ([], [amounts[1]])


@pytest.mark.parametrize(("described", "without", "completed", "holds"), rows())
def test_table_of_charges(admit: Make, described: str, without: str, completed: str, holds: str) -> None:
    """Each row is what Kueue charges without transformation and completion, with both, and what the pod holds."""
    sent = template(described)
    stated = requests(sent)
    assert agrees(without, (int(stated[MEMORY]), int(stated[CORES])))
    job = {"metadata": {"name": "j"}, "spec": {"template": sent}}
    made = admit(job, group="batch", kind="Job", claims=CLAIMS).pod["spec"]["template"]
    assert agrees(completed, charged(made))
    assert agrees(holds, held(admit(sent, claims=CLAIMS).pod))


def test_every_resource_of_a_completed_template_is_covered(admit: Make) -> None:
    """Kueue would never admit a job with a resource that the ClusterQueue does not cover."""
    (configuration,) = CONFIGURATION
    (queue,) = [each for each in OBJECTS if each["kind"] == "ClusterQueue"]
    (group,) = queue["spec"]["resourceGroups"]
    transformed = {each["input"]: each["outputs"] for each in configuration["resources"]["transformations"]}
    assert {each["name"] for each in group["flavors"][0]["resources"]} == {*group["coveredResources"]}
    for described, *_ in rows():
        job = {"metadata": {"name": "j"}, "spec": {"template": template(described)}}
        found = requests(admit(job, group="batch", kind="Job", claims=CLAIMS).pod["spec"]["template"])
        for name in found:
            assert {*transformed.get(name, {name: 1})} <= {*group["coveredResources"]}


def test_the_job_of_the_page_is_charged_as_it_says(admit: Make) -> None:
    """No amount is missing in it, and its numbers are those of the steps below it."""
    (job,) = JOB
    completed = admit(job, group="batch", kind="Job").pod
    assert requests(completed["spec"]["template"]) == requests(job["spec"]["template"])
    memory, _ = charged(job["spec"]["template"])
    pods = job["spec"]["parallelism"]
    assert f"{pods} pods × 4 cards × 9,000 MiB = {pods * memory:,} of `nvidia.com/gpumem-total`" in PAGE
    assert f"and {pods * int(requests(job['spec']['template'])[COUNT])} of `nvidia.com/gpu`" in PAGE
