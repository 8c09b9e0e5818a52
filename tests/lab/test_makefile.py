from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_help_lists_every_target() -> None:
    """`make help` lists every target of the Makefile with a description."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    rules = re.findall(r"^([a-z][a-z %-]*):", makefile, re.MULTILINE)
    targets = {target for rule in rules for target in rule.split()}
    done = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    listed = {line.split()[0] for line in done.stdout.splitlines() if len(line.split()) > 3}
    assert targets
    assert listed == targets
