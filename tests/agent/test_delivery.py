"""What the agent finds out about the delivery of its node."""

from pathlib import Path

import pytest
import yaml

from agent import delivery
from agent.settings import AgentSettings
from allocation.delivery import DELIVERIES, NodeDelivery, Toolkit

ROOT = Path(__file__).parents[2]
OPERATOR = "usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml"
PACKAGE = "etc/nvidia-container-runtime/config.toml"
CDI = """
accept-nvidia-visible-devices-envvar-when-unprivileged = true
[nvidia-container-runtime]
mode = "cdi"
[nvidia-container-runtime.modes.cdi]
default-kind = "management.nvidia.com/gpu"
"""


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """The mounted root of a host without NVIDIA's software."""
    return tmp_path


def write(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def find(host: Path, **settings: object) -> NodeDelivery:
    """Return what the agent finds on the host."""
    return delivery.find(AgentSettings(host_root=str(host), **settings))  # type: ignore[arg-type]  # as a file has them


def test_every_delivery_can_be_reported() -> None:
    """The API server accepts the words of the CRD, and no others."""
    crd = yaml.safe_load((ROOT / "manifests/base/crds/gpunodestatuses.yaml").read_text(encoding="utf-8"))
    status = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    assert status["properties"]["delivery"]["properties"]["mode"]["enum"] == list(DELIVERIES)


def test_without_host_folders_the_default_applies(host: Path) -> None:
    """An agent without privileges reports `cdi` and no facts."""
    assert find(host) == NodeDelivery("cdi")
    assert find(host / "missing") == NodeDelivery("cdi")


def test_toolkit_of_the_operator_is_read_with_its_version(host: Path) -> None:
    """Its configuration comes before that of a package, and its command prints the version."""
    write(host / PACKAGE, '[nvidia-container-runtime]\nmode = "legacy"\n')
    write(host / OPERATOR, CDI)
    command = host / "usr/local/nvidia/toolkit/nvidia-ctk.real"
    write(command, "#!/bin/sh\necho NVIDIA Container Toolkit CLI version 1.18.0\n", mode=0o755)
    found = find(host)
    assert found == NodeDelivery("cdi", Toolkit("cdi", "1.18.0", "management.nvidia.com/gpu"))


def test_legacy_toolkit_gets_bare_uuids(host: Path) -> None:
    """The version is unknown if its command does not run here."""
    write(host / PACKAGE, '[nvidia-container-runtime]\nmode = "legacy"\n')
    assert find(host) == NodeDelivery("env", Toolkit("legacy"))


def test_refusal_of_the_variable_is_reported(host: Path) -> None:
    """The scheduler closes the node: containers without privileges would start without cards."""
    write(host / PACKAGE, "accept-nvidia-visible-devices-envvar-when-unprivileged = false\n")
    assert find(host) == NodeDelivery("cdi", Toolkit("auto", accepts_variable=False))


@pytest.mark.parametrize("text", ["mode = ", 'nvidia-container-runtime = "x"'])
def test_unreadable_toolkit_is_no_failure(host: Path, text: str) -> None:
    """The agent keeps reporting cards."""
    write(host / PACKAGE, text)
    assert find(host).mode == "cdi"


def test_setting_overrides_what_is_found(host: Path) -> None:
    """The facts are reported all the same, so that the scheduler can compare them."""
    write(host / OPERATOR, CDI)
    assert find(host, delivery="env") == NodeDelivery("env", Toolkit("cdi", "", "management.nvidia.com/gpu"))


def test_socket_for_nri_plugins_is_reported_if_its_folder_is_mounted(host: Path) -> None:
    """Unknown without the folder, absent without the socket."""
    assert find(host).has_nri_socket is None
    (host / "var/run/nri").mkdir(parents=True)
    assert find(host).has_nri_socket is False
    (host / "var/run/nri/nri.sock").touch()
    assert find(host).has_nri_socket is True
