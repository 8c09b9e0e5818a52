"""Every kind of workload is expanded to the pods that Kubernetes' own controllers make."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from allocation.gang import declared
from cli.workloads import expand
from cli.workloads.workload import UnreadableWorkloadError, Workload
from lab import wait
from lab.client import client
from lab.layout import Layout
from tests.support.controllers import example
from tests.support.patience import PATIENCE_S

TEAM = "workloads"
NODE = "workloads-1"
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "x"}, "annotations": {"hami.io/gpu-scheduler-policy": "spread"}},
    "spec": {
        "automountServiceAccountToken": False,
        "schedulerName": "nobody",
        "containers": [{"name": "main", "image": "i"}],
    },
}
JOB_TEMPLATE: dict[str, Any] = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
SELECTOR = {"matchLabels": {"app": "x"}}
CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


def make(version: str, kind: str, name: str, **spec: Any) -> dict[str, Any]:
    """Return an object."""
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": TEAM}, "spec": spec}


WORKLOADS = [
    make("v1", "ReplicationController", "rc", replicas=2, template=TEMPLATE),
    make("apps/v1", "ReplicaSet", "rs", replicas=2, selector=SELECTOR, template=TEMPLATE),
    make("apps/v1", "Deployment", "deploy", replicas=2, selector=SELECTOR, template=TEMPLATE),
    make(
        "apps/v1",
        "StatefulSet",
        "db",
        replicas=2,
        selector=SELECTOR,
        serviceName="svc",
        ordinals={"start": 3},
        podManagementPolicy="Parallel",
        volumeClaimTemplates=[CLAIM],
        template={
            **TEMPLATE,
            "spec": {**TEMPLATE["spec"], "volumes": [{"name": "data", "emptyDir": {}}, {"name": "b", "emptyDir": {}}]},
        },
    ),
    make(
        "apps/v1",
        "DaemonSet",
        "ds",
        selector=SELECTOR,
        template={**TEMPLATE, "spec": {**TEMPLATE["spec"], "nodeSelector": {"workloads": "here"}}},
    ),
    make("batch/v1", "Job", "job", parallelism=2, completions=5, template=JOB_TEMPLATE),
    make("batch/v1", "Job", "indexed", parallelism=2, completions=2, completionMode="Indexed", template=JOB_TEMPLATE),
]


def expanded(document: dict[str, Any]) -> Workload:
    """Return the only workload of a document."""
    (workload,) = expand.of(document)
    return workload.on([NODE])


def holds(actual: Any, expected: Any) -> bool:
    """Return whether `actual`, to which the API server added defaults, has everything that `expected` has."""
    if isinstance(expected, dict):
        return isinstance(actual, dict) and all(holds(actual.get(key), value) for key, value in expected.items())
    if isinstance(expected, list):
        return isinstance(actual, list) and all(any(holds(each, wanted) for each in actual) for wanted in expected)
    return bool(actual == expected)


@pytest.fixture(scope="module")
def made(control_plane: Layout) -> Iterator[dict[str, list[dict[str, Any]]]]:
    """The pods that the controller manager has made, by the name of the workload."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": {"workloads": "here"}}}
    client(control_plane).apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}}, node)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": TEAM}}
    client(control_plane).apply(account)
    client(control_plane).apply(*WORKLOADS)

    def pods() -> dict[str, list[dict[str, Any]]] | None:
        items: list[dict[str, Any]] = client(control_plane).list("pods", namespace=TEAM)
        by_owner = {
            each["metadata"]["name"]: sorted(
                (pod for pod in items if pod["metadata"]["name"].startswith(f"{each['metadata']['name']}-")),
                key=lambda pod: str(pod["metadata"]["name"]),
            )
            for each in WORKLOADS
        }
        return by_owner if all(len(by_owner[name]) == (1 if name == "ds" else 2) for name in by_owner) else None

    yield wait.until(pods, what="the pods of all workloads", timeout_s=PATIENCE_S)
    client(control_plane).delete("namespace", TEAM, wait=False)
    client(control_plane).delete("node", NODE)


@pytest.mark.apiserver
@pytest.mark.parametrize("document", WORKLOADS, ids=lambda each: f"{each['kind']}-{each['metadata']['name']}")
def test_pods_equal_those_of_the_controller(made: dict[str, list[dict[str, Any]]], document: dict[str, Any]) -> None:
    """Number, names, labels, annotations, and the controller's changes to the spec are the same."""
    name = document["metadata"]["name"]
    workload = expanded(document)
    pods = made[name]
    assert workload.total == len(pods)
    for number, actual in enumerate(pods):
        expected = workload.make(number)
        assert set(expected["metadata"]["labels"]) == set(actual["metadata"]["labels"])
        varying = ("hash", "generation", "uid")
        for key, value in expected["metadata"]["labels"].items():
            if not any(word in key for word in varying):
                assert actual["metadata"]["labels"][key] == value
        assert expected["metadata"]["annotations"] == actual["metadata"]["annotations"]
        shape = re.sub(r"-[a-z0-9]{5}$|-workloads-1$", "-*", expected["metadata"]["name"])
        shape = re.sub(r"^deploy-[a-z0-9]+", "deploy-*", shape)
        actual_shape = re.sub(
            r"^deploy-[a-z0-9]+", "deploy-*", re.sub(r"-[a-z0-9]{5}$", "-*", actual["metadata"]["name"])
        )
        assert shape == actual_shape
        assert holds(actual["spec"], expected["spec"]), (actual["spec"], expected["spec"])
        assert [each["name"] for each in expected["spec"].get("volumes", [])] == [
            each["name"] for each in actual["spec"].get("volumes", [])
        ]
        assert actual["spec"].get("affinity") == expected["spec"].get("affinity")


def test_the_pods_of_a_job_that_does_not_exist_yet_have_one_uid() -> None:
    """They may name the label as their gang, so it is not empty, and another one for another Job."""
    (document,) = example("job")
    workload = expanded(document)
    labels = [workload.make(number)["metadata"]["labels"] for number in range(workload.total)]
    gangs = [declared(each, document["spec"]["template"]["metadata"]["annotations"]) for each in labels]
    assert len(gangs) == 4
    assert gangs[0] is not None
    assert gangs[0].size == 4
    assert gangs.count(gangs[0]) == 4
    another = expanded({**document, "metadata": {"name": "another"}}).make(0)["metadata"]["labels"]
    assert another["batch.kubernetes.io/controller-uid"] != gangs[0].name


def test_stateful_set_has_a_claim_for_each_pod() -> None:
    """The claim replaces the template's volume with the same name."""
    volumes = expanded(WORKLOADS[3]).make(1)["spec"]["volumes"]
    assert volumes == [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-4"}},
        {"name": "b", "emptyDir": {}},
    ]


@pytest.mark.apiserver
def test_claims_equal_those_of_the_controller(control_plane: Layout, made: dict[str, list[dict[str, Any]]]) -> None:
    """A StatefulSet's claims have the controller's names, labels and specs; no other kind has claims."""
    assert made["db"]
    listed = client(control_plane).list("persistentvolumeclaims", namespace=TEAM)
    actual = {each["metadata"]["name"]: each for each in listed}
    expected = {
        claim["metadata"]["name"]: claim
        for workload in map(expanded, WORKLOADS)
        for number in range(workload.total)
        for claim in workload.make_claims(number)
    }
    assert set(expected) == set(actual) == {"data-db-3", "data-db-4"}
    for name, claim in expected.items():
        assert claim["metadata"]["labels"] == actual[name]["metadata"]["labels"]
        assert claim["metadata"]["namespace"] == TEAM
        assert holds(actual[name]["spec"], claim["spec"])


def test_cron_job_has_the_pods_of_its_job() -> None:
    """Number and labels are those of the job template; a note says if it is suspended."""
    inner = {"spec": {"parallelism": 3, "template": JOB_TEMPLATE}}
    workload = expanded(make("batch/v1", "CronJob", "cron", schedule="@daily", suspend=True, jobTemplate=inner))
    pod = workload.make(2)
    assert (workload.total, "suspended" in workload.note) == (3, True)
    assert pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "cron-0"
    assert pod["metadata"]["namespace"] == TEAM


@pytest.mark.parametrize(
    ("document", "total"),
    [
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"}, "spec": {}}, 1),
        ({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "p"}, "template": TEMPLATE}, 1),
        (make("apps/v1", "Deployment", "d", template=TEMPLATE), 1),
        (make("apps/v1", "Deployment", "d", replicas=0, template=TEMPLATE), 0),
        (make("batch/v1", "Job", "j", parallelism=9, completions=4, template=TEMPLATE), 4),
    ],
)
def test_number_of_pods(document: dict[str, Any], total: int) -> None:
    """The default is one; a Job has at most as many pods as completions."""
    assert expanded(document).total == total


@pytest.mark.parametrize("count", ["3", -1, True, 1.5])
def test_wrong_number_is_refused(count: object) -> None:
    """The error names the object, the field and its value."""
    with pytest.raises(UnreadableWorkloadError, match=f"Deployment d: replicas holds {count!r}"):
        expanded(make("apps/v1", "Deployment", "d", replicas=count, template=TEMPLATE))


def test_names_of_pods_are_unique() -> None:
    """Two thousand replicas with a long name have different names of at most 63 characters."""
    workload = expanded(make("apps/v1", "Deployment", "d" * 70, replicas=2000, template=TEMPLATE))
    names = {workload.make(number)["metadata"]["name"] for number in range(workload.total)}
    assert (len(names), max(map(len, names))) == (2000, 63)
