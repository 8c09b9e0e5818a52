"""Which shares are active, idle or unknown, from reservations and measurements."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from cluster.measurement import ContainerMeasurement, DeviceMeasurement, NodeMeasurement
from scheduler.measurements.collector import UseCollector
from scheduler.measurements.use_of_shares import NOT_READ, NOT_READ_SINCE, USES, ShareUse, UseOfShares
from tests.scheduler.support.builders import Clock, allocated, state

READ, IDLE, STALE = 60.0, 600.0, 240.0
CARD = "GPU-n1-0"


class Scene:
    """A node with one pod on its first card."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.state = state("n1")
        self.state.set_pod(allocated("a", node="n1", memory=250))
        self.use = UseOfShares(self.state.ledger, read_seconds=READ, idle_seconds=IDLE, clock=self.clock)

    def read(self, *containers: ContainerMeasurement, problem: str = "", age: float = 0.0, device: str = "") -> str:
        """Record a measurement and return the use of the pod's share."""
        devices = tuple(DeviceMeasurement(f"GPU-n1-{index}", 0, 0, 0, device) for index in range(2))
        self.use.record("n1", NodeMeasurement("n1", age, devices, containers, problem))
        return self.use.of("n1", "uid-a", CARD).use


def container(*, uid: str = "uid-a", device: str = CARD, inactive: float | None = 0.0) -> ContainerMeasurement:
    """Return what a container uses."""
    return ContainerMeasurement(uid, "ab" * 32, device, 2**20, None if inactive is None else 5, inactive)


def test_share_without_kernels_becomes_idle_and_active_again() -> None:
    """Whether it has processes or none; the time counts from when the share was first read."""
    on = Scene()
    assert on.read() == "active"
    on.clock.now += IDLE
    assert on.read() == "idle"
    assert on.use.of("n1", "uid-a", CARD).inactive_seconds == IDLE
    assert on.read(container(inactive=10.0)) == "active"
    assert on.use.of("n1", "uid-a", CARD).inactive_seconds == 10
    assert on.read(container(inactive=IDLE + 10)) == "active", "an earlier process says less than a later one"
    assert Scene().read(container(inactive=IDLE)) == "idle", "the agent knew the container before this leader"
    on.clock.now += IDLE
    assert on.read(container(inactive=IDLE)) == "idle"
    assert on.use.counts() == {"idle": 1}
    assert on.use.idle_cards == 0.25


def test_shares_and_idle_cards_are_exported() -> None:
    """Each use has a series, and a replica that reads nothing has none."""
    on, registry = Scene(), CollectorRegistry()
    on.read()
    on.clock.now += IDLE
    on.read()
    registry.register(UseCollector(lambda: on.use))
    values = {use: registry.get_sample_value("tranche_scheduler_shares", {"use": use}) for use in USES}
    assert values == {"active": 0, "idle": 1, "unknown": 0}
    assert registry.get_sample_value("tranche_scheduler_idle_cards") == 0.25
    assert list(UseCollector(lambda: None).collect()) == []


def test_unknown_is_neither_idle_nor_active() -> None:
    """On the whole node, on the card, of a process; and a share that was unknown is not idle at once."""
    on = Scene()
    assert on.use.of("n1", "uid-a", CARD).problem == NOT_READ
    on.read()
    on.clock.now += IDLE
    assert on.read(problem="no PID namespace") == "unknown"
    assert on.use.of("n1", "uid-a", CARD).problem == "no PID namespace"
    assert on.read() == "active"
    on.clock.now += IDLE
    assert on.read(device="the card is lost") == "unknown"
    assert on.use.of("n1", "uid-a", CARD).problem == "the card is lost"
    assert on.read(container(inactive=None)) == "unknown"
    assert on.use.counts() == {"unknown": 1}
    assert on.use.idle_cards == 0


def test_pod_that_was_placed_after_the_reading_is_unknown() -> None:
    """What was read says nothing about it: not that it uses nothing."""
    on = Scene()
    on.read(container())
    on.state.set_pod(allocated("b", node="n1", memory=250))
    assert on.use.of("n1", "uid-b", CARD) == ShareUse("unknown", problem=NOT_READ_SINCE)
    on.read(container())
    assert on.use.of("n1", "uid-b", CARD).use == "active"


def test_failed_reading_makes_nothing_unknown_before_the_last_one_is_old() -> None:
    """Or a lost request would begin the time of every share of the node again."""
    on = Scene()
    on.use.fail("n1", "the agent does not respond")
    assert on.use.of("n1", "uid-a", CARD).problem == "the agent does not respond"
    on.read()
    on.clock.now += STALE
    on.use.fail("n1", "the agent does not respond")
    assert on.use.of("n1", "uid-a", CARD).inactive_seconds == STALE
    on.clock.now += 1
    on.use.fail("n1", "the agent does not respond")
    assert on.use.of("n1", "uid-a", CARD).problem == "the agent does not respond"


def test_old_measurement_says_nothing_any_more() -> None:
    """Its age at the agent counts, too."""
    on = Scene()
    on.read(container())
    on.clock.now += STALE + 1
    share = on.use.of("n1", "uid-a", CARD)
    assert (share.use, share.containers, share.inactive_seconds) == ("unknown", (), None)
    assert "241 s old" in share.problem
    assert on.use.device("n1", CARD) is None
    assert on.read(container(), age=STALE + 1) == "unknown"


def test_card_that_the_agent_does_not_report_is_unknown() -> None:
    """An agent that measures other cards says nothing about this one."""
    on = Scene()
    on.use.record("n1", NodeMeasurement("n1"))
    assert on.use.of("n1", "uid-a", CARD).use == "unknown"


def test_only_pods_that_hold_the_card_are_kept() -> None:
    """What an agent says about others, and about cards that the node does not have, takes no memory."""
    on = Scene()
    on.read(container(uid="uid-b"), container(device="GPU-n1-1"), container())
    assert on.use.of("n1", "uid-a", CARD).containers == (container(),)
    for uid, card in (("uid-b", CARD), ("uid-a", "GPU-n1-1")):
        assert on.use.of("n1", uid, card) == ShareUse("unknown", problem=NOT_READ_SINCE)
    on.use.record("n1", NodeMeasurement("n1", devices=(DeviceMeasurement("GPU-x"),)))
    assert on.use.device("n1", "GPU-x") is None


def test_nodes_and_pods_that_are_gone_are_forgotten() -> None:
    """The counts follow the reservations at the next reading."""
    on = Scene()
    on.read()
    assert on.use.counts()["active"] == 1
    on.state.drop_pod(allocated("a", node="n1", memory=250))
    on.read()
    assert not on.use.counts()
    on.state.ledger.drop_node("n1")
    on.use.forget_nodes()
    assert on.use.of("n1", "uid-a", CARD).problem == NOT_READ


@given(st.lists(st.tuples(st.booleans(), st.one_of(st.none(), st.floats(0, 2000)), st.floats(0, 900)), max_size=20))
def test_each_share_has_one_use_and_inactivity_never_exceeds_what_was_seen(
    steps: list[tuple[bool, float | None, float]],
) -> None:
    """Whatever agents report, and in whatever order."""
    on = Scene()
    seen_from = on.clock.now
    for is_known, inactive, pause in steps:
        on.read(container(inactive=inactive), problem="" if is_known else "unknown")
        seen_from = min(seen_from, on.clock.now - (inactive or 0.0))
        share = on.use.of("n1", "uid-a", CARD)
        assert share.use in USES
        assert sum(on.use.counts().values()) == 1
        assert (share.inactive_seconds is None) == (share.use == "unknown")
        if share.inactive_seconds is not None:
            assert share.inactive_seconds <= on.clock.now - seen_from + 0.1
        on.clock.now += pause
