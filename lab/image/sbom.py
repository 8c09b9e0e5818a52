"""`python3 sbom.py FILE`: write the software bill of materials of the image that this runs in; needs no other module.

The format is CycloneDX 1.6 (ECMA-424). Equal contents give equal bytes: components are sorted, and the document has
neither a timestamp nor a serial number, which the specification leaves optional.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DPKG_STATUS = Path("/var/lib/dpkg/status")
PRODUCT = "tranche"


def python_packages() -> Iterator[tuple[str, str]]:
    """Yield the name and version of each installed Python package."""
    for distribution in importlib.metadata.distributions():
        yield distribution.metadata["Name"].lower(), distribution.version


def debian_packages(status: str) -> Iterator[tuple[str, str]]:
    """Yield the name and version of each package in dpkg's status file."""
    for paragraph in status.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and line[0] != " ")
        if "Package" in fields:
            yield fields["Package"], fields["Version"]


def bill(*, python: Iterable[tuple[str, str]], debian: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return the document; package URLs follow the purl specification."""
    versions = dict(sorted(python))
    own = versions.pop(PRODUCT, "")
    components = [
        *(_component(name, version, f"pkg:pypi/{name}@{version}") for name, version in versions.items()),
        *(
            _component(name, version, f"pkg:deb/debian/{name}@{quote(version, safe='.+~-')}")
            for name, version in sorted(set(debian))
        ),
    ]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": PRODUCT, "version": own}},
        "components": components,
    }


def _component(name: str, version: str, url: str) -> dict[str, str]:
    return {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url}


def main() -> None:
    """Write the document of this system to the file that the command line names."""
    status = DPKG_STATUS.read_text(encoding="utf-8") if DPKG_STATUS.exists() else ""
    document = bill(python=python_packages(), debian=debian_packages(status))
    Path(sys.argv[1]).write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
