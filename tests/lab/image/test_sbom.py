from __future__ import annotations

import json

from lab.image import sbom

STATUS = """\
Package: zlib1g
Version: 1:1.2.13.dfsg-1
Architecture: amd64
Description: library
 Package: not a field

Package: libc6
Version: 2.36-9+deb12u14

"""


def test_debian_packages_are_read_from_dpkgs_status() -> None:
    """Continuation lines are not fields."""
    assert list(sbom.debian_packages(STATUS)) == [("zlib1g", "1:1.2.13.dfsg-1"), ("libc6", "2.36-9+deb12u14")]


def test_components_have_package_urls() -> None:
    """Scanners match vulnerabilities by package URL; an epoch's colon is escaped."""
    document = sbom.bill(python=[("numpy", "2.4.6"), ("tranche", "0.1.0")], debian=sbom.debian_packages(STATUS))
    assert [each["purl"] for each in document["components"]] == [
        "pkg:pypi/numpy@2.4.6",
        "pkg:deb/debian/libc6@2.36-9+deb12u14",
        "pkg:deb/debian/zlib1g@1%3A1.2.13.dfsg-1",
    ]
    assert document["metadata"]["component"] == {"type": "container", "name": "tranche", "version": "0.1.0"}


def test_the_document_does_not_depend_on_order_or_time() -> None:
    """Two builds of equal contents have equal files."""
    python = [("b", "1"), ("a", "2")]
    first, second = (json.dumps(sbom.bill(python=each, debian=[])) for each in (python, python[::-1]))
    assert first == second
    assert "timestamp" not in first
