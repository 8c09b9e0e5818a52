"""The component manifests/complete-templates in the lab, and workloads with pod templates."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from certs.ca_bundle import CONFIGURATION
from lab import manifests, wait
from lab.client import client
from lab.layout import Port
from tests.support.patience import PATIENCE_S
from tests.system.conftest import pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

_KIND = "mutatingwebhookconfiguration"
JOB_SETS = "jobsets.jobset.x-k8s.io"
"""A stand-in for JobSet's definition: its API server has the name, and admits every field."""


@contextmanager
def completed(layout: Layout) -> Iterator[None]:
    """Install the component while the block runs; the webhook itself publishes its authority in the new entry."""
    (added,) = manifests.read((manifests.ROOT / "complete-templates" / "entry.yaml").read_text(encoding="utf-8"))[0]
    url = f"https://127.0.0.1:{layout.port(Port.WEBHOOK)}{added['value']['clientConfig']['service']['path']}"
    entry = {**added, "value": {**added["value"], "clientConfig": {"url": url}}}
    api = client(layout)
    before = api.get(_KIND, CONFIGURATION)["webhooks"]
    api.patch(_KIND, CONFIGURATION, [entry], by="json")

    def is_trusted() -> bool:
        last = api.get(_KIND, CONFIGURATION)["webhooks"][-1]
        return bool(last["name"] == added["value"]["name"] and last["clientConfig"].get("caBundle"))

    try:
        wait.until(is_trusted, what="the authority in the new entry", timeout_s=PATIENCE_S)
        yield
    finally:
        path = f"/webhooks/{len(before)}"
        test = {"op": "test", "path": f"{path}/name", "value": added["value"]["name"]}
        api.patch(_KIND, CONFIGURATION, [test, {"op": "remove", "path": path}], by="json")


@contextmanager
def job_sets(layout: Layout) -> Iterator[None]:
    """Serve JobSets while the block runs; no controller makes Jobs of them."""
    names = {"plural": "jobsets", "singular": "jobset", "kind": "JobSet"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": JOB_SETS,
            "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in in a test"},
        },
        "spec": {
            "group": "jobset.x-k8s.io",
            "names": names,
            "scope": "Namespaced",
            "versions": [{"name": "v1alpha2", "served": True, "storage": True, "schema": schema}],
        },
    }
    api = client(layout)
    api.apply(definition)
    api.until_established(JOB_SETS)
    yield
    api.delete("crd", JOB_SETS)


def job(name: str, *, parallelism: int = 1, suspend: bool = False, **limits: int | str) -> dict[str, Any]:
    """Return a Job whose pods request these, by short names as in `pod`."""
    template = _template(**limits)
    template["spec"]["restartPolicy"] = "Never"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "team"}},
        "spec": {"parallelism": parallelism, "completions": parallelism, "suspend": suspend, "template": template},
    }


def deployment(name: str, **limits: int | str) -> dict[str, Any]:
    """Return a Deployment without replicas whose pods request these."""
    template = _template(**limits)
    template["metadata"] = {"labels": {"app": name}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": name}}, "template": template},
    }


def job_set(name: str, *templates: dict[str, Any]) -> dict[str, Any]:
    """Return a JobSet of Jobs with the templates of these Jobs."""
    jobs = [
        {"name": f"part-{at}", "template": {"spec": copy.deepcopy(each["spec"])}} for at, each in enumerate(templates)
    ]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": jobs},
    }


def _template(**limits: int | str) -> dict[str, Any]:
    spec = pod("template", **limits)["spec"]
    del spec["nodeSelector"]
    if not limits:
        del spec["containers"][0]["resources"]
    return {"spec": spec}
