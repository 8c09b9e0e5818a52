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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "allocation: {topology: {unknown: maybe}}",
            "Invalid enum value 'maybe' - at `$.topology.unknown`, must be one of treat-as-worst, reject; known keys:",
        ),
        ("allocation: {node_policy: best}", "at `$.node_policy`, must be one of binpack, spread; known keys:"),
        ("allocation: {default_count: x}", "at `$.default_count`; known keys:"),
        ("allocation: {topology: {known: reject}}", "allocation.topology.unknown"),
    ],
)
def test_error_of_a_word_says_which_words_are_valid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    """It names the key, what it holds, and what it can hold."""
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(SystemExit):
        loaded("--config", str(file))
    assert message in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize("text", ["off", '"off"', "Off"])
def test_off_needs_no_quotes(tmp_path: Path, text: str) -> None:
    """YAML reads it as a boolean; where the key holds words it is one of them, in the file and as a flag."""
    file = tmp_path / "config.yaml"
    file.write_text(f"allocation: {{bindings: {{mode: {text}}}}}")
    assert loaded("--config", str(file)).allocation.bindings.mode == "off"
    assert loaded("--config", str(file), "--allocation-bindings-mode=required").allocation.bindings.mode == "required"
    file.write_text("scheduler: {loud: off}")
    assert loaded("--config", str(file)).own.loud is False


def test_nested_setting_has_a_flag() -> None:
    """Its name has all parts of the key's path."""
    assert loaded("--allocation-topology-unknown=reject").allocation.topology.unknown == "reject"
