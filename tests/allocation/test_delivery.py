"""Which delivery a container toolkit supports, and which combinations cannot work (NVIDIA's toolkit 1.14 to 1.20)."""

import pytest

from allocation.delivery import Delivery, NodeDelivery, Toolkit, problem, supported

OPERATOR = "management.nvidia.com/gpu"


@pytest.mark.parametrize(
    ("toolkit", "expected"),
    [
        (None, "cdi"),
        (Toolkit("cdi", "1.18.0", OPERATOR), "cdi"),
        (Toolkit("jit-cdi", "1.20.1"), "cdi"),
        (Toolkit("auto", "1.15.0"), "cdi"),
        (Toolkit("auto", "1.14.6"), "env"),
        (Toolkit("legacy", "1.18.0"), "env"),
        (Toolkit("auto"), "cdi"),
        (Toolkit("auto", "v2.0.0"), "cdi"),
    ],
)
def test_toolkit_decides_how_cards_are_named(toolkit: Toolkit | None, expected: Delivery) -> None:
    """Qualified names work from 1.15 on in every mode but `legacy`; what the agent chooses itself always works."""
    assert supported(toolkit) == expected
    assert problem(NodeDelivery(supported(toolkit), toolkit)) is None


@pytest.mark.parametrize(
    ("node", "message", "remedy"),
    [
        (
            NodeDelivery("cdi", Toolkit("legacy", "1.17.8")),
            "toolkit 1.17.8 in mode legacy does not resolve CDI names",
            "agent.delivery to env",
        ),
        (NodeDelivery("cdi", Toolkit("auto", "1.14.6")), "does not resolve CDI names", "1.15"),
        (
            NodeDelivery("env", Toolkit("cdi", "1.18.0", OPERATOR)),
            "does not resolve bare UUIDs",
            "agent.delivery to cdi",
        ),
        (
            NodeDelivery("cdi", Toolkit("cdi", "1.18.0", accepts_variable=False)),
            "accept-nvidia-visible-devices-envvar-when-unprivileged is false",
            "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED",
        ),
        (NodeDelivery("nvidia-nri", has_nri_socket=False), "/var/run/nri/nri.sock", "cdi.nriPluginEnabled=true"),
        (NodeDelivery("nvfractions", has_nri_socket=False), "/var/run/nri/nri.sock", "kai-gpu-fractioning"),
        (NodeDelivery("nvfractions", Toolkit("legacy", "1.17.8")), "does not resolve CDI names", "1.15"),
    ],
)
def test_delivery_that_cannot_work_is_named_with_its_remedy(node: NodeDelivery, message: str, remedy: str) -> None:
    """The message says what the node does; the remedy is a setting or a flag."""
    found = problem(node)
    assert found is not None
    assert message in found.message
    assert remedy in found.remedy


@pytest.mark.parametrize(
    "node",
    [
        NodeDelivery("env"),
        NodeDelivery("nvidia-nri"),
        NodeDelivery("nvfractions"),
        NodeDelivery("nvfractions", Toolkit("cdi", "1.20.1", OPERATOR), has_nri_socket=True),
        NodeDelivery("nvidia-nri", Toolkit(accepts_variable=False), has_nri_socket=True),
        NodeDelivery("env", Toolkit("cdi", "1.17.8", "nvidia.com/gpu")),
    ],
)
def test_unknown_facts_close_no_node(node: NodeDelivery) -> None:
    """A setting is trusted unless the agent sees that it cannot work."""
    assert problem(node) is None
