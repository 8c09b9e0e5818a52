"""Inventory from NVML, against a stub library with NVML's binary interface."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import pytest

from agent.nvml.source import NvmlSource
from agent.report import DeviceReport, NodeReport
from agent.settings import AgentSettings
from cluster.gpu_node_status import NodeProblem
from tests.agent.conftest import Clock
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
from tests.support.patience import PATIENCE_S

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
    "nvmlDeviceGetNvLinkVersion",
    "nvmlDeviceGetTopologyCommonAncestor",
    "nvmlDeviceGetSupportedEventTypes",
    "nvmlDeviceRegisterEvents",
    "*",
)
REQUIRED = frozenset(("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo", "*"))


class Source:
    """A source with a fake clock, and whether it asked for a reading."""

    def __init__(self, stack: ExitStack, settings: AgentSettings) -> None:
        self.clock = Clock()
        self.woken = Event()
        self.nvml = stack.enter_context(NvmlSource(node="n1", settings=settings, wake=self.woken.set, clock=self.clock))

    def report(self) -> NodeReport:
        """Read once."""
        return self.nvml.read()["n1"]

    def devices(self) -> dict[str, DeviceReport]:
        """Read once and return the devices by UUID."""
        return {device.card.uuid: device for device in self.report().devices}

    def messages(self) -> dict[str, str]:
        """Read once and return the message of each card."""
        return {uuid: device.message for uuid, device in self.devices().items()}

    def await_wake(self) -> None:
        """Wait until the source asks for a reading."""
        assert self.woken.wait(PATIENCE_S)
        self.woken.clear()


@pytest.fixture
def source(hardware: Hardware, tmp_path: Path) -> Iterator[Callable[..., Source]]:
    """Return a function that opens a source with the given settings."""
    with ExitStack() as stack:
        yield lambda **settings: Source(stack, AgentSettings(**{"sysfs": str(tmp_path / "sys"), **settings}))


def _linked(card: StubCard, *remotes: str, kind: str = "gpu", mbps: int = 26562) -> StubCard:
    card.lines += [f"link {number} {kind} {remote} {mbps}" for number, remote in enumerate(remotes)]
    return card


def _sysfs(folder: Path, address: str, node: str) -> None:
    place = folder / "sys" / "bus" / "pci" / "devices" / address
    place.mkdir(parents=True)
    (place / "numa_node").write_text(node)


def test_card_is_reported_as_nvml_describes_it(hardware: Hardware, source: Callable[..., Source]) -> None:
    """Memory is the total memory in whole MiB, rounded down."""
    hardware.has(StubCard("GPU-a", name="NVIDIA L4", memory=24 * MIB * 1024 - 1), StubCard("GPU-b"))
    report = source(slots=4).report()
    assert report.driver_version == "570.86.15"
    card = report.devices[0].card
    assert (card.uuid, card.index, card.model, card.memory_mib) == ("GPU-a", 0, "NVIDIA L4", 24 * 1024 - 1)
    assert (card.cores, card.slots, card.mode, card.healthy) == (1000, 4, "hami-core", True)
    assert report.devices[1].card.index == 1


def test_numa_node_comes_from_the_kernel_then_from_nvml(
    hardware: Hardware, source: Callable[..., Source], tmp_path: Path
) -> None:
    """NVML is the fallback where the kernel reports no node; -1 means that it is not known."""
    hardware.has(*cards(4))
    _sysfs(tmp_path, "0000:10:00.0", "1\n")
    _sysfs(tmp_path, "0000:11:00.0", "-1\n")
    hardware.cards[1].numa = 3
    hardware.cards[2].numa = -1
    hardware.cards[3].lines.append(f"error nvmlDeviceGetNumaNodeId {NOT_SUPPORTED}")
    hardware.write()
    assert [device.card.numa for device in source().report().devices] == [1, 3, -1, -1]


def test_direct_links_make_islands_and_bandwidth(hardware: Hardware, source: Callable[..., Source]) -> None:
    """The bandwidth is the sum of a card's links in one direction; a card without links has no island."""
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
def test_cards_of_a_switch_are_one_island(hardware: Hardware, source: Callable[..., Source], old: bool) -> None:  # noqa: FBT001
    """This holds also with a driver that reports neither the type of the switch nor the speed of each link."""
    hardware.has(*(_linked(card, *["00000000:C0:00.0"] * 18, kind="switch") for card in cards(8)))
    if old:
        for card in hardware.cards:
            card.lines += ["fields old", "error nvmlDeviceGetNvLinkRemoteDeviceType 13"]
        hardware.write()
    devices = source().report().devices
    assert {(device.island, device.bandwidth_gbps) for device in devices} == {("nvlink-0", 478)}


def test_scaling_multiplies_memory_and_cores_except_in_mig_mode(
    hardware: Hardware, source: Callable[..., Source]
) -> None:
    """The results are rounded down; a card in MIG mode is not scaled."""
    hardware.has(*cards(2))
    hardware.cards[0].lines.append("mig 1")
    hardware.write()
    sliced, whole = source(memory_scaling=1.7, core_scaling=1.5).report().devices
    assert (sliced.card.memory_mib, sliced.card.cores) == (81559, 1000)
    assert (whole.card.memory_mib, whole.card.cores) == (81559 * 17 // 10, 1500)


def test_missing_driver_is_logged_once_and_found_later(
    hardware: Hardware, source: Callable[..., Source], caplog: pytest.LogCaptureFixture
) -> None:
    """A node without a working driver has no cards until the driver works."""
    hardware.has(*cards(1))
    hardware.lines.append(f"error nvmlInitWithFlags {DRIVER_NOT_LOADED}")
    hardware.write()
    opened = source()
    for _ in range(2):
        assert opened.report() == NodeReport("n1", problem=NodeProblem("DriverMissing", "nvmlInit: Driver Not Loaded"))
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == ["NVML of node n1: not available: nvmlInit: Driver Not Loaded"]
    hardware.lines.clear()
    hardware.write()
    assert opened.messages() == {"GPU-0": ""}


def test_error_of_one_card_does_not_affect_the_others(hardware: Hardware, source: Callable[..., Source]) -> None:
    """Whichever function fails for one card, the other cards are reported as before, and the card itself stays.

    The card is unhealthy if it is lost, or if its identity and memory cannot be read; other values that cannot be read
    keep their previous value.
    """
    first, second, third = cards(3)
    hardware.has(
        _linked(first, second.pci, third.pci),
        _linked(second, first.pci, third.pci),
        _linked(third, first.pci, second.pci),
    )
    for card in hardware.cards:
        card.lines.append("topology 0 0 0 0")
    hardware.write()
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
def test_unreadable_card_is_left_out_and_joins_later(
    hardware: Hardware, source: Callable[..., Source], function: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log gives the reason, and the other cards keep their indexes."""
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


def test_hanging_card_does_not_block_the_others(hardware: Hardware, source: Callable[..., Source]) -> None:
    """A driver call that never returns makes only its own card unhealthy, and is not repeated."""
    hardware.has(*cards(2))
    opened = source(probe_seconds=0.2, quiet_seconds=5)
    opened.report()
    hardware.cards[1].lines.append("hang nvmlDeviceGetMemoryInfo")
    hardware.write()
    for _ in range(2):
        assert opened.messages() == {"GPU-0": "", "GPU-1": "NVML has not responded within 0.2 s"}
    hardware.cards[1].lines.clear()
    hardware.write()
    opened.report()
    opened.clock.now += 5
    assert opened.messages() == {"GPU-0": "", "GPU-1": ""}


@pytest.mark.parametrize("uuid", ["GPU-0", "GPU-x,y"])
def test_card_with_an_invalid_or_duplicate_uuid_is_left_out(
    hardware: Hardware, source: Callable[..., Source], uuid: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A UUID of another card, or one that would break an environment variable, never reaches the API server."""
    hardware.has(*cards(1), StubCard(uuid))
    assert opened_uuids(source()) == ["GPU-0"]
    assert "card at index 1: left out" in caplog.text


def opened_uuids(opened: Source) -> list[str]:
    """Read once and return the UUIDs."""
    return [device.card.uuid for device in opened.report().devices]


def test_lost_card_stays_reported_and_recovers(hardware: Hardware, source: Callable[..., Source]) -> None:
    """A card that has left the bus is unhealthy under its last identity; when it is back it recovers."""
    hardware.has(*cards(3))
    opened = source(quiet_seconds=60)
    before = opened.devices()
    gone = hardware.cards.pop(1)
    hardware.write()
    lost = opened.devices()["GPU-1"]
    assert lost.message == "nvmlDeviceGetHandleByIndex: GPU is lost"
    assert not lost.card.healthy
    assert not lost.missing  # the driver still lists it
    assert msgspec.structs.replace(lost.card, healthy=True) == before["GPU-1"].card
    opened.clock.now += 60
    after = opened.devices()  # after another nvmlInit, which does not list it and has moved the last card up
    assert after["GPU-1"].message == "NVML no longer lists the card"
    assert (after["GPU-2"].card.index, after["GPU-1"].card.index) == (1, 2)
    assert [uuid for uuid, device in after.items() if device.missing] == ["GPU-1"]
    hardware.cards.insert(1, gone)
    hardware.write()
    opened.clock.now += 60
    back = opened.devices()["GPU-1"]
    assert (back.message, back.missing) == ("NVML no longer lists the card", False)  # until it has been quiet
    opened.clock.now += 60
    assert opened.devices() == before


def test_no_card_is_missing_while_one_cannot_be_identified(hardware: Hardware, source: Callable[..., Source]) -> None:
    """One card is pulled, and the next one has its index now and cannot be opened: it may be either."""
    hardware.has(*cards(3))
    opened = source(quiet_seconds=60)
    opened.devices()
    assert not opened.report().incomplete
    del hardware.cards[1]
    hardware.cards[1].lines.append(f"error nvmlDeviceGetHandleByIndex_v2 {GPU_IS_LOST}")
    hardware.write()
    opened.devices()
    opened.clock.now += 60
    assert not any(device.missing for device in opened.devices().values())
    assert opened.report().incomplete


def test_a_card_that_was_never_readable_makes_the_report_incomplete(
    hardware: Hardware, source: Callable[..., Source]
) -> None:
    """An agent that starts then leaves it out, and says that the node may have more cards."""
    hardware.has(*cards(2))
    hardware.cards[1].lines.append(f"error nvmlDeviceGetHandleByIndex_v2 {GPU_IS_LOST}")
    hardware.write()
    report = source().report()
    assert [device.card.uuid for device in report.devices] == ["GPU-0"]
    assert report.status().incomplete is True


def test_a_driver_that_lists_no_card_misses_none(hardware: Hardware, source: Callable[..., Source]) -> None:
    """It has failed; whether the cards are there is unknown, so no pod loses its card by that."""
    hardware.has(*cards(2))
    opened = source(quiet_seconds=60)
    opened.devices()
    hardware.cards.clear()
    hardware.write()
    opened.devices()
    opened.clock.now += 60
    devices = opened.devices()  # after another nvmlInit
    assert {device.message for device in devices.values()} == {"NVML does not show the card"}
    assert not any(device.missing for device in devices.values())


def test_all_cards_are_lost_and_recover(hardware: Hardware, source: Callable[..., Source]) -> None:
    """While the driver is away every card is reported as unhealthy; all of them recover."""
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


def test_card_that_needs_a_reset_is_unhealthy_until_reset(hardware: Hardware, source: Callable[..., Source]) -> None:
    """The quiet period does not begin before the reset."""
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


def test_uncorrected_errors_make_their_card_unhealthy(hardware: Hardware, source: Callable[..., Source]) -> None:
    """An increase of volatile uncorrected ECC errors affects only that card."""
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
def test_critical_event_triggers_a_reading(
    hardware: Hardware, source: Callable[..., Source], event: str, message: str
) -> None:
    """The event does not wait for the next regular reading; the card recovers after a quiet period."""
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
    """An administrator may ignore further XIDs, or count those of applications."""
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


def test_events_of_a_card_that_joins_later_are_watched(hardware: Hardware, source: Callable[..., Source]) -> None:
    """A card that could not be read at first is watched once it can be read."""
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


def test_failed_wait_for_events_triggers_a_reading(
    hardware: Hardware, source: Callable[..., Source], caplog: pytest.LogCaptureFixture
) -> None:
    """The wait fails when a card is lost: the cards are read, and the failure is logged once."""
    hardware.has(*cards(2))
    opened = source()
    opened.report()
    hardware.lines.append(f"error nvmlEventSetWait_v2 {GPU_IS_LOST}")
    hardware.write()
    opened.await_wake()
    assert opened.messages() == {"GPU-0": "", "GPU-1": ""}
    assert caplog.text.count("waiting for critical events failed") == 1


def test_unchanged_hardware_gives_equal_reports(hardware: Hardware, source: Callable[..., Source]) -> None:
    """A report does not depend on the time of the reading, so unchanged hardware is not written again."""
    first, second = cards(2)
    hardware.has(_linked(first, second.pci), _linked(second, first.pci))
    opened = source()
    report: Any = opened.report()
    opened.clock.now += 1000
    assert opened.report() == report
