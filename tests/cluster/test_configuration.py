"""The configuration of a process from file and flags."""

from pathlib import Path

import msgspec
import pytest

from cluster.configuration import Configuration, load


class Own(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A process's own section."""

    loud: bool = False
    port: int = 1


class Other(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The section of a process that this one includes."""

    port: int = 2


def loaded(*argv: str) -> Configuration[Own]:
    """Load the configuration as a process does."""
    return load(argv, section="scheduler", settings=Own, prog="p", description="", others={"webhook": Other})


@pytest.mark.parametrize(
    ("argv", "expected"), [((), False), (("--loud",), True), (("--loud", "--port=3"), True), (("--loud=false",), False)]
)
def test_boolean_flag_needs_no_value(argv: tuple[str, ...], *, expected: bool) -> None:
    """`--extender` alone means true, and `--extender=false` overrides the file."""
    assert loaded(*argv).own.loud is expected


def test_section_of_an_included_process_is_read(tmp_path: Path) -> None:
    """It comes from the same file or from flags with its name, and its errors count here, too."""
    file = tmp_path / "config.yaml"
    file.write_text("webhook: {port: 5}\nscheduler: {port: 4}\n")
    made = loaded("--config", str(file))
    assert (made.own.port, made.others["webhook"].port) == (4, 5)
    assert loaded("--config", str(file), "--webhook-port=6").others["webhook"].port == 6
    file.write_text("webhook: {prot: 5}\n")
    with pytest.raises(SystemExit):
        loaded("--config", str(file))
