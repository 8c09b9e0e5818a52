"""When the alerts about the scheduler, queues and quotas fire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.alerts.case import INFO, Case, Series, buckets

if TYPE_CHECKING:
    from collections.abc import Mapping


def _scheduling(bounds: Mapping[str, int]) -> Series:
    return buckets("tranche_scheduler_scheduling_seconds", 'path="full",', bounds)


SCHEDULER = (
    Case(
        "TrancheNoLeader",
        2,
        {INFO: "1x40", 'tranche_scheduler_leading{pod="s1"}': "0x40"},
        ({INFO: "1x40", 'tranche_scheduler_leading{pod="s1"}': "0x40", 'tranche_scheduler_leading{pod="s2"}': "1x40"},),
        "No scheduler leads; GPU pods stay pending.",
    ),
    Case(
        "TrancheLeadershipChanges",
        6,
        {"tranche_scheduler_terms_total": "0+1x40"},
        ({"tranche_scheduler_terms_total": "0+1x5 5x35"},),
        "The leading scheduler changes often.",
    ),
    Case(
        "TrancheQueueStalled",
        6,
        {'tranche_scheduler_pods{state="active"}': "3x40", "tranche_scheduler_decisions_total": "7x40"},
        (
            {'tranche_scheduler_pods{state="active"}': "3x40", "tranche_scheduler_decisions_total": "0+1x40"},
            {
                'tranche_scheduler_pods{state="active"}': "0x40",
                'tranche_scheduler_pods{state="unschedulable"}': "9x40",
                "tranche_scheduler_decisions_total": "7x40",
            },
        ),
        "Pods are active in the queue, but none is scheduled.",
    ),
    Case(
        "TrancheDecisionsSlow",
        11,
        _scheduling({"0.05": 0, "0.25": 10, "+Inf": 10}),
        (_scheduling({"0.05": 10, "0.25": 10, "+Inf": 10}),),
        "One scheduling decision in a hundred takes at least 248ms.",
    ),
    Case(
        "TrancheBindingsFail",
        15,
        {'tranche_scheduler_bind_errors_total{kind="unknown"}': "0+7x40"},
        (
            {
                'tranche_scheduler_bind_errors_total{kind="refused"}': "0+2x40",
                'tranche_scheduler_bind_errors_total{kind="gone"}': "0+60x40",
            },
        ),
        "Bindings fail: unknown.",
        labels={"kind": "unknown"},
    ),
    Case(
        "TrancheFenced",
        1,
        {'tranche_scheduler_bind_errors_total{kind="fenced"}': "0 1x40"},
        (
            {
                'tranche_scheduler_bind_errors_total{kind="fenced"}': "1x40",
                'tranche_scheduler_bind_errors_total{kind="refused"}': "0+1x40",
            },
        ),
        "A scheduler that no longer leads tried to bind.",
    ),
    Case(
        "TrancheKubeSchedulerSilent",
        2,
        {"tranche_kube_scheduler_up": "0x40"},
        ({"tranche_kube_scheduler_up": "0 0 1 0 0 1x40"}, {INFO: "1x40"}),
        "No kube-scheduler places pods with resourceClaims; they stay pending.",
    ),
    Case(
        "TrancheLedgerDiffers",
        1,
        {'tranche_scheduler_ledger_differences_total{kind="cards"}': "0 1x40"},
        ({'tranche_scheduler_ledger_differences_total{kind="cards"}': "1x40"},),
        "The scheduler's ledger disagreed with its pods, and was repaired; this is a bug.",
    ),
    Case(
        "TrancheLedgerDiffersAgain",
        2,
        {'tranche_scheduler_ledger_differences_total{kind="cards"}': "0 1 2x40"},
        ({'tranche_scheduler_ledger_differences_total{kind="cards"}': "0 5x40"},),
        "The scheduler's ledger disagrees with its pods again and again, and is repaired each time.",
    ),
    Case(
        "TranchePodsHeld",
        15,
        {'tranche_scheduler_waiting_pods{reason="PodHeld"}': "2x40"},
        (
            {
                'tranche_scheduler_waiting_pods{reason="PodHeld"}': "0x40",
                'tranche_scheduler_waiting_pods{reason="QueueSuspended"}': "5x40",
            },
        ),
        "Pods that cannot be placed unless their spec changes: 2.",
    ),
    Case(
        "TrancheGangsPartial",
        10,
        {'tranche_scheduler_gangs{state="Partial"}': "2x40"},
        (
            {'tranche_scheduler_gangs{state="Partial"}': "1x9 0x1 1x9 0x20"},
            {'tranche_scheduler_gangs{state="Partial"}': "0x40", 'tranche_scheduler_gangs{state="Waiting"}': "7x40"},
        ),
        "Gangs of which only some pods run, which wait for the others: 2.",
    ),
    Case(
        "TrancheSharesIdle",
        30,
        {"tranche_scheduler_idle_cards": "2.5x40"},
        ({"tranche_scheduler_idle_cards": "0.99x40"}, {"tranche_scheduler_idle_cards": "2x29 0 2x10"}),
        "Pods that have run no kernel for a while hold cards: 2.5 in total.",
    ),
    Case(
        "TrancheEventsDropped",
        1,
        {"tranche_scheduler_events_dropped_total": "0 1x40"},
        ({"tranche_scheduler_events_dropped_total": "1x40"},),
        "Events of decisions are dropped, because they cannot be written fast enough.",
    ),
)


def _queue(waiting: int, share: float) -> Series:
    return {
        'tranche_queue_waiting_pods{queue="team"}': f"{waiting}x40",
        'tranche_queue_share_ratio{queue="team",resource="nvidia.com/gpu"}': f"{share}x40",
        'tranche_queue_entitlement_ratio{queue="team"}': "0.5x40",
    }


def _quota(available: float) -> Series:
    labels = 'namespace="ml",quota="team"'
    return {
        f'tranche_quota_available_ratio{{{labels},resource="nvidia.com/gpu"}}': f"{available}x40",
        f"tranche_quota_alert_ratio{{{labels}}}": "0.1x40",
    }


FAIRNESS = (
    Case(
        "TrancheQueueUnderserved",
        30,
        _queue(3, 0.4),
        (_queue(0, 0.4), _queue(3, 0.5)),
        "Pods of GpuQueue team wait, and it has less than its entitlement.",
        labels={"queue": "team"},
    ),
    Case(
        "TrancheQueueMissing",
        5,
        {'tranche_missing_queue_namespaces{queue="gone"}': "2x40"},
        ({'tranche_missing_queue_namespaces{queue="gone"}': "0x40"},),
        "GpuQueue gone does not exist, so new GPU pods wait in the namespaces that name it: 2.",
        labels={"queue": "gone"},
    ),
    Case(
        "TrancheQuotaNearlyFull",
        5,
        _quota(0.05),
        (_quota(0.1),),
        "Of nvidia.com/gpu of GpuQuota ml/team 5% is left.",
        labels={"namespace": "ml", "quota": "team", "resource": "nvidia.com/gpu"},
    ),
)
