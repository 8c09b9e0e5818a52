"""The project's own manifests, as an administrator applies them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from lab import kubectl
from lab.layout import Port

if TYPE_CHECKING:
    from lab.layout import Layout

ROOT = Path(__file__).resolve().parents[1] / "manifests"
DEMO = ROOT / "demo"
CANARY_PATH = "/canary"


def install(layout: Layout) -> int:
    """Apply manifests/base and manifests/lab, and return the number of their objects.

    Unlike in a cluster where the processes are pods, the API server calls the webhook by address, and its canary as
    localhost.
    """
    objects = [each for folder in ("base", "lab") for each in _build(layout, folder)]
    for each in objects:
        if each["kind"] == "MutatingWebhookConfiguration":
            for webhook in each["webhooks"]:
                path = webhook["clientConfig"]["service"]["path"]
                host = "localhost" if path == CANARY_PATH else "127.0.0.1"
                webhook["clientConfig"] = {"url": f"https://{host}:{layout.port(Port.WEBHOOK)}{path}"}
    kubectl.until_deleted(layout, *(each["metadata"]["name"] for each in objects if each["kind"] == "Namespace"))
    # Definitions first: custom resources can be created only once the API server serves them.
    definitions = [each for each in objects if each["kind"] == "CustomResourceDefinition"]
    kubectl.apply(layout, *definitions)
    names = [f"crd/{each['metadata']['name']}" for each in definitions]
    kubectl.run(layout, "wait", "--for=condition=Established", "--timeout=30s", *names)
    kubectl.apply(layout, *(each for each in objects if each not in definitions))
    return len(objects)


def demo(name: str) -> dict[str, Any]:
    """Return a manifest of manifests/demo."""
    manifest: dict[str, Any] = yaml.safe_load((DEMO / f"{name}.yaml").read_text(encoding="utf-8"))
    return manifest


def _build(layout: Layout, folder: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(kubectl.run(layout, "kustomize", str(ROOT / folder))) if each]
