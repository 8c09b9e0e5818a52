"""`kubectl gpu cordon` and `uncordon` against a real API server, with the rights of tranche-operator."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from allocation.constraints import words
from allocation.names import CORDON
from lab import kubectl
from lab.client import client
from lab.kubeconfig import service_account_kubeconfig
from lab.layout import Layout
from tests.cli.conftest import TEAM

Gpu = Callable[..., "subprocess.CompletedProcess[str]"]
ROOT = Path(__file__).parents[2]
CARD, OTHER = "GPU-cli-1-0", "GPU-cli-1-1"


def annotation(team: Layout, node: str = "cli-1") -> str | None:
    """Return a node's list, or None."""
    value: str | None = client(team).get("node", node)["metadata"].get("annotations", {}).get(CORDON)
    return value


@pytest.fixture
def clean(team: Layout) -> Iterator[Layout]:
    """A cluster without cordoned cards, before and after the test."""
    kubectl.run(team, "annotate", "node", "cli-1", "cli-3", f"{CORDON}-")
    yield team
    kubectl.run(team, "annotate", "node", "cli-1", "cli-3", f"{CORDON}-")


@pytest.mark.apiserver
def test_card_is_cordoned_and_uncordoned(clean: Layout, gpu: Gpu) -> None:
    """The list is the node's annotation, the output names remaining pods, and a repetition succeeds."""
    client(clean).patch("node", "cli-1", {"metadata": {"annotations": {CORDON: " someone-elses ,,"}}})
    done = gpu("cordon", CARD, account="operator")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split() for line in done.stdout.splitlines()[1:]] == [[CARD, "cli-1", "cordoned", "cli-team/placed"]]
    assert annotation(clean) == f"someone-elses,{CARD}"
    state = gpu("top", "cli-1", "--no-headers").stdout.splitlines()[0]
    assert "Healthy,Cordoned" in state
    again = gpu("cordon", CARD, "--no-headers", account="operator")
    assert (again.returncode, again.stdout.split()[2:4]) == (0, ["already", "cordoned"])
    back = gpu("uncordon", CARD, "-o", "name", account="operator")
    assert (back.returncode, back.stdout) == (0, f"card/{CARD}\n")
    assert annotation(clean) == "someone-elses"


@pytest.mark.apiserver
def test_cards_of_several_nodes_are_cordoned_together(clean: Layout, gpu: Gpu) -> None:
    """Each node has its own list, even if only HAMi's annotation names its cards; an empty list is removed."""
    done = gpu("cordon", CARD, OTHER, "GPU-cli-3-0", "-o", "json", account="operator")
    assert done.returncode == 0
    assert [(card["uuid"], card["node"], card["cordoned"]) for card in json.loads(done.stdout)["cards"]] == [
        (CARD, "cli-1", True),
        (OTHER, "cli-1", True),
        ("GPU-cli-3-0", "cli-3", True),
    ]
    assert (annotation(clean), annotation(clean, "cli-3")) == (f"{CARD},{OTHER}", "GPU-cli-3-0")
    assert gpu("uncordon", CARD, OTHER, "GPU-cli-3-0", account="operator").returncode == 0
    assert (annotation(clean), annotation(clean, "cli-3")) == (None, None)


@pytest.mark.apiserver
@pytest.mark.parametrize(("flag", "suffix"), [("client", "(dry run)"), ("server", "(server dry run)")])
def test_dry_run_writes_nothing(clean: Layout, gpu: Gpu, flag: str, suffix: str) -> None:
    """The output shows what would change."""
    done = gpu("cordon", CARD, f"--dry-run={flag}", account="operator")
    assert (done.returncode, f"cordoned {suffix}" in done.stdout, annotation(clean)) == (0, True, None)


@pytest.mark.apiserver
def test_unknown_card_is_refused(clean: Layout, gpu: Gpu) -> None:
    """No other card changes either, and the error suggests similar UUIDs."""
    done = gpu("cordon", CARD, "gpu-cli-1", "zzz", account="operator")
    assert (done.returncode, annotation(clean)) == (1, None)
    assert "no node has a card gpu-cli-1: did you mean GPU-cli-1-0 of node cli-1" in done.stderr
    assert "no node has a card zzz; nothing was changed; see 'kubectl gpu top --cards -o wide'" in done.stderr


@pytest.mark.apiserver
def test_removed_card_can_be_uncordoned(clean: Layout, gpu: Gpu) -> None:
    """The UUID of a removed card can be cleaned up, although no node reports it."""
    client(clean).patch("node", "cli-1", {"metadata": {"annotations": {CORDON: "GPU-pulled"}}})
    assert gpu("cordon", "GPU-pulled", account="operator").returncode == 1
    assert gpu("uncordon", "GPU-pulled", account="operator").returncode == 0
    assert annotation(clean) is None


@pytest.mark.apiserver
def test_viewer_may_not_cordon(clean: Layout, gpu: Gpu) -> None:
    """The error names the role that grants the right."""
    done = gpu("cordon", CARD)
    assert (done.returncode, annotation(clean)) == (1, None)
    assert done.stderr.startswith("error: ")
    assert "tranche-operator (manifests/base/rbac/operator.yaml), which grants it" in done.stderr


@pytest.mark.apiserver
def test_concurrent_edits_are_both_kept(clean: Layout) -> None:
    """Both cards are in the list."""
    identity = service_account_kubeconfig(clean, namespace=TEAM, name="operator")
    command = [sys.executable, "-m", "cli", "cordon", f"--kubeconfig={identity}"]
    started = [subprocess.Popen([*command, uuid], cwd=ROOT, stdout=subprocess.DEVNULL) for uuid in (CARD, OTHER)]
    assert [each.wait(60) for each in started] == [0, 0]
    assert set(words(annotation(clean) or "")) == {CARD, OTHER}


@pytest.mark.apiserver
def test_a_node_stands_for_all_of_its_cards(clean: Layout, gpu: Gpu) -> None:
    """By its name, as kubectl writes it, too; uncordon covers also cards that no agent reports any more."""
    done = gpu("cordon", "cli-1", account="operator")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[:3] for line in done.stdout.splitlines()[1:]] == [
        [CARD, "cli-1", "cordoned"],
        [OTHER, "cli-1", "cordoned"],
    ]
    assert annotation(clean) == f"{CARD},{OTHER}"
    client(clean).patch("node", "cli-1", {"metadata": {"annotations": {CORDON: f"{CARD},{OTHER},GPU-gone"}}})
    assert gpu("uncordon", "node/cli-1", account="operator").returncode == 0
    assert not annotation(clean)
    refused = gpu("cordon", "cli-9", account="operator")
    assert (refused.returncode, "no node has a card cli-9" in refused.stderr) == (1, True)
