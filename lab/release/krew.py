"""The manifest with which krew installs `kubectl gpu` from archives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.release.archive import Archive

PLUGIN = "gpu"
_SUMMARY = "Show, explain and simulate shares of GPUs"
_DESCRIPTION = (
    "Shows how much of each GPU is reserved in a cluster with Tranche, explains where pods are placed or why they wait,"
    " simulates manifests, checks a cluster before a switch to Tranche, and maintains cards and certificates."
)
_CAVEATS = (
    "explain and simulate ask the scheduler, which requires a bearer token. For completion in a shell see"
    " 'kubectl gpu completion --help'."
)


def manifest(archives: Sequence[Archive], *, url: str) -> str:
    """Return the manifest, in krew's format v1alpha2, for `archives` that `url` serves under their names.

    Raises:
        LabError: there is no archive, or they are of several versions.
    """
    versions = {each.version for each in archives}
    if len(versions) != 1:
        found = ", ".join(sorted(versions)) or "none"
        raise LabError("krew manifest", why=f"archives of one version are needed, found {found}", remedy="clean dist/")
    return str(
        yaml.safe_dump(
            {
                "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
                "kind": "Plugin",
                "metadata": {"name": PLUGIN},
                "spec": {
                    "version": f"v{versions.pop()}",
                    "shortDescription": _SUMMARY,
                    "description": _DESCRIPTION,
                    "caveats": _CAVEATS,
                    "platforms": [_platform(each, url.rstrip("/")) for each in archives],
                },
            },
            sort_keys=False,
            width=100,
        )
    )


def _platform(archive: Archive, url: str) -> dict[str, Any]:
    return {
        "selector": {"matchLabels": {"os": archive.os, "arch": archive.arch}},
        "uri": f"{url}/{archive.path.name}",
        "sha256": archive.sha256,
        "bin": archive.executable,
    }
