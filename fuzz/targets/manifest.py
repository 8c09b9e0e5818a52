"""Manifests that `kubectl gpu` reads and prints: a document that is written again has the same content."""

import msgspec

from cli.manifests import manifest
from cluster.manifest import UnreadableManifestError


def try_bytes(data: bytes) -> None:
    """Read `data` as a file and print it."""
    try:
        text = data.decode("utf-8-sig")
        documents = manifest.read(text)
    except (UnreadableManifestError, UnicodeDecodeError):
        return
    manifest.in_yaml(documents)
    for document in documents:
        if isinstance(document.content, dict):
            changed = msgspec.structs.replace(document, changed=True)
            again = manifest.read(manifest.in_yaml([changed]))
            assert [each.content for each in again] == [document.content]
