"""docs/threat-model.md promises nothing that no test holds."""

import re
from pathlib import Path

import pytest
import yaml

from cluster.guests import PATIENCE

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "threat-model.md").read_text()
TABLE = PAGE.partition("## Forgery table")[2].partition("\n## ")[0]
LINES = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in TABLE.splitlines() if line.startswith("|")
][2:]
HOSTILE = [
    [cell.strip() for cell in line.split("|")[1:-1]]
    for line in PAGE.partition("## Hostile bytes")[2].partition("\n## ")[0].splitlines()
    if line.startswith("|")
][2:]
TOPICS = (
    *("envFrom", "valueFrom", "at creation", "later", "status", "hami.io/", "LD_PRELOAD", "CUDA_DISABLE_CONTROL"),
    *("/var/run/nvidia-container-devices", "pods/binding", "legacy `bindings`", "nodeName", "foreign `schedulerName`"),
    *("labels of namespace or pod", "debug container", "resize", "privileged", "`/dev`", "use-gpuuuid"),
    *("an agent's token", "the webhook's token", "Lease `tranche-scheduler`", "deposed leader"),
)


def test_the_table_is_there() -> None:
    """Attack, what stops it, test: nothing is left blank."""
    assert len(LINES) > 40
    assert all(len(cells) == 3 and all(cells) for cells in LINES)


@pytest.mark.parametrize(("attack", "test"), [(attack, test) for attack, _, test in LINES])
def test_every_line_has_its_test(attack: str, test: str) -> None:
    """It exists, and it needs a real API server."""
    named = re.fullmatch(r"`(\S+)::(test_\w+)`", test)
    assert named is not None, attack
    text = (ROOT / "tests" / named[1]).read_text()
    assert re.search(rf"^(async )?def {named[2]}\(", text, re.MULTILINE), attack
    assert re.search(r"^pytestmark = .*pytest\.mark\.apiserver", text, re.MULTILINE), named[1]


@pytest.mark.parametrize(("sent", "test"), [(sent, test) for sent, _, test in HOSTILE])
def test_every_kind_of_hostile_bytes_has_its_test(sent: str, test: str) -> None:
    """It exists; that it needs no API server is the point."""
    named = re.fullmatch(r"`(\S+)::(test_\w+)`", test)
    assert named is not None, sent
    text = (ROOT / "tests" / named[1]).read_text()
    assert re.search(rf"^(async )?def {named[2]}\(", text, re.MULTILINE), sent


def test_slowness_has_the_limits_that_the_page_says() -> None:
    """The times of every port."""
    said = " ".join(what for _, what, _ in HOSTILE)
    assert f"{PATIENCE.request:.0f} s after its first byte" in said
    assert f"cut off after {PATIENCE.handshake:.0f} s" in said
    assert f"cut off after {PATIENCE.answer:.0f} s" in said
    assert f"end after {PATIENCE.idle:.0f} s" in said
    assert f"Of more than {PATIENCE.connections:,} the quietest" in said


@pytest.mark.parametrize("topic", TOPICS)
def test_no_known_attack_is_missing(topic: str) -> None:
    """What the peers of this project were broken by, and what was found here."""
    assert any(topic in attack for attack, _, _ in LINES)


def test_every_policy_stops_something() -> None:
    """A policy that the page does not name has no known purpose; one that only the page names is no protection."""
    policies = {
        each["metadata"]["name"]
        for folder in ("base", "hami-nodes")
        for file in (ROOT / "manifests" / folder).glob("*.yaml")
        for each in yaml.safe_load_all(file.read_text())
        if each["kind"] == "ValidatingAdmissionPolicy"
    }
    named = set(re.findall(r"`(tranche-[a-z-]+)`", "".join(how for _, how, _ in LINES)))
    assert policies - {"tranche-fence"} == named
    assert "the fence" in TABLE
