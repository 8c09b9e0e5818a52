from agent.health import CriticalEvent, Health, Probe

IGNORED = (13, 31, 43, 45, 68, 109)
WELL = Probe()


def _health() -> Health:
    return Health(quiet_seconds=60, ignored_xids=IGNORED)


def _xid(number: int, *, at: float) -> CriticalEvent:
    return CriticalEvent("GPU-a", "xid", at=at, xid=number)


def test_a_critical_xid_marks_its_card_until_it_was_quiet() -> None:
    """The way back: a quiet period after the last trouble, in which every look at the card succeeds."""
    health = _health()
    assert health.judge("GPU-a", WELL, now=0) == ""
    assert health.take(_xid(79, at=10))
    assert health.judge("GPU-a", WELL, now=10) == "XID 79"
    assert health.judge("GPU-b", WELL, now=10) == ""
    assert health.judge("GPU-a", WELL, now=69) == "XID 79"
    assert health.take(_xid(48, at=69.5))
    assert health.judge("GPU-a", WELL, now=70) == "XID 48"
    assert health.judge("GPU-a", WELL, now=129.5) == ""
    assert health.judge("GPU-a", WELL, now=130) == ""


def test_an_applications_xid_says_nothing_of_the_card() -> None:
    """A program that faults must not take a card from everybody else."""
    health = _health()
    for number in IGNORED:
        assert not health.take(_xid(number, at=0))
    assert health.judge("GPU-a", WELL, now=0) == ""


def test_an_event_before_the_first_look_counts() -> None:
    """Events and looks come from different threads; none is lost by their order."""
    health = _health()
    health.take(_xid(79, at=5))
    assert health.judge("GPU-a", WELL, now=5) == "XID 79"


def test_a_double_bit_error_marks() -> None:
    """A double-bit error is critical whatever XIDs are ignored."""
    health = _health()
    health.take(CriticalEvent("GPU-a", "double-bit-ecc", at=0))
    assert health.judge("GPU-a", WELL, now=0) == "double-bit ECC error"


def test_uncorrected_errors_mark_when_they_grow() -> None:
    """What was counted before the agent came is no news; an increase is; a reset of the count is not."""
    health = _health()
    assert health.judge("GPU-a", Probe(uncorrected=7), now=0) == ""
    assert health.judge("GPU-a", Probe(uncorrected=None), now=1) == ""
    assert health.judge("GPU-a", Probe(uncorrected=8), now=2) == "8 uncorrected ECC errors, 7 before"
    assert health.judge("GPU-a", Probe(uncorrected=8), now=62) == ""
    assert health.judge("GPU-a", Probe(uncorrected=0), now=63) == ""
    assert health.judge("GPU-a", Probe(uncorrected=1), now=64) == "1 uncorrected ECC errors, 0 before"


def test_a_failing_probe_marks_and_starts_the_quiet_anew() -> None:
    """A card that answers now and then stays unhealthy: the quiet begins with the first look that succeeds."""
    health = _health()
    assert health.judge("GPU-a", Probe("GPU is lost"), now=0) == "GPU is lost"
    assert health.judge("GPU-a", WELL, now=50) == "GPU is lost"
    assert health.judge("GPU-a", Probe("no answer"), now=70) == "no answer"
    assert health.judge("GPU-a", WELL, now=130) == "no answer"
    assert health.judge("GPU-a", WELL, now=189) == "no answer"
    assert health.judge("GPU-a", WELL, now=190) == ""
