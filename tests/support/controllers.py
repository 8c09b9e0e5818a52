"""The pods of workloads as their controllers create them: names, labels, annotations and owners.

Sources: kubernetes/kubernetes pkg/controller/job, kubernetes-sigs/jobset pkg/controllers, kubernetes-sigs/lws
pkg/controllers and pkg/webhooks, kubeflow/training-operator pkg/controller.v1.
"""

from __future__ import annotations

import copy
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab import manifests

if TYPE_CHECKING:
    from collections.abc import Iterator

Object = dict[str, Any]
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples" / "gangs"
_JOBSET, _LWS, _TRAINING = "jobset.sigs.k8s.io", "leaderworkerset.sigs.k8s.io", "training.kubeflow.org"


def example(name: str) -> list[Object]:
    """Return the objects of an example of docs/gangs-declaring.md."""
    return manifests.read((EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8"))


def pods_of(workload: Object, *, namespace: str = "default", instance: int = 1) -> list[Object]:
    """Return the pods of a workload, in the order in which its controller creates them.

    An object that is deleted and created again has the same name and another UID, given by `instance`.
    """
    kind, name = workload["kind"], workload["metadata"]["name"]
    makers = {
        "Job": _of_job,
        "JobSet": _of_job_set,
        "LeaderWorkerSet": _of_leader_worker_set,
        "PyTorchJob": _of_training_job,
        "MPIJob": _of_training_job,
    }
    return list(makers[kind](workload, namespace, f"uid-{name}-{instance}"))


def _made(template: Object, name: str, owner: Object, labels: dict[str, str], **annotations: str) -> Object:
    """Return a pod of a template with further labels and annotations."""
    template = copy.deepcopy(template)
    metadata = template.get("metadata") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {**(metadata.get("labels") or {}), **labels},
            "annotations": {**(metadata.get("annotations") or {}), **annotations},
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": template["spec"],
    }


def _owner(api_version: str, kind: str, name: str, uid: str) -> Object:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid}


def _hash(*parts: str) -> str:
    return hashlib.sha1("/".join(parts).encode(), usedforsecurity=False).hexdigest()


def _of_job(job: Object, _: str, uid: str) -> Iterator[Object]:
    """Yield the pods of an indexed Job; a suspended one has none."""
    name, spec = job["metadata"]["name"], job["spec"]
    owner = _owner("batch/v1", "Job", name, uid)
    for index in range(0 if spec.get("suspend") else spec["parallelism"]):
        labels = {
            "batch.kubernetes.io/controller-uid": uid,
            "batch.kubernetes.io/job-completion-index": str(index),
            "batch.kubernetes.io/job-name": name,
            "controller-uid": uid,
            "job-name": name,
        }
        at = {"batch.kubernetes.io/job-completion-index": str(index)}
        yield _made(spec["template"], f"{name}-{index}-{_hash(uid, str(index))[:5]}", owner, labels, **at)


def _of_job_set(job_set: Object, namespace: str, uid: str) -> Iterator[Object]:
    """Yield the pods of all Jobs of a JobSet, with labels that are annotations as well."""
    name, jobs = job_set["metadata"]["name"], job_set["spec"]["replicatedJobs"]
    total, number = sum(each["replicas"] for each in jobs), 0
    for replicated in jobs:
        for index in range(replicated["replicas"]):
            job_name = f"{name}-{replicated['name']}-{index}"
            keys = {
                f"{_JOBSET}/jobset-name": name,
                f"{_JOBSET}/jobset-uid": uid,
                f"{_JOBSET}/replicatedjob-name": replicated["name"],
                f"{_JOBSET}/replicatedjob-replicas": str(replicated["replicas"]),
                f"{_JOBSET}/global-replicas": str(total),
                f"{_JOBSET}/restart-attempt": "0",
                f"{_JOBSET}/job-index": str(index),
                f"{_JOBSET}/job-global-index": str(number),
                f"{_JOBSET}/job-key": _hash(namespace, job_name),
            }
            spec = copy.deepcopy(replicated["template"]["spec"])
            metadata = spec["template"].setdefault("metadata", {})
            for part in ("labels", "annotations"):
                metadata[part] = {**metadata.get(part, {}), **keys}
            spec["template"]["spec"].setdefault("restartPolicy", "OnFailure")
            yield from _of_job({"metadata": {"name": job_name}, "spec": spec}, namespace, f"{uid}-{job_name}")
            number += 1


def _of_leader_worker_set(lws: Object, namespace: str, uid: str) -> Iterator[Object]:
    """Yield the pods of each group: its leader, and its workers, which a StatefulSet of their own creates afterwards.

    The key of a group is on its leader because LeaderWorkerSet's own webhook adds it.
    """
    name, template = lws["metadata"]["name"], lws["spec"]["leaderWorkerTemplate"]
    size = template["size"]
    for group in range(lws["spec"]["replicas"]):
        leader = f"{name}-{group}"
        for index in range(size):
            pod_name = leader if index == 0 else f"{leader}-{index}"
            owner = _owner("apps/v1", "StatefulSet", name if index == 0 else leader, f"{uid}-{leader}")
            labels = {
                f"{_LWS}/name": name,
                f"{_LWS}/template-revision-hash": _hash(uid)[:10],
                f"{_LWS}/group-index": str(group),
                f"{_LWS}/group-key": _hash(namespace, leader),
                f"{_LWS}/worker-index": str(index),
                "statefulset.kubernetes.io/pod-name": pod_name,
                "apps.kubernetes.io/pod-index": str(group if index == 0 else index),
                "controller-revision-hash": f"{leader}-{_hash(uid)[:10]}",
            }
            annotations = {f"{_LWS}/size": str(size)} | ({f"{_LWS}/leader-name": leader} if index else {})
            part = template.get("leaderTemplate", template["workerTemplate"]) if index == 0 else None
            yield _made(part or template["workerTemplate"], pod_name, owner, labels, **annotations)


def _of_training_job(job: Object, _: str, uid: str) -> Iterator[Object]:
    """Yield the pods of a PyTorchJob or an MPIJob, whose workers come before its launcher."""
    kind, name = job["kind"], job["metadata"]["name"]
    (replicas,) = (value for key, value in job["spec"].items() if key.endswith("ReplicaSpecs"))
    owner = _owner(job["apiVersion"], kind, name, uid)
    for role, spec in sorted(replicas.items(), key=lambda item: item[0] == "Launcher"):
        for index in range(spec["replicas"]):
            replica = role.lower()
            labels = {
                f"{_TRAINING}/job-name": name,
                f"{_TRAINING}/operator-name": f"{kind.lower()}-controller",
                f"{_TRAINING}/replica-type": replica,
            }
            if role != "Launcher":
                labels[f"{_TRAINING}/replica-index"] = str(index)
            if role == "Master" or kind == "MPIJob":
                labels[f"{_TRAINING}/job-role"] = replica
            pod_name = f"{name}-launcher" if role == "Launcher" else f"{name}-{replica}-{index}"
            yield _made(spec["template"], pod_name, owner, labels)
