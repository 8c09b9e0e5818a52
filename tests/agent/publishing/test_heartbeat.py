from agent.publishing.publisher import heartbeat


def test_heartbeat_has_holder_renewal_time_and_duration() -> None:
    """The scheduler needs these three to judge whether the agent is alive."""
    lease = heartbeat("n1", identity="agent-x", seconds=60, unix=1_700_000_000.25)
    assert lease["metadata"] == {"name": "agent-n1", "namespace": "tranche-system"}
    assert lease["spec"] == {
        "holderIdentity": "agent-x",
        "leaseDurationSeconds": 60,
        "renewTime": "2023-11-14T22:13:20.250000Z",
    }
