"""`python -m tests.ui.typescript`: check the types in the comments of the page's modules, as `make check` does.

TypeScript is installed from its lock file into `node_modules`, once. Without npm the check is left out, but fails where
CI is set.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
LOCK = HERE / "package-lock.json"
INSTALLED = HERE / "node_modules" / ".installed-lock"
"""A copy of the lock file from which the packages there were installed."""


def main() -> int:
    """Return the exit code."""
    if not shutil.which("npm"):
        print("the types of the page are not checked: npm is not installed (on Debian: apt-get install npm)")
        return 1 if os.environ.get("CI") else 0
    wanted = LOCK.read_bytes()
    if not INSTALLED.exists() or INSTALLED.read_bytes() != wanted:
        print(f"installing TypeScript into {INSTALLED.parent}")
        # No package runs a program of its own while it is installed.
        install = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        if subprocess.run(install, cwd=HERE, stdout=subprocess.DEVNULL, check=False).returncode:
            print("TypeScript could not be installed: is the npm registry reachable?", file=sys.stderr)
            return 1
        INSTALLED.write_bytes(wanted)
    # From the root, so that errors name files as everywhere else.
    check = [HERE / "node_modules" / ".bin" / "tsc", "--project", HERE.relative_to(ROOT)]
    return subprocess.run(check, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
