"""The sentence and the tables of an explanation."""

import pytest

from allocation.reason_words import meaning
from cli.explain import explanation_tables
from cluster.gpu_claim import GpuClaim
from scheduler.api.explanation_types import ClaimExplanation, Explanation
from scheduler.api.namespaced import redaction
from tests.scheduler.support.builders import Clock, allocated, lease, node, pod, state
from tests.scheduler.support.claims import claim as gpu_claim
from tests.scheduler.support.claims import claiming, running
from tests.scheduler.support.explaining import explained


def test_codes_have_meanings() -> None:
    """The meanings are joined like the codes; an unknown code has a text too."""
    assert meaning(("CardInsufficientMemory", "CardNotHealth")) == (
        "its agent reports it as unhealthy; it has less free memory than requested"
    )
    assert meaning(("TheMoonIsFull",)) == "see the reason itself"


def test_first_line_says_whether_waiting_helps() -> None:
    """A full cluster empties, too small cards stay."""
    made = state("n1", "n2", cards=1)
    for name in ("n1", "n2"):
        made.set_pod(allocated(f"on-{name}", node=name, memory=700))
    first = explanation_tables.sentence(explained(made, pod("a", memory=600)))
    assert first == (
        "pod default/a waits: none of the 2 nodes can take it now; it may fit when other pods finish or are evicted"
    )
    assert "no pod that finishes makes it fit" in explanation_tables.sentence(explained(made, pod("a", memory=9000)))
    assert explanation_tables.sentence(explained(made, pod("a", memory=100))) == "pod default/a would go to n1, card 0"
    foreign = explanation_tables.sentence(explained(made, pod("a", schedulerName="other")))
    assert foreign.startswith("pod default/a is left to another scheduler")


def test_nodes_with_the_same_reason_share_a_row() -> None:
    """The chosen node comes first, then nodes that fit, then the rest; only the wide table has long lists in full."""
    made = state(*(f"n{number}" for number in range(8)))
    made.set_pod(pod("stray", memory=10, node="n7", phase="Running"))
    explanation = explained(made, pod("a", memory=600))
    rows = explanation_tables.of_nodes(explanation).rows
    assert [row[0] for row in rows] == ["1", "6", "1"]
    assert rows[0][1:] == ("chosen", "", "score 4.25", "n0")
    assert rows[1][-1] == "n1,n2,n3,n4,n5,…"
    assert rows[2][1].startswith("UncountedPod: pod default/stray runs here uncounted")
    assert explanation_tables.of_nodes(explanation, wide=True).rows[1][-1] == "n1,n2,n3,n4,n5,n6"


def test_each_card_of_a_node_has_a_verdict() -> None:
    """A row has the free amounts of the card and its verdict on the container."""
    made = state("n1", "n2")
    made.set_pod(allocated("runs", node="n1", memory=700))
    explanation = explained(made, pod("a", memory=600))
    (first, second) = explanation_tables.of_cards(explanation.nodes[0]).rows
    assert first[2:7] == ("300/1000", "100/100", "3/4", "main", "CardInsufficientMemory")
    assert second[6] == "FITS,chosen"
    assert explanation_tables.of_cards(explanation.nodes[1]).rows[0][6] == "FITS,best here"


def test_each_claim_has_a_row() -> None:
    """The state is in words; a claim that would be created with the pod says so."""
    claims = (
        ClaimExplanation("data", "bound", "local", "pv-1", "kubernetes.io/hostname=n1", exists=True),
        ClaimExplanation("model", "missing"),
        ClaimExplanation("cache", "unbound", "local", "pv-2", "n1"),
    )
    table = explanation_tables.of_claims(Explanation("default", "a", "fits", "would go to n1", claims=claims))
    assert table.rows == [
        ("data", "is bound", "local", "pv-1", "kubernetes.io/hostname=n1"),
        ("model", "does not exist", "<none>", "<none>", "<none>"),
        ("cache", "not created yet; is bound with its pod", "local", "pv-2", "n1"),
    ]


def test_requests_are_shown_by_container() -> None:
    """Amounts have the units of the pod's spec."""
    limits = {"nvidia.com/gpu": "2", "nvidia.com/gpumem-percentage": "50", "nvidia.com/gpucores": "30"}
    asks = pod("a", containers=[{"name": "main", "resources": {"limits": limits}}])
    explanation = explained(state("n1"), asks)
    assert explanation_tables.requests(explanation) == "main 2 cards with 50% of the memory and 30% of the compute each"


@pytest.mark.parametrize(
    ("claimed", "claim", "requests"),
    [
        (gpu_claim("c"), "c (Exclusive)", "1 whole card"),
        (gpu_claim("c", count=2), "c (Exclusive)", "2 whole cards"),
        (gpu_claim("c", exclusivity="Shared"), "c (Shared)", "1 card"),
        (
            gpu_claim("c", count=2, exclusivity="Shared", memoryMiB=400, cores=30),
            "c (Shared)",
            "2 cards with 400 MiB and 30% of the compute each",
        ),
        (
            gpu_claim("c", count=2, exclusivity="MIG", profile="1g.10gb"),
            "c (MIG)",
            "2 MIG instances of profile 1g.10gb",
        ),
    ],
)
def test_a_claim_and_what_it_gives_are_shown(claimed: GpuClaim, claim: str, requests: str) -> None:
    """The containers have the same cards, so there is one request."""
    made = state("n1")
    made.set_claim(claimed)
    explanation = explained(made, claiming("a", claimed, containers=("main", "side")))
    assert explanation_tables.claim(explanation) == claim
    assert explanation_tables.requests(explanation) == f"{requests}, the same in every GPU container"


def test_a_claim_that_does_not_exist_is_marked() -> None:
    """It is missing, or it was deleted after its pod got the cards."""
    made, gone = state("n1"), gpu_claim("gone")
    missing = explained(made, claiming("a", gone))
    assert explanation_tables.claim(missing) == "gone, which does not exist"
    assert explanation_tables.sentence(missing).startswith("pod default/a waits: GpuClaimNotFound: GpuClaim gone does")
    made.set_pod(runs := running("b", gone, node="n1"))
    assert explanation_tables.claim(explained(made, runs)) == "gone (Exclusive), which was deleted"
    assert explanation_tables.claim(explained(made, pod("c", memory=1))) == ""


def test_every_row_has_a_meaning() -> None:
    """Nodes that are excluded as a whole have one too: a taint, too little CPU, a silent agent, a stray pod."""
    clock = Clock()
    made = state("n1", "n2", "n3", "n4", "n5", clock=clock)
    taint = {"key": "a", "value": "b", "effect": "NoSchedule"}
    made.set_node(node("n1", spec={"taints": [taint]}))
    made.set_node(node("n2", status={"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "9"}}))
    made.set_lease(lease("n3"))
    clock.now += 61
    made.set_pod(pod("stray", memory=10, node="n4", phase="Running"))
    made.set_pod(allocated("full", node="n5", memory=1000))
    limits = {"cpu": "2", "nvidia.com/gpu": "2", "nvidia.com/gpumem": "1"}
    explanation = explained(made, pod("a", containers=[{"name": "main", "resources": {"limits": limits}}]))
    rows = explanation_tables.of_nodes(explanation).rows
    assert {row[1].partition(":")[0].partition(" ")[0] for row in rows} >= {
        *("NodeTainted", "NodeInsufficientResource", "AgentSilent", "UncountedPod"),
    }
    for row in rows:
        assert row[3] != "see the reason itself"
        assert row[3]


def test_held_pod_has_no_table_of_nodes() -> None:
    """Only another spec helps, so nodes that could take the pod would mislead."""
    explanation = explained(state("n1", "n2"), pod("a", memory=100, resourceClaims=[{"name": "claim"}]))
    assert (explanation.outcome, explanation.nodes, explanation.reasons) == ("held", (), ())
    assert explanation_tables.sentence(explanation).startswith(
        "pod default/a PodHeld: spec.resourceClaims is not evaluated"
    )


def test_redacted_cards_have_no_free_amounts() -> None:
    """The cards have model, size and verdict, but no free amounts and no score."""
    made = state("n1")
    made.set_pod(allocated("runs", node="n1", memory=700))
    explanation = redaction.of_explanation(explained(made, pod("a", memory=600)))
    table = explanation_tables.of_cards(explanation.nodes[0])
    assert table.headers == ("CARD", "UUID", "MODEL", "MEMORY(MiB)", "CONTAINER", "VERDICT", "MEANING")
    assert [row[5] for row in table.rows] == ["CardInsufficientMemory", "FITS,chosen"]
    assert explanation_tables.of_nodes(explanation).rows[0][3] == "would go here"
