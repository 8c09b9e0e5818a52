"""Inventory by NVML, against a library with NVML's binary interface."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import pytest

from agent.nvml_source import NvmlSource
from agent.report import DeviceReport, NodeReport
from agent.settings import AgentSettings
from tests.agent.conftest import DEADLINE_S, Clock
from tests.nvml.stub import (
    DRIVER_NOT_LOADED,
    GPU_IS_LOST,
    MIB,
    NOT_SUPPORTED,
    UNKNOWN,
    Hardware,
    StubCard,
    cards,
)

CARD_FUNCTIONS = (
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetName",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetNumaNodeId",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetTotalEccErrors",
    "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetNvLinkRemoteDeviceType",
    "nvmlDeviceGetNvLinkRemotePciInfo_v2",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetSupportedEventTypes",
    "nvmlDeviceRegisterEvents",
    "*",
)
REQUIRED = frozenset(("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo", "*"))


class Source:
    """A source under a clock of its own, and whether it asked to be read."""

    def __init__(self, stack: ExitStack, settings: AgentSettings) -> None:
        self.clock = Clock()
        self.woken = Event()
        self.nvml = stack.enter_context(NvmlSource(node="n1", settings=settings, wake=self.woken.set, clock=self.clock))

    def report(self) -> NodeReport:
        """Read once."""
        return self.nvml.read()["n1"]

    def devices(self) -> dict[str, DeviceReport]:
        """Read once and answer the devices by UUID."""
        return {device.card.uuid: device for device in self.report().devices}

    def messages(self) -> dict[str, str]:
        """Read once and answer each card's message."""
        return {uuid: device.message for uuid, device in self.devices().items()}

    def await_wake(self) -> None:
        """Wait until it asks to be read."""
        assert self.woken.wait(DEADLINE_S)
        self.woken.clear()


@pytest.fixture
def source(hardware: Hardware, tmp_path: Path) -> Iterator[Callable[..., Source]]:
    """Open sources with settings of one's own."""
    with ExitStack() as stack:
        yield lambda **settings: Source(stack, AgentSettings(**{"sysfs": str(tmp_path / "sys"), **settings}))


def _linked(card: StubCard, *remotes: str, kind: str = "gpu", mbps: int = 26562) -> StubCard:
    card.lines += [f"link {number} {kind} {remote} {mbps}" for number, remote in enumerate(remotes)]
    return card


def _sysfs(folder: Path, address: str, node: str) -> None:
    place = folder / "sys" / "bus" / "pci" / "devices" / address
    place.mkdir(parents=True)
    (place / "numa_node").write_text(node)


def test_a_card_is_reported_as_nvml_describes_it(hardware: Hardware, source: Callable[..., Source]) -> None:
    """UUID, index, model, slots and the driver arrive; memory is all of it, in whole MiB, rounded down."""
    hardware.has(StubCard("GPU-a", name="NVIDIA L4", memory=24 * MIB * 1024 - 1), StubCard("GPU-b"))
    report = source(slots=4).report()
    assert report.driver_version == "570.86.15"
    card = report.devices[0].card
    assert (card.uuid, card.index, card.model, card.memory_mib) == ("GPU-a", 0, "NVIDIA L4", 24 * 1024 - 1)
    assert (card.cores, card.slots, card.mode, card.healthy) == (1000, 4, "hami-core", True)
    assert report.devices[1].card.index == 1


def test_numa_is_the_kernels_and_else_the_drivers(
    hardware: Hardware, source: Callable[..., Source], tmp_path: Path
) -> None:
    """The kernel knows the CPUs next to a card; NVML is asked where it does not, and -1 means 0."""
    hardware.has(*cards(4))
    _sysfs(tmp_path, "0000:10:00.0", "1\n")
    _sysfs(tmp_path, "0000:11:00.0", "-1\n")
    hardware.cards[1].numa = 3
    hardware.cards[2].numa = -1
    hardware.cards[3].lines.append(f"error nvmlDeviceGetNumaNodeId {NOT_SUPPORTED}")
    hardware.write()
    assert [device.card.numa for device in source().report().devices] == [1, 3, 0, 0]


def test_islands_and_bandwidth(hardware: Hardware, source: Callable[..., Source]) -> None:
    """Direct links make islands; bandwidth is their sum in one direction; a card without links has neither."""
    first, second, third, alone = cards(4)
    hardware.has(
        _linked(first, second.pci, second.pci, mbps=25781),
        _linked(second, first.pci, first.pci, third.pci, mbps=25781),
        _linked(third, second.pci, mbps=25781),
        alone,
    )
    assert [(device.island, device.bandwidth_gbps) for device in source().report().devices] == [
        ("nvlink-0", 51),
        ("nvlink-0", 77),
        ("nvlink-0", 25),
        ("", 0),
    ]


@pytest.mark.parametrize("old", [False, True])
def test_switched_cards_are_one_island(hardware: Hardware, source: Callable[..., Source], old: bool) -> None:  # noqa: FBT001
    """An NVSwitch joins all its cards, also with a driver that tells neither its type nor each link's speed."""
    hardware.has(*(_linked(card, *["00000000:C0:00.0"] * 18, kind="switch") for card in cards(8)))
    if old:
        for card in hardware.cards:
            card.lines += ["fields old", "error nvmlDeviceGetNvLinkRemoteDeviceType 13"]
        hardware.write()
    devices = source().report().devices
    assert {(device.island, device.bandwidth_gbps) for device in devices} == {("nvlink-0", 478)}


def test_a_card_in_mig_mode_is_not_shared(hardware: Hardware, source: Callable[..., Source]) -> None:
    """No container could use it as a whole, so it is reported with its mode and kept from placements."""
    hardware.has(*cards(2))
    hardware.cards[0].lines.append("mig 1")
    hardware.write()
    sliced, whole = source().report().devices
    assert (sliced.card.mode, sliced.card.healthy) == ("mig", False)
    assert sliced.message == "the card is in MIG mode: it cannot be shared as a whole"
    assert whole.card.healthy


def test_a_card_may_be_reported_larger_than_it_is(hardware: Hardware, source: Callable[..., Source]) -> None:
    """Memory and cores are scaled and rounded down; a card in MIG mode has what it has."""
    hardware.has(*cards(2))
    hardware.cards[0].lines.append("mig 1")
    hardware.write()
    sliced, whole = source(memory_scaling=1.7, core_scaling=1.5).report().devices
    assert (sliced.card.memory_mib, sliced.card.cores) == (81559, 1000)
    assert (whole.card.memory_mib, whole.card.cores) == (81559 * 17 // 10, 1500)


def test_without_nvml_there_are_no_cards_and_a_warning(
    hardware: Hardware, source: Callable[..., Source], caplog: pytest.LogCaptureFixture
) -> None:
    """A node without a working driver has 0 cards; the warning comes once, and the driver is found when it comes."""
    hardware.has(*cards(1))
    hardware.lines.append(f"error nvmlInitWithFlags {DRIVER_NOT_LOADED}")
    hardware.write()
    opened = source()
    for _ in range(2):
        assert opened.report() == NodeReport("n1")
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == ["NVML of node n1: it cannot be used: nvmlInit: Driver Not Loaded"]
    hardware.lines.clear()
    hardware.write()
    assert opened.messages() == {"GPU-0": ""}


def test_no_error_of_one_card_touches_the_others(hardware: Hardware, source: Callable[..., Source]) -> None:
    """Whatever function fails for one card in whatever way, the others are reported as before, and it is not lost.

    It is unhealthy when it says that it is lost, or when not even its identity and memory can be read; what else cannot
    be read stays as it was.
    """
    first, second, third = cards(3)
    hardware.has(
        _linked(first, second.pci, third.pci),
        _linked(second, first.pci, third.pci),
        _linked(third, first.pci, second.pci),
    )
    opened = source(quiet_seconds=0.001)
    before = opened.devices()
    healthy_lines = list(second.lines)
    for function in CARD_FUNCTIONS:
        for code in (GPU_IS_LOST, NOT_SUPPORTED, UNKNOWN, 1, 16):
            second.lines = [*healthy_lines, f"error {function} {code}"]
            hardware.write()
            after = opened.devices()
            place = f"{function} {code}"
            assert {uuid: after[uuid] for uuid in ("GPU-0", "GPU-2")} == {
                uuid: before[uuid] for uuid in ("GPU-0", "GPU-2")
            }, place
            now = after["GPU-1"]
            assert (now.card.index, now.card.memory_mib) == (1, before["GPU-1"].card.memory_mib), place
            if function in REQUIRED:
                assert not now.card.healthy, place
            elif code in (UNKNOWN, 1):
                assert now == before["GPU-1"], place
            second.lines = healthy_lines
            hardware.write()
            opened.report()
            opened.clock.now += 1
            assert opened.devices() == before, place


@pytest.mark.parametrize("function", CARD_FUNCTIONS)
def test_a_card_that_was_bad_from_the_start_touches_no_other(
    hardware: Hardware, source: Callable[..., Source], function: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What was never readable is left out with a reason; the others have their own indexes; it joins when it can."""
    hardware.has(*cards(3))
    hardware.cards[1].lines.append(f"error {function} {UNKNOWN}")
    hardware.write()
    opened = source(quiet_seconds=5)
    devices = opened.devices()
    assert {uuid: devices[uuid].card.index for uuid in ("GPU-0", "GPU-2")} == {"GPU-0": 0, "GPU-2": 2}
    assert all(devices[uuid].card.healthy for uuid in ("GPU-0", "GPU-2"))
    if function in REQUIRED:
        assert "GPU-1" not in devices
        assert "card at index 1: left out" in caplog.text
    hardware.cards[1].lines.clear()
    hardware.write()
    opened.clock.now += 5
    assert opened.messages() == {"GPU-0": "", "GPU-1": "", "GPU-2": ""}


def test_a_card_that_hangs_keeps_nobody_waiting(hardware: Hardware, source: Callable[..., Source]) -> None:
    """A driver call that never returns makes its own card unhealthy after a while, and is not repeated."""
    hardware.has(*cards(2))
    opened = source(probe_seconds=0.2, quiet_seconds=5)
    opened.report()
    hardware.cards[1].lines.append("hang nvmlDeviceGetMemoryInfo")
    hardware.write()
    for _ in range(2):
        assert opened.messages() == {"GPU-0": "", "GPU-1": "NVML has not answered for 0.2 s"}
    hardware.cards[1].lines.clear()
    hardware.write()
    opened.report()
    opened.clock.now += 5
    assert opened.messages() == {"GPU-0": "", "GPU-1": ""}


@pytest.mark.parametrize("uuid", ["GPU-0", "GPU-x,y"])
def test_a_card_that_lies_about_its_identity_is_left_out(
    hardware: Hardware, source: Callable[..., Source], uuid: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A UUID that another card has, or that would break an environment variable, never reaches the API server."""
    hardware.has(*cards(1), StubCard(uuid))
    assert opened_uuids(source()) == ["GPU-0"]
    assert "card at index 1: left out" in caplog.text


def opened_uuids(opened: Source) -> list[str]:
    """Read once and answer the UUIDs."""
    return [device.card.uuid for device in opened.report().devices]


def test_a_lost_card_stays_known_and_comes_back(hardware: Hardware, source: Callable[..., Source]) -> None:
    """A card that has left the bus is unhealthy under its last identity; after a quiet period it is healthy again."""
    hardware.has(*cards(3))
    opened = source(quiet_seconds=60)
    before = opened.devices()
    gone = hardware.cards.pop(1)
    hardware.write()
    lost = opened.devices()["GPU-1"]
    assert lost.message == "nvmlDeviceGetHandleByIndex: GPU is lost"
    assert not lost.card.healthy
    assert msgspec.structs.replace(lost.card, healthy=True) == before["GPU-1"].card
    opened.clock.now += 60
    after = opened.devices()  # by a new nvmlInit, which does not list it, and has moved up the last card
    assert after["GPU-1"].message == "NVML does not list the card any more"
    assert (after["GPU-2"].card.index, after["GPU-1"].card.index) == (1, 2)
    hardware.cards.insert(1, gone)
    hardware.write()
    opened.clock.now += 60
    assert opened.messages()["GPU-1"] == "NVML does not list the card any more"
    opened.clock.now += 60
    assert opened.devices() == before


def test_all_cards_lost_and_back(hardware: Hardware, source: Callable[..., Source]) -> None:
    """When the driver goes away every card is unhealthy and none is forgotten; all of them come back."""
    hardware.has(*cards(8))
    opened = source(quiet_seconds=60)
    before = opened.devices()
    hardware.lines.append(f"error * {DRIVER_NOT_LOADED}")
    hardware.write()
    for _ in range(2):
        devices = opened.devices()
        assert devices.keys() == before.keys()
        assert not any(device.card.healthy for device in devices.values())
        opened.clock.now += 60
    hardware.lines.clear()
    hardware.write()
    opened.report()
    opened.clock.now += 60
    assert opened.devices() == before


def test_a_card_that_needs_a_reset_is_unhealthy_until_it_got_one(
    hardware: Hardware, source: Callable[..., Source]
) -> None:
    """No quiet period helps a card for which the driver asks for a reset."""
    hardware.has(*cards(2))
    opened = source(quiet_seconds=60)
    hardware.cards[0].lines.append("recovery 1")
    hardware.write()
    for _ in range(3):
        opened.clock.now += 60
        assert opened.messages() == {"GPU-0": "the driver asks for a reset of the card", "GPU-1": ""}
    hardware.cards[0].lines.clear()
    hardware.write()
    opened.report()
    opened.clock.now += 60
    assert opened.messages() == {"GPU-0": "", "GPU-1": ""}


def test_uncorrected_errors_mark_their_card(hardware: Hardware, source: Callable[..., Source]) -> None:
    """An increase of volatile uncorrected ECC errors is trouble of that card alone."""
    hardware.has(*cards(2))
    hardware.cards[0].lines = ["ecc 2"]
    hardware.write()
    opened = source(quiet_seconds=60)
    assert opened.messages() == {"GPU-0": "", "GPU-1": ""}
    hardware.cards[0].lines = ["ecc 3"]
    hardware.write()
    assert opened.messages() == {"GPU-0": "3 uncorrected ECC errors, 2 before", "GPU-1": ""}
    opened.clock.now += 60
    assert opened.messages() == {"GPU-0": "", "GPU-1": ""}


@pytest.mark.parametrize(("event", "message"), [("xid 79", "XID 79"), ("dbe 0", "double-bit ECC error")])
def test_a_critical_event_asks_to_be_read(
    hardware: Hardware, source: Callable[..., Source], event: str, message: str
) -> None:
    """The driver's word is not left waiting for the next regular reading; the card recovers after a quiet period."""
    hardware.has(*cards(3))
    opened = source(quiet_seconds=60)
    opened.report()
    hardware.cards[1].lines.append(f"event 1 {event}")
    hardware.write()
    opened.await_wake()
    assert opened.messages() == {"GPU-0": "", "GPU-1": message, "GPU-2": ""}
    opened.clock.now += 60
    assert opened.messages() == {"GPU-0": "", "GPU-1": "", "GPU-2": ""}


def test_ignored_xids_are_configurable(hardware: Hardware, source: Callable[..., Source]) -> None:
    """Who trusts a card after some XID says so, and who mistrusts an application's likewise."""
    hardware.has(*cards(2))
    opened = source(ignored_xids=(79,))
    opened.report()
    hardware.cards[0].lines.append("event 1 xid 79")
    hardware.cards[1].lines.append("event 2 xid 13")
    hardware.write()
    opened.await_wake()
    messages: dict[str, str] = {}
    while not messages.get("GPU-1"):
        messages = opened.messages()
        if not messages["GPU-1"]:
            opened.await_wake()
    assert messages == {"GPU-0": "", "GPU-1": "XID 13"}


def test_a_card_that_joins_later_is_watched_too(hardware: Hardware, source: Callable[..., Source]) -> None:
    """Events of a card that could not be read at first are seen once it can."""
    hardware.has(*cards(2))
    hardware.cards[1].lines = [f"error nvmlDeviceGetMemoryInfo {UNKNOWN}"]
    hardware.write()
    opened = source()
    assert opened.messages() == {"GPU-0": ""}
    hardware.cards[1].lines.clear()
    hardware.write()
    assert opened.messages() == {"GPU-0": "", "GPU-1": ""}
    hardware.cards[1].lines.append("event 1 xid 79")
    hardware.write()
    opened.await_wake()
    assert opened.messages() == {"GPU-0": "", "GPU-1": "XID 79"}


def test_a_wait_that_fails_leads_to_a_look(
    hardware: Hardware, source: Callable[..., Source], caplog: pytest.LogCaptureFixture
) -> None:
    """NVML answers a wait with an error when a card is lost: the cards are looked at, the failure is logged once."""
    hardware.has(*cards(2))
    opened = source()
    opened.report()
    hardware.lines.append(f"error nvmlEventSetWait_v2 {GPU_IS_LOST}")
    hardware.write()
    opened.await_wake()
    assert opened.messages() == {"GPU-0": "", "GPU-1": ""}
    assert caplog.text.count("waiting for critical events failed") == 1


def test_equal_hardware_gives_equal_reports(hardware: Hardware, source: Callable[..., Source]) -> None:
    """Nothing in a report depends on when it was read: what has not changed is not written again."""
    first, second = cards(2)
    hardware.has(_linked(first, second.pci), _linked(second, first.pci))
    opened = source()
    report: Any = opened.report()
    opened.clock.now += 1000
    assert opened.report() == report
