"""Try the tests that failed in the last run again, alone: does the failure repeat, or is the test unstable?

A run of the whole suite starts real clusters on a machine with other work, and one race among thousands of tests would
fail it. CI accepts such a run only if very few tests failed, all others ran, and each of these passes several times in
a row. It names them, because an unstable test has a defect, of its own or of the product.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.support.durations import FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MOST: Final = 9
"""More failures than this, one in a thousand tests, are not tried again."""
TIMES: Final = 3


def failed(run: Mapping[str, Any]) -> list[str]:
    """Return the tests of a run that did not pass, in order.

    Raises:
        ValueError: the run says too little: it did not end, or too many tests failed.
    """
    if run["exit"] != pytest.ExitCode.TESTS_FAILED:
        raise ValueError(f"the run did not end with failed tests, but with exit status {run['exit']}")
    found = list(dict.fromkeys(each["test"] for each in run["phases"] if each.get("failed")))
    if not found:
        raise ValueError("the run failed outside its tests")
    if len(found) > MOST:
        raise ValueError(f"{len(found)} tests failed; no more than {MOST} are tried again")
    return found


def try_again(tests: Sequence[str], *, passes: Callable[[str], bool], report: Callable[[str], object]) -> bool:
    """Run each test several times, until one fails; return whether all passed, and report those that are unstable."""
    for test in tests:
        for number in range(1, TIMES + 1):
            if not passes(test):
                report(f"{test} failed again, in try {number} of {TIMES}")
                return False
    for test in tests:
        report(f"unstable: {test} failed in company and passed {TIMES} times alone; it needs a mend")
    return True


def _passes(test: str) -> bool:
    return subprocess.run([sys.executable, "-m", "pytest", "-q", test], check=False).returncode == 0


def main() -> int:
    """Try again what failed in the last run; return 1 if that fails, too, or if there is nothing to try."""
    try:
        tests = failed(json.loads(FILE.read_text(encoding="utf-8")))
    except FileNotFoundError:
        sys.stderr.write(f"error: {FILE} does not exist; run `make test` first\n")
        return 1
    except ValueError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0 if try_again(tests, passes=_passes, report=lambda line: sys.stdout.write(f"{line}\n")) else 1


if __name__ == "__main__":
    sys.exit(main())
