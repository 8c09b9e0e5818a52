"""`kubectl gpu inject` without a cluster: files in, manifests out."""

import copy
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import yaml

from allocation.fabric import VARIABLES
from cli.__main__ import main
from tests.cli.support.http_server import kubeconfig, serving

Inject = Callable[..., tuple[int, str, str]]

GPU = {"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000}}}
SPEC: dict[str, Any] = {"containers": [GPU, {"name": "side", "image": "i"}]}
TEMPLATE: dict[str, Any] = {"metadata": {"labels": {"app": "x"}}, "spec": SPEC}
OPTED_OUT = {"hami.io/webhook": "ignore"}
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}


def make(version: str, kind: str, content: dict[str, Any]) -> dict[str, Any]:
    """Return an object with the name x."""
    return copy.deepcopy({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, **content})


POD = make("v1", "Pod", {"spec": SPEC})
WORKLOADS = [
    (POD, ()),
    (make("v1", "PodTemplate", {"template": TEMPLATE}), ("template",)),
    *(
        (make(version, kind, {"spec": {"template": TEMPLATE}}), ("spec", "template"))
        for version, kind in (
            ("v1", "ReplicationController"),
            ("apps/v1", "Deployment"),
            ("apps/v1", "StatefulSet"),
            ("apps/v1", "DaemonSet"),
            ("apps/v1", "ReplicaSet"),
            ("batch/v1", "Job"),
        )
    ),
    (
        make("batch/v1", "CronJob", {"spec": {"jobTemplate": {"spec": {"template": TEMPLATE}}}}),
        ("spec", "jobTemplate", "spec", "template"),
    ),
]


@pytest.fixture
def inject(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Inject:
    """Run the command with a text, or objects, on standard input; return exit code, output and errors."""

    def run(*given: Any, options: tuple[str, ...] = ("-f", "-")) -> tuple[int, str, str]:
        text = given[0] if given and isinstance(given[0], str) else yaml.safe_dump_all(given, sort_keys=False)
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        given_file = () if "--config" in options else ("--config", os.devnull)  # an empty file: the defaults
        code = main(["inject", *options, *given_file])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def injected(pod: dict[str, Any]) -> bool:
    """Return whether the webhook's changes are in a pod."""
    main_, side = pod["spec"]["containers"]
    variables = {entry["name"] for entry in main_["env"]}
    return (
        pod["spec"]["schedulerName"] == "tranche"
        and {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_MEMORY_LIMIT_0"} <= variables
        and side["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    )


@pytest.mark.parametrize(("workload", "path"), WORKLOADS, ids=[workload["kind"] for workload, _ in WORKLOADS])
def test_pods_and_templates_are_injected(inject: Inject, workload: dict[str, Any], path: tuple[str, ...]) -> None:
    """Every kind that makes pods is supported, and the rest of the object does not change."""
    code, out, err = inject(workload)
    assert (code, err) == (0, "")
    printed = yaml.safe_load(out)
    pod = printed
    for step in path:
        pod = pod[step]
    assert injected(pod)
    assert printed["metadata"] == {"name": "x"}


@pytest.mark.parametrize("output", ["yaml", "json"])
def test_inject_is_idempotent(inject: Inject, output: str) -> None:
    """A second run prints the same bytes."""
    options = ("-f", "-", "-o", output)
    code, once, _ = inject(*(workload for workload, _ in WORKLOADS), CONFIG_MAP, options=options)
    assert code == 0
    assert inject(once, options=options) == (0, once, "")


def test_order_and_unchanged_documents_are_kept(inject: Inject) -> None:
    """Documents without changes keep comments and layout."""
    text = f"# one\nkind: A\n---\n{json.dumps(POD)}\n---\nkind:   B # two\n"
    code, out, _ = inject(text)
    first, second, third = out.split("---\n")
    assert (code, first, third) == (0, "# one\nkind: A\n", "kind:   B # two\n")
    assert injected(yaml.safe_load(second))


def test_lists_are_searched(inject: Inject) -> None:
    """List and lists of a kind may contain one another."""
    pods = {"apiVersion": "v1", "kind": "PodList", "items": [POD]}
    code, out, err = inject({"apiVersion": "v1", "kind": "List", "items": [CONFIG_MAP, POD, pods]})
    assert (code, err) == (0, "")
    config, pod, inner = yaml.safe_load(out)["items"]
    assert config == CONFIG_MAP
    assert injected(pod)
    assert injected(inner["items"][0])


def test_json_output(inject: Inject) -> None:
    """The objects follow one another, as kubectl reads them."""
    code, out, _ = inject(CONFIG_MAP, POD, options=("-f", "-", "-o", "json"))
    decoder = json.JSONDecoder()
    config, end = decoder.raw_decode(out)
    assert (code, config) == (0, CONFIG_MAP)
    assert injected(json.loads(out[end:]))


def test_files_follow_one_another(inject: Inject, tmp_path: Path) -> None:
    """The order is that of the command line, as with kubectl's -f; standard input may be among the files."""
    for name, kind in (("a", "A"), ("b", "B")):
        (tmp_path / name).write_text(f"kind: {kind}\n", encoding="utf-8-sig")
    options = ("-f", str(tmp_path / "b"), "-f", "-", "-f", str(tmp_path / "a"))
    code, out, err = inject("kind: C", options=options)
    assert (code, out) == (0, "kind: B\n---\nkind: C\n---\nkind: A\n")
    assert err == "note: the input has no pod and no pod template, so nothing was changed\n"


def test_fields_with_defaults_may_be_missing(inject: Inject) -> None:
    """Names, requests and metadata may be absent or null, because no API server has set defaults yet."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": None,
        "spec": {
            "schedulerName": None,
            "initContainers": None,
            "containers": [
                {
                    "name": "main",
                    "env": None,
                    "resources": {"limits": {"nvidia.com/gpu": 1, "cpu": 0.5}, "requests": None},
                },
                {"name": "side", "resources": None, "securityContext": None},
            ],
        },
    }
    code, out, err = inject(pod)
    assert (code, err) == (0, "")
    assert injected(yaml.safe_load(out))
    assert inject(out) == (0, out, "")


def test_quantities_keep_their_spelling(inject: Inject) -> None:
    """Derived amounts are added to existing requests, which the API server requires to match the limits."""
    text = """\
apiVersion: v1
kind: Pod
spec:
  containers:
  - name: main
    resources:
      requests:
        cpu: 0.50
      limits:
        nvidia.com/gpumem: 3_000
        memory: 1e9
        cpu: "1"
"""
    resources = text[text.index("    resources") :]
    expected = resources.replace(
        "cpu: 0.50\n", "cpu: 0.50\n        nvidia.com/gpu: '1'\n        nvidia.com/gpumem: 3000\n"
    )
    expected = expected.replace('cpu: "1"\n', "cpu: \"1\"\n        nvidia.com/gpu: '1'\n")
    assert expected in inject(text)[1]


def test_order_of_keys_is_kept(inject: Inject) -> None:
    """New fields follow the existing ones."""
    text = f"spec: {json.dumps({**SPEC, 'restartPolicy': 'Never'})}\nkind: Pod\napiVersion: v1\n"
    printed = yaml.safe_load(inject(text)[1])
    assert list(printed) == ["spec", "kind", "apiVersion"]
    assert list(printed["spec"]) == ["containers", "restartPolicy", "schedulerName"]


def test_aliases_change_independently(inject: Inject) -> None:
    """Two containers with the same anchor each get their own references."""
    text = f"""\
apiVersion: v1
kind: Pod
spec:
  containers:
  - {{name: one, env: &env [{{name: A, value: a}}], resources: &own {json.dumps(GPU["resources"])}}}
  - {{name: two, env: *env, resources: *own}}
"""
    one, two = yaml.safe_load(inject(text)[1])["spec"]["containers"]
    for container in (one, two):
        assert len({entry["name"] for entry in container["env"]}) == len(container["env"])
        paths = [entry["valueFrom"]["fieldRef"]["fieldPath"] for entry in container["env"] if "valueFrom" in entry]
        assert all(path.endswith(f"/{container['name']}']") for path in paths)


@pytest.mark.parametrize(
    "pod",
    [
        make("v1", "Pod", {"spec": {"containers": [{"name": "main"}]}}),
        make("v1", "Pod", {"spec": {**SPEC, "schedulerName": "another"}}),
        make("apps/v1", "Deployment", {"spec": {"template": {**TEMPLATE, "metadata": {"labels": OPTED_OUT}}}}),
        make("apps/v1", "Deployment", {"spec": {}}),
        make("example.com/v1", "Deployment", {"spec": {"template": TEMPLATE}}),
        make("v1", "PodTemplate", {}),
    ],
)
def test_other_objects_are_not_changed(inject: Inject, pod: dict[str, Any]) -> None:
    """No GPU, another scheduler, opted out, without a template, or a kind of another API."""
    code, out, _ = inject(pod)
    assert (code, yaml.safe_load(out)) == (0, pod)


@pytest.mark.parametrize(("own", "options"), [("kube-system", ()), ("", ("-n", "kube-system"))])
def test_pods_of_excluded_namespaces_are_not_changed(inject: Inject, own: str, options: tuple[str, ...]) -> None:
    """The API server never sends them to the webhook; a note names the setting."""
    pod = copy.deepcopy(POD)
    pod["metadata"] |= {"namespace": own} if own else {}
    code, out, err = inject(pod, options=("-f", "-", *options))
    assert (code, yaml.safe_load(out)) == (0, pod)
    assert "document 1, Pod x: not changed, because webhook.excluded_namespaces has its namespace kube-system" in err
    elsewhere = {**pod, "metadata": {"name": "x", "namespace": "team"}}
    assert injected(yaml.safe_load(inject(elsewhere, options=("-f", "-", *options))[1]))


REFUSED = make("apps/v1", "Deployment", {"spec": {"template": copy.deepcopy(TEMPLATE)}})
REFUSED["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpumem"] = "3Gi"


def test_refusal_prints_no_manifest(inject: Inject) -> None:
    """A pipe into kubectl must not apply a part of a file; all refusals are reported together."""
    code, out, err = inject(CONFIG_MAP, REFUSED, POD, make("v1", "Pod", {"spec": {"containers": []}}))
    assert (code, out) == (1, "")
    first, second = err.splitlines()
    assert first.startswith("error: standard input, document 2, Deployment x: spec.containers[0].resources.limits")
    assert 'write "3072" for 3Gi' in first
    assert second == "error: standard input, document 4, Pod x: pod has no containers: add one"


def test_field_of_the_wrong_type_is_refused(inject: Inject) -> None:
    """The webhook could not read it either."""
    code, out, err = inject(make("v1", "Pod", {"spec": {"containers": [{"name": "main", "resources": 1}]}}))
    assert (code, out) == (1, "")
    assert "document 1, Pod x: the pod cannot be read: Expected `object`" in err


def test_warnings_go_to_standard_error(inject: Inject) -> None:
    """A warning has file, document, kind and name; the manifest is still printed."""
    pod = copy.deepcopy(POD)
    pod["spec"]["containers"][0]["env"] = [{"name": "CUDA_VISIBLE_DEVICES", "value": "0"}]
    code, out, err = inject(CONFIG_MAP, pod)
    assert code == 0
    assert injected(list(yaml.safe_load_all(out))[1])
    assert err.startswith("warning: standard input, document 2, Pod x: container main: CUDA_VISIBLE_DEVICES")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: [\n", "standard input is neither YAML nor JSON: line 2, column 1: "),
        ("", "no object in -"),
        ("# nothing\n---\n", "no object in -"),
        ("hello\n", "standard input, document 1 is not a Kubernetes object but a scalar"),
        ("kind: A\n---\n- 1\n", "standard input, document 2 is not a Kubernetes object but a list"),
    ],
)
def test_wrong_input_is_a_one_line_error(inject: Inject, text: str, message: str) -> None:
    """The line has the place, and no manifest is printed."""
    code, out, err = inject(text)
    assert (code, out) == (1, "")
    assert err.startswith(f"error: {message}")
    assert err.count("\n") == 1


def test_unreadable_file_is_named(inject: Inject, tmp_path: Path) -> None:
    """The file is missing, a folder, or not text."""
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name, message in (("absent", "No such file"), (".", "Is a directory"), ("binary", "not text in UTF-8")):
        code, out, err = inject("", options=("-f", str(tmp_path / name)))
        assert (code, out) == (1, "")
        assert message in err


def test_webhook_configuration_is_used(inject: Inject, tmp_path: Path) -> None:
    """The file is the one that the process reads, with all of its keys."""
    file = tmp_path / "config.yaml"
    content = {
        "webhook": {"runtime_class_name": "nvidia", "certificates": {"poll_seconds": 1.0}},
        "allocation": {"default_memory_mib": 512},
    }
    file.write_text(yaml.safe_dump(content))
    pod = make("v1", "Pod", {"spec": {"containers": [{"name": "m", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}})
    code, out, _ = inject(pod, options=("-f", "-", "--config", str(file)))
    spec = yaml.safe_load(out)["spec"]
    assert (code, spec["runtimeClassName"]) == (0, "nvidia")
    assert spec["containers"][0]["resources"]["limits"]["nvidia.com/gpumem"] == "512"


def test_static_allocation_requires_a_trusted_user(inject: Inject) -> None:
    """The pod is refused without --as, as for an ordinary user, and completed for a trusted user."""
    allocation = {
        "v": 1,
        "node": "n",
        "containers": {"main": [{"uuid": "G", "index": 0, "memoryMiB": 3000, "cores": 300}]},
    }
    pod = make("v1", "Pod", {"spec": SPEC})
    pod["metadata"]["annotations"] = {"gpu.scheduling/allocation": json.dumps(allocation)}
    assert inject(pod)[0] == 1
    trusted = "system:serviceaccount:tranche-system:tranche-static"
    code, out, _ = inject(pod, options=("-f", "-", "--as", trusted))
    assert code == 0
    assert yaml.safe_load(out)["metadata"]["annotations"]["gpu.scheduling/allocated"] == "0"


CLAIM = {
    "apiVersion": "gpu.scheduling/v1",
    "kind": "GpuClaim",
    "metadata": {"name": "pair"},
    "spec": {"devices": {"count": 2}, "selector": {"matchLabels": {"rack": "1"}}},
}


def claim_pod(**metadata: Any) -> dict[str, Any]:
    """Return a pod that requests its cards by a claim only."""
    spec = {"containers": [{"name": "main", "image": "i"}, {"name": "side", "image": "i"}]}
    annotations = {"gpu.scheduling/claim": "pair"}
    return make("v1", "Pod", {"metadata": {"name": "x", "annotations": annotations, **metadata}, "spec": spec})


@pytest.mark.parametrize("order", [1, -1])
def test_the_claim_of_a_pod_may_be_anywhere_in_the_files(inject: Inject, order: int) -> None:
    """Admission writes what it gives; the claim itself keeps its text."""
    listed = {"apiVersion": "v1", "kind": "List", "items": [CLAIM]}
    code, out, err = inject(*(listed, claim_pod())[::order])
    assert code == 0
    assert "GpuClaim pair: no container requests nvidia.com/gpu, so only main gets the cards" in err
    claim, pod = list(yaml.safe_load_all(out))[::order]
    assert claim == listed
    assert injected(pod)
    assert pod["spec"]["nodeSelector"] == {"rack": "1"}
    assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "2"
    again = inject(out)
    assert again[:2] == (0, out)


@pytest.mark.parametrize(
    ("pod", "claim", "found"),
    [
        ({}, {}, True),
        ({"namespace": "team"}, {}, False),
        ({"namespace": "team"}, {"namespace": "team"}, True),
        ({}, {"namespace": "default"}, True),
        ({}, {"namespace": "team"}, False),
    ],
)
def test_a_claim_of_the_files_counts_in_its_namespace(
    inject: Inject,
    monkeypatch: pytest.MonkeyPatch,
    pod: dict[str, str],
    claim: dict[str, str],
    found: bool,  # noqa: FBT001
) -> None:
    """Without a kubeconfig and -n, objects without a namespace are in `default`."""
    monkeypatch.setenv("KUBECONFIG", os.devnull)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    made = {**CLAIM, "metadata": {"name": "pair", **claim}}
    assert inject(made, claim_pod(**pod))[0] == (0 if found else 1)


def test_a_claim_that_asks_for_the_fabric_gets_its_variables(inject: Inject) -> None:
    """As in the cluster, each is a reference to what comes with the Binding."""
    spec = {**CLAIM["spec"], "network": {"rdmaRequired": True}, "storage": {"cuFile": "Preferred"}}
    for claim, expected in ((CLAIM, set()), ({**CLAIM, "spec": spec}, set(VARIABLES))):
        code, out, _ = inject(claim, claim_pod())
        assert code == 0
        _, pod = yaml.safe_load_all(out)
        assert {entry["name"] for entry in pod["spec"]["containers"][0]["env"]} & set(VARIABLES) == expected


def test_a_claim_that_is_nowhere_is_an_error(inject: Inject, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line names the pod, the claim, and what to do; no manifest is printed."""
    monkeypatch.setenv("KUBECONFIG", os.devnull)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    code, out, err = inject(CONFIG_MAP, claim_pod())
    assert (code, out) == (1, "")
    start = "error: standard input, document 2, Pod x: GpuClaim pair is not in the files, and the cluster cannot be"
    assert err.startswith(start)
    assert err.endswith("; add the claim to the files\n")


def test_a_claim_is_looked_up_in_the_cluster(inject: Inject, tmp_path: Path) -> None:
    """In the namespace of the pod, or that of the command line; only names that the files do not have."""
    path, asked = "/apis/gpu.scheduling/v1/namespaces/{}/gpuclaims/pair", []

    def respond(request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        if "/gpuclaims/" in request.path:
            asked.append(request.path)
        found = request.path == path.format("team")
        return (200, json.dumps(CLAIM).encode()) if found else (404, b'{"message": "gpuclaims \\"pair\\" not found"}')

    with serving(respond) as url:
        options = ("-f", "-", "--kubeconfig", kubeconfig(tmp_path, url, token="t"), "-n", "team")  # noqa: S106
        code, out, _ = inject(claim_pod(), options=options)
        assert (code, injected(yaml.safe_load(out))) == (0, True)
        code, _, err = inject(claim_pod(namespace="other"), options=options)
        assert code == 1
        assert "GpuClaim pair is neither in the files nor in namespace other of the cluster; add it" in err
        assert asked == [path.format("team"), path.format("other")]
        assert inject(CLAIM, claim_pod(), POD, options=options)[0] == 0
        assert len(asked) == 2


def queued(name: str) -> dict[str, Any]:
    """Return a pod that names a queue and requests nothing itself."""
    made = make("v1", "Pod", {"spec": {"containers": [{"name": "main", "image": "i"}]}})
    made["metadata"]["labels"] = {"gpu.scheduling/queue": name}
    return made


def test_a_pod_of_a_queue_gets_what_the_queue_says(inject: Inject, tmp_path: Path) -> None:
    """The cluster is asked for the queue; without it the pod is left unchanged, and a note says so."""
    path = "/apis/gpu.scheduling/v1/gpuqueues/"
    bodies = {
        f"{path}team-a": (200, {"metadata": {"name": "team-a"}, "spec": {"resreq": "gpu=2"}}),
        f"{path}secret": (403, {}),
    }

    def respond(request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        status, body = bodies.get(request.path, (404, {}))
        return status, json.dumps(body).encode()

    with serving(respond) as url:
        options = ("-f", "-", "--kubeconfig", kubeconfig(tmp_path, url))
        _, out, _ = inject(queued("team-a"), options=options)
        assert yaml.safe_load(out)["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] in (2, "2")
        _, _, err = inject(queued("ghost"), options=options)
        assert "GpuQueue ghost does not exist" in err
        code, out, err = inject(queued("secret"), options=options)
        assert (code, yaml.safe_load(out)) == (0, queued("secret"))
        assert "note: GpuQueue secret cannot be read" in err


def test_a_pod_of_an_application_gets_the_memory_of_its_gpubindings(inject: Inject, tmp_path: Path) -> None:
    """The bindings are read once, where they count; where they cannot be read, a note says so."""
    spec = {"uuid": "GPU-a", "appName": "chat", "namespace": "team", "memory": "2000", "podSelector": {}}
    status, asked = [200], []

    def respond(request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        if not request.path.startswith("/apis/gpu.bytetrade.io/v1alpha1/gpubindings"):
            return 404, b"{}"
        asked.append(request.path)
        return status[0], json.dumps({"metadata": {}, "items": [{"metadata": {"name": "b"}, "spec": spec}]}).encode()

    pods = []
    for namespace in ("team", "team", "other"):
        pods.append(copy.deepcopy(POD))
        pods[-1]["metadata"] |= {"namespace": namespace, "labels": {"applications.app.bytetrade.io/name": "chat"}}
    config = tmp_path / "config.yaml"
    config.write_text("allocation: {bindings: {mode: labelled}}")
    with serving(respond) as url:
        options = ("-f", "-", "--kubeconfig", kubeconfig(tmp_path, url))
        _, out, err = inject(*pods, options=(*options, "--config", str(config)))
        assert [_memory(each) for each in yaml.safe_load_all(out)] == ["2000", "2000", 3000]
        assert "GPUBindings of app chat set nvidia.com/gpumem 2000" in err
        assert len(asked) == 1
        assert inject(*pods, options=options)[0] == 0
        assert len(asked) == 1
        status[0] = 403
        _, out, err = inject(pods[0], options=(*options, "--config", str(config)))
        assert _memory(yaml.safe_load(out)) == 3000
        assert "note: GPUBindings cannot be read" in err


def _memory(injected_pod: dict[str, Any]) -> object:
    return injected_pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpumem"]


def test_a_pod_gets_the_defaults_of_its_namespace_and_obeys_its_quotas(inject: Inject, tmp_path: Path) -> None:
    """Each namespace is asked once; where its quotas cannot be read, a note says so."""
    single = {"maxCards": 2, "defaults": {"nvidia.com/gpucores": 20}}
    quotas = {
        "metadata": {},
        "items": [{"metadata": {"name": "small", "namespace": "team"}, "spec": {"single": single}}],
    }
    path, asked = "/apis/gpu.scheduling/v1/namespaces/{}/gpuquotas", []
    bodies = {path.format("team"): (200, quotas), path.format("secret"): (403, {})}

    def respond(request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        asked.append(request.path.partition("?")[0])
        status, body = bodies.get(asked[-1], (404, {}))
        return status, json.dumps(body).encode()

    def requesting(cards: int, **metadata: str) -> dict[str, Any]:
        container = {"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": cards}}}
        return make("v1", "Pod", {"metadata": {"name": "x", **metadata}, "spec": {"containers": [container]}})

    with serving(respond) as url:
        options = ("-f", "-", "--kubeconfig", kubeconfig(tmp_path, url))
        code, out, err = inject(*[requesting(2)] * 2, options=(*options, "-n", "team"))
        assert (code, err, asked) == (0, "", [path.format("team")])
        for pod in yaml.safe_load_all(out):
            assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpucores"] == "20"
        code, _, err = inject(requesting(3, namespace="team"), options=options)
        assert (code, "GpuQuota small: spec.single.maxCards is 2, and the pod requests 3" in err) == (1, True)
        assert inject(requesting(3, namespace="other"), options=options)[::2] == (0, "")
        code, _, err = inject(requesting(3, namespace="secret"), options=options)
        assert code == 0
        assert "note: GpuQuotas of namespace secret cannot be read: " in err


def test_an_invalid_claim_is_refused(inject: Inject) -> None:
    """As by the API server, before any pod is looked at."""
    made = {**CLAIM, "spec": {"devices": {"count": 0}}}
    code, out, err = inject(made, POD)
    assert (code, out) == (1, "")
    assert err == "error: GpuClaim pair: spec.devices.count holds 0; write a number of cards from 1 to 128\n"


def test_api_clients_are_not_loaded() -> None:
    """The command does not wait for libraries that it does not use."""
    program = "import sys; from cli.__main__ import main; main(['inject', '-f', '-']); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], input=yaml.safe_dump(POD), capture_output=True, text=True, check=True
    )
    assert not {"kubernetes", "aiohttp", "numpy", "asyncio"} & set(done.stdout.splitlines()[-1].split())
