"""The process refuses to hand pods over where that cannot work, or where anybody could have pods bound."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--extender",), "in extender mode kube-scheduler has all pods; set it to hold"),
        (("--host=0.0.0.0",), "so kube-scheduler calls, and other hosts can reach host '0.0.0.0'"),
    ],
)
def test_pods_are_handed_over_on_loopback_in_loop_mode(flags: tuple[str, ...], expected: str) -> None:
    """The message names the setting, and what to do."""
    argv = (sys.executable, "-m", "scheduler", "--allocation-resource-claims=hand-over", *flags)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "allocation.resource_claims is hand-over" in done.stderr
    assert expected in done.stderr
