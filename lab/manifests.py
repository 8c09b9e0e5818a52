"""The project's own manifests, as an administrator applies them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from lab import kubectl
from lab.client import client
from lab.layout import Port

if TYPE_CHECKING:
    from lab.layout import Layout

ROOT = Path(__file__).resolve().parents[1] / "manifests"
DEMO = ROOT / "demo"
CANARY_PATH = "/canary"
_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where it was built


def install(layout: Layout) -> int:
    """Apply manifests/base and manifests/lab, and return the number of their objects.

    Unlike in a cluster where the processes are pods, the API server calls the webhook by address, and its canary as
    localhost.
    """
    objects = [each for folder in ("base", "lab") for each in build(layout, ROOT / folder)]
    for each in objects:
        if each["kind"] == "MutatingWebhookConfiguration":
            for webhook in each["webhooks"]:
                path = webhook["clientConfig"]["service"]["path"]
                host = "localhost" if path == CANARY_PATH else "127.0.0.1"
                webhook["clientConfig"] = {"url": f"https://{host}:{layout.port(Port.WEBHOOK)}{path}"}
    api = client(layout)
    for each in objects:
        if each["kind"] == "Namespace":
            api.until_deleted(each["metadata"]["name"])
    # Definitions first: custom resources can be created only once the API server serves them.
    definitions = [each for each in objects if each["kind"] == "CustomResourceDefinition"]
    kubectl.apply(layout, *definitions)
    api.until_established(*(each["metadata"]["name"] for each in definitions))
    kubectl.apply(layout, *(each for each in objects if each not in definitions))
    return len(objects)


def demo(name: str) -> dict[str, Any]:
    """Return a manifest of manifests/demo."""
    manifest: dict[str, Any] = yaml.safe_load((DEMO / f"{name}.yaml").read_text(encoding="utf-8"))
    return manifest


def build(layout: Layout, folder: Path) -> list[dict[str, Any]]:
    """Return the objects of a folder with a kustomization."""
    return read(kubectl.run(layout, "kustomize", str(folder)))


def read(text: str) -> list[dict[str, Any]]:
    """Return the objects of a YAML stream."""
    return [each for each in yaml.load_all(text, Loader=_LOADER) if each]
