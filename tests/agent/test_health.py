from agent.health import CriticalEvent, Health, Probe

IGNORED = (13, 31, 43, 45, 68, 109)
OK = Probe()


def _health() -> Health:
    return Health(quiet_seconds=60, ignored_xids=IGNORED)


def _xid(number: int, *, at: float) -> CriticalEvent:
    return CriticalEvent("GPU-a", "xid", at=at, xid=number)


def test_critical_xid_makes_card_unhealthy_until_quiet_period_ends() -> None:
    """It recovers after a quiet period that begins with its last error, in which every probe succeeds."""
    health = _health()
    assert health.evaluate("GPU-a", OK, now=0) == ""
    assert health.add_event(_xid(79, at=10))
    assert health.evaluate("GPU-a", OK, now=10) == "XID 79"
    assert health.evaluate("GPU-b", OK, now=10) == ""
    assert health.evaluate("GPU-a", OK, now=69) == "XID 79"
    assert health.add_event(_xid(48, at=69.5))
    assert health.evaluate("GPU-a", OK, now=70) == "XID 48"
    assert health.evaluate("GPU-a", OK, now=129.5) == ""
    assert health.evaluate("GPU-a", OK, now=130) == ""


def test_application_xid_does_not_affect_health() -> None:
    """A faulting program must not make a card unusable for others."""
    health = _health()
    for number in IGNORED:
        assert not health.add_event(_xid(number, at=0))
    assert health.evaluate("GPU-a", OK, now=0) == ""


def test_event_before_the_first_probe_counts() -> None:
    """Events and probes come from different threads; none is lost, whatever their order."""
    health = _health()
    health.add_event(_xid(79, at=5))
    assert health.evaluate("GPU-a", OK, now=5) == "XID 79"


def test_double_bit_error_makes_card_unhealthy() -> None:
    """A double-bit error is critical, whichever XIDs are ignored."""
    health = _health()
    health.add_event(CriticalEvent("GPU-a", "double-bit-ecc", at=0))
    assert health.evaluate("GPU-a", OK, now=0) == "double-bit ECC error"


def test_growing_count_of_uncorrected_errors_makes_card_unhealthy() -> None:
    """Errors from before the agent started do not count, nor does a reset of the counter; an increase does."""
    health = _health()
    assert health.evaluate("GPU-a", Probe(uncorrected=7), now=0) == ""
    assert health.evaluate("GPU-a", Probe(uncorrected=None), now=1) == ""
    assert health.evaluate("GPU-a", Probe(uncorrected=8), now=2) == "8 uncorrected ECC errors, 7 before"
    assert health.evaluate("GPU-a", Probe(uncorrected=8), now=62) == ""
    assert health.evaluate("GPU-a", Probe(uncorrected=0), now=63) == ""
    assert health.evaluate("GPU-a", Probe(uncorrected=1), now=64) == "1 uncorrected ECC errors, 0 before"


def test_quiet_period_begins_with_the_first_successful_probe() -> None:
    """A card that responds only now and then stays unhealthy."""
    health = _health()
    assert health.evaluate("GPU-a", Probe("GPU is lost"), now=0) == "GPU is lost"
    assert health.evaluate("GPU-a", OK, now=50) == "GPU is lost"
    assert health.evaluate("GPU-a", Probe("no response"), now=70) == "no response"
    assert health.evaluate("GPU-a", OK, now=130) == "no response"
    assert health.evaluate("GPU-a", OK, now=189) == "no response"
    assert health.evaluate("GPU-a", OK, now=190) == ""
