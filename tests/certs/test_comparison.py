"""Every claim in the comparison of docs/certificates.md has a test."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TABLE = (ROOT.parent / "docs" / "certificates.md").read_text().partition("## Comparison")[2]
LINES = [line for line in TABLE.splitlines() if line.startswith("| ")][1:]


@pytest.mark.parametrize("line", LINES)
def test_every_claim_names_its_test(line: str) -> None:
    """Each row ends with tests that exist."""
    named = re.findall(r"`(\S*?)::(test_\w+)`", line)
    assert named
    file = ""
    for path, test in named:
        file = path or file
        folder = ROOT if "/" in file else ROOT / "certs"
        assert re.search(rf"^(async )?def {test}\(", (folder / file).read_text(), re.MULTILINE), f"{file}::{test}"
