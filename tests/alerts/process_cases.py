"""When the alerts about nodes, admission, the API server and processes fire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.alerts.case import INFO, Case, Series, buckets

if TYPE_CHECKING:
    from collections.abc import Mapping


def _reviews(bounds: Mapping[str, int]) -> Series:
    return buckets("tranche_webhook_review_seconds", "", bounds)


def _requests(code: str, values: str) -> Series:
    return {f'tranche_api_requests_total{{job="tranche-scheduler",verb="GET",code="{code}"}}': values}


NODES = (
    Case(
        "TrancheNodesClosed",
        10,
        {'tranche_scheduler_closed_nodes{reason="UncountedPod"}': "2x40"},
        ({'tranche_scheduler_closed_nodes{reason="UncountedPod"}': "0x40"},),
        "Nodes that take no GPU pods because of UncountedPod: 2.",
        labels={"reason": "UncountedPod"},
    ),
    Case(
        "TrancheNodeLockStale",
        0,
        {"tranche_scheduler_node_lock_age_seconds": "601x40"},
        ({"tranche_scheduler_node_lock_age_seconds": "600x40"},),
        "The lock of a node with HAMi's device plugin is older than 10 minutes.",
    ),
    Case(
        "TrancheCardsUnhealthy",
        5,
        {'tranche_agent_cards{node="n1",health="unhealthy"}': "1x40"},
        (
            {
                'tranche_agent_cards{node="n1",health="unhealthy"}': "0x40",
                'tranche_agent_cards{node="n1",health="healthy"}': "8x40",
            },
        ),
        "Unhealthy cards of node n1: 1.",
        labels={"node": "n1"},
    ),
    Case(
        "TrancheNodeWithoutCards",
        5,
        {'tranche_agent_node_without_cards{node="n1",state="DriverMissing"}': "1x40"},
        ({'tranche_agent_node_without_cards{node="n1",state="DriverMissing"}': "0x40"},),
        "No card of node n1 can be used: DriverMissing.",
        labels={"node": "n1", "state": "DriverMissing"},
    ),
    Case(
        "TrancheNodesUnreported",
        10,
        {"tranche_scheduler_unreported_nodes": "2x40"},
        ({"tranche_scheduler_unreported_nodes": "0x40"},),
        "Nodes with the label of GPU nodes whose cards nothing reports: 2.",
    ),
    Case(
        "TrancheCardsBookedTwice",
        0,
        {'tranche_dra_foreign_allocations{state="double_booked"}': "1x40"},
        (
            {
                'tranche_dra_foreign_allocations{state="double_booked"}': "0x40",
                'tranche_dra_foreign_allocations{state="counted"}': "3x40",
            },
        ),
        "Cards that pods and ResourceClaims of another DRA driver have at the same time: 1.",
    ),
    Case(
        "TrancheHeartbeatLate",
        3,
        {'tranche_agent_last_heartbeat_timestamp_seconds{node="n1"}': "0x40"},
        ({'tranche_agent_last_heartbeat_timestamp_seconds{node="n1"}': "-120+60x40"},),
        "The agent of node n1 runs, but does not renew its heartbeat.",
        labels={"node": "n1"},
    ),
    Case(
        "TrancheInventoryUnreadable",
        16,
        {'tranche_agent_inventory_errors_total{instance="n1"}': "0+1x40"},
        ({'tranche_agent_inventory_errors_total{instance="n1"}': "0 1x40"},),
        "The agent at n1 cannot read its cards.",
        labels={"instance": "n1"},
    ),
    Case(
        "TranchePublishingFails",
        13,
        {'tranche_agent_publish_errors_total{reason="refused"}': "0+5x40"},
        ({'tranche_agent_publish_errors_total{reason="refused"}': "0+1x40"},),
        "Agents cannot publish their inventory: refused.",
        labels={"reason": "refused"},
    ),
)


def _certificates(leaf: int, authority: int) -> Series:
    metric = "tranche_webhook_certificate_expiry_seconds"
    return {
        f'{metric}{{certificate="leaf"}}': f"{leaf}x40",
        f'{metric}{{certificate="authority"}}': f"{authority}x40",
    }


OTHERS = (
    Case(
        "TrancheWebhookDown",
        2,
        {INFO: "1x40"},
        ({INFO: "1x40", 'tranche_webhook_reviews_total{outcome="mutated"}': "0x40"},),
        "No webhook is scraped; GPU pods in opted-in namespaces are refused.",
    ),
    Case(
        "TrancheAdmissionErrors",
        1,
        {'tranche_webhook_reviews_total{outcome="malformed"}': "0 1x40"},
        (
            {
                'tranche_webhook_reviews_total{outcome="error"}': "1x40",
                'tranche_webhook_reviews_total{outcome="refused"}': "0+5x40",
            },
        ),
        "Admission reviews failed.",
    ),
    Case(
        "TrancheAdmissionSlow",
        11,
        _reviews({"0.25": 0, "0.5": 10, "+Inf": 10}),
        (_reviews({"0.25": 10, "0.5": 10, "+Inf": 10}),),
        "One admission review in a hundred takes at least 497.5ms.",
    ),
    Case(
        "TrancheCertificateExpires",
        10,
        _certificates(172799, 1209600),
        (_certificates(172800, 1209600),),
        "The webhook's leaf certificate expires in 1d 23h 59m 59s.",
        labels={"certificate": "leaf"},
    ),
    Case(
        "TrancheCertificateExpires",
        10,
        _certificates(172800, 1209599),
        (_certificates(172800, 1209600),),
        "The webhook's authority certificate expires in 13d 23h 59m 59s.",
        labels={"certificate": "authority"},
    ),
    Case(
        "TrancheApiFails",
        11,
        {**_requests("5xx", "0+1x40"), **_requests("2xx", "0+9x40")},
        ({**_requests("5xx", "0+1x40"), **_requests("2xx", "0+24x40")},),
        "10% of the requests of tranche-scheduler to the API server fail.",
        labels={"job": "tranche-scheduler"},
    ),
    Case(
        "TrancheWatchSilent",
        0,
        {'tranche_watch_silent_seconds{job="tranche-agent",resource="pods"}': "181x40"},
        ({'tranche_watch_silent_seconds{job="tranche-agent",resource="pods"}': "180x40"},),
        "tranche-agent receives no watch events for pods.",
        labels={"job": "tranche-agent", "resource": "pods"},
    ),
    Case(
        "TrancheListsRepeat",
        11,
        {'tranche_watch_lists_total{job="tranche-agent",resource="pods",reason="lost"}': "0+1x40"},
        (
            {
                'tranche_watch_lists_total{job="tranche-agent",resource="pods",reason="lost"}': "0+1x10 10x30",
                'tranche_watch_lists_total{job="tranche-agent",resource="pods",reason="start"}': "0+1x40",
            },
        ),
        "tranche-agent lists pods repeatedly.",
        labels={"job": "tranche-agent", "resource": "pods"},
    ),
    Case(
        "TrancheProcessDown",
        10,
        {'up{job="monitoring/tranche-agent",instance="n1:9090"}': "0x40"},
        ({'up{job="monitoring/tranche-agent",instance="n1:9090"}': "1x40", 'up{job="other",instance="n1:1"}': "0x40"},),
        "Prometheus does not reach n1:9090 of monitoring/tranche-agent.",
        labels={"job": "monitoring/tranche-agent", "instance": "n1:9090"},
    ),
)
