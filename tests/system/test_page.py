"""The page as tenants reach it: through the API server's proxy, with tokens that a real API server reviews."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
import yaml

from allocation.names import CORDON
from lab import manifests
from lab.client import client
from lab.layout import Port
from scheduler.api.namespaced.paths import PROXY, SIMULATION, TOKEN_HEADER
from scheduler.api.request_body import LARGEST_YAML
from scheduler.ui.cordon import CORDONS
from scheduler.ui.gate import URL
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import tenants

if TYPE_CHECKING:
    from lab.layout import Layout
    from tests.system.support.tenants import Tenant

pytestmark = pytest.mark.apiserver

NODE = "gpu-sim-0"
CARD = f"GPU-{NODE}-7"
ROLE = manifests.ROOT / "ui-exposed" / "role.yaml"


Account = Callable[..., "Tenant"]


@pytest.fixture
def account(namespace: Namespace) -> Iterator[Account]:
    """Create accounts with `view` in the namespace, and ClusterRoles that are bound to them."""
    api, bound = client(namespace.layout), list[str]()
    api.apply(*manifests.read(ROLE.read_text(encoding="utf-8")))

    def make(name: str, *roles: str) -> Tenant:
        for role in roles:
            bound.append(f"{namespace.name}-{name}-{role}")
            api.apply(
                {
                    "apiVersion": "rbac.authorization.k8s.io/v1",
                    "kind": "ClusterRoleBinding",
                    "metadata": {"name": bound[-1]},
                    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                    "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace.name}],
                }
            )
        return tenants.account(namespace, name, role="view")

    yield make
    for name in bound:
        api.delete("clusterrolebinding", name)
    api.delete("clusterrole", "tranche-page")


@pytest.fixture
def operator(account: Account) -> Tenant:
    """An account that may read the page, and cordon cards."""
    return account("operator", "tranche-page", "tranche-operator")


@pytest.fixture
def reader(account: Account) -> Tenant:
    """An account with `view` in the namespace that may read the page."""
    return account("reader", "tranche-page")


@pytest.fixture
def other_namespace(make_namespace: Callable[..., Namespace]) -> Iterator[Namespace]:
    """The namespace of another tenant, with a pod on a card."""
    made = make_namespace()
    made.create(pod("confidential", node=NODE, gpu=1, gpumem=100))
    made.placed(1)
    yield made
    made.empty()


def token_of(tenant: Tenant) -> str:
    """Return the token of an account."""
    token: str = yaml.safe_load(tenant.kubeconfig.read_text())["users"][0]["user"]["token"]
    return token


def cordoned(layout: Layout) -> str:
    """Return the list of cordoned cards of the node."""
    found: str = client(layout).get("node", NODE)["metadata"].get("annotations", {}).get(CORDON, "")
    return found


@contextmanager
def stream(layout: Layout, tenant: Tenant, *sections: str, **headers: str) -> Iterator[http.client.HTTPResponse]:
    """Request the events of sections through the API server's proxy, as a tenant, with further headers."""
    path = f"{URL}?{urlencode([('section', each) for each in sections])}"
    with request(layout, tenant, "GET", path, **headers) as response:
        yield response


@contextmanager
def request(
    layout: Layout, tenant: Tenant, method: str, path: str, *, body: str = "", **headers: str
) -> Iterator[http.client.HTTPResponse]:
    """Send a request through the API server's proxy, as a tenant, with further headers."""
    tls = ssl.create_default_context(cafile=layout.pki / "ca.crt")
    port = layout.port(Port.KUBE_APISERVER)
    sent = {"Authorization": f"Bearer {token_of(tenant)}", **headers}
    with closing(http.client.HTTPSConnection("127.0.0.1", port, context=tls, timeout=PATIENCE_S)) as connection:
        connection.request(method, PROXY + path, body=body or None, headers=sent)
        with closing(connection.getresponse()) as response:
            yield response


def cordon(layout: Layout, caller: Tenant, token: str, *, card: str = CARD, **headers: str) -> tuple[int, str]:
    """Ask the page to cordon a card of the node, with a token; return status and text."""
    body = json.dumps({"uuid": card, "cordoned": True})
    sent = {"Content-Type": "application/json", TOKEN_HEADER: token, **headers}
    with request(layout, caller, "POST", CORDONS.format(node=NODE), body=body, **sent) as response:
        return response.status, response.read().decode()


def read_until(response: http.client.HTTPResponse, heard: list[Any], condition: Callable[[], bool]) -> None:
    """Add the rows of each event to `heard` until a condition holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        line = response.readline()
        assert line, "the stream has ended"
        assert time.monotonic() < deadline, heard[-3:]
        if line.startswith(b'data: {"section"'):
            content = json.loads(line.removeprefix(b"data: "))
            heard.append({content["section"].partition(":")[0]: [content["rows"], content["removed"]]})


def test_page_needs_a_token_and_a_right(tranche: Layout, namespace: Namespace, reader: Tenant) -> None:
    """Without a token in its own header, with a forged one, and without the ClusterRole there is no event."""
    viewer = tenants.account(namespace, "viewer", role="view")
    for tenant, headers, status, words in (
        (reader, {}, 401, "a bearer token is needed"),
        (reader, {TOKEN_HEADER: "forged"}, 401, "does not accept the bearer token"),
        (viewer, {TOKEN_HEADER: token_of(viewer)}, 403, f"viewer cannot get {URL}"),
    ):
        with stream(tranche, tenant, "use", **headers) as response:
            assert (response.status, words in response.read().decode()) == (status, True)
    with stream(tranche, reader, "use", **{TOKEN_HEADER: token_of(reader)}) as response:
        assert response.status == 200
        heard: list[Any] = []
        read_until(response, heard, lambda: NODE in str(heard))
    assert token_of(reader) not in (tranche.logs / "scheduler.log").read_text()


def test_page_reveals_nothing_of_other_namespaces(
    tranche: Layout, namespace: Namespace, other_namespace: Namespace, reader: Tenant
) -> None:
    """Not in the rows at first, and not in what changes then; the tenant's own pods are there."""
    sections = ("waiting", "decisions", f"node:{NODE}", f"pod:{other_namespace.name}/confidential", "use")
    namespace.create(pod("mine", node=NODE, gpu=1, gpumem=100))
    namespace.placed(1)
    heard: list[Any] = []
    with stream(tranche, reader, *sections, **{TOKEN_HEADER: token_of(reader)}) as response:
        read_until(response, heard, lambda: all(f"'{name}'" in str(heard) for name in ("node", "pod", "decisions")))
        other_namespace.create(pod("secret-second", node=NODE, gpu=1, gpumem=999999))
        other_namespace.unplaced("secret-second")
        namespace.create(pod("mine-second", node=NODE, gpu=1, gpumem=999999))
        read_until(response, heard, lambda: "mine-second" in str([each.get("waiting") for each in heard]))
    assert "/mine" in str([each.get("node") for each in heard])
    for secret in ("confidential", "secret", other_namespace.name):
        assert secret not in str(heard), secret


def test_only_an_operator_cordons_a_card_on_the_page(tranche: Layout, operator: Tenant, reader: Tenant) -> None:
    """The API server knows the reader as the author of the write, which the scheduler's own token could not send."""
    for token, status, words in (
        ("forged", 401, "does not accept the bearer token"),
        (token_of(reader), 403, f"reader cannot patch node {NODE}"),
    ):
        found = cordon(tranche, reader, token)
        assert (found[0], words in found[1]) == (status, True), found
    assert not cordoned(tranche)
    before = tranche.audit_log.stat().st_size
    try:
        assert cordon(tranche, operator, token_of(operator)) == (200, '{"changed":true}')
        assert cordoned(tranche) == CARD
        written = [
            each
            for line in tranche.audit_log.read_bytes()[before:].splitlines()
            if (each := json.loads(line)).get("verb") == "patch"
            and (each["objectRef"]["resource"], each["objectRef"].get("name")) == ("nodes", NODE)
            and each["userAgent"].startswith("tranche-scheduler/")
        ]
        users = {each["user"]["username"] for each in written}
        assert users == {f"system:serviceaccount:{operator.namespace}:operator"}
    finally:
        client(tranche).patch("node", NODE, {"metadata": {"annotations": {CORDON: None}}})
    assert token_of(operator) not in (tranche.logs / "scheduler.log").read_text()


def test_another_site_cordons_no_card(tranche: Layout, operator: Tenant) -> None:
    """Even if the token comes with its request, as from a proxy that adds it for a cookie."""
    for headers, status in (
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "https://elsewhere.example"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
    ):
        assert cordon(tranche, operator, token_of(operator), **headers)[0] == status, headers
    assert not cordoned(tranche)


def test_only_cards_of_the_node_get_into_its_list(tranche: Layout, operator: Tenant) -> None:
    """Cards of other nodes do not, and several at a time do not."""
    for card in ("GPU-gpu-sim-1-0", f"{CARD},GPU-x", "", "x" * 600):
        assert cordon(tranche, operator, token_of(operator), card=card)[0] == 404, card
    assert not cordoned(tranche)


def test_the_page_on_loopback_cordons_no_card(tranche: Layout, operator: Tenant) -> None:
    """It asks for no token, so it has no such address, whatever token comes."""
    body = json.dumps({"uuid": CARD, "cordoned": True})
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token_of(operator)}"}
    port = tranche.port(Port.SCHEDULER_UI)
    for method, status in (("POST", 405), ("PUT", 405), ("GET", 404)):
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as connection:
            connection.request(method, CORDONS.format(node=NODE), body=body, headers=headers)
            assert connection.getresponse().status == status
    assert not cordoned(tranche)


def test_pasted_yaml_has_a_limit(tranche: Layout, namespace: Namespace) -> None:
    """As much as people write is answered, without JSON; more of it is not read."""
    editor = tenants.account(namespace, "editor", role="edit")
    asks = yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", **pod("asks", gpu=1, gpumem=999999)})
    sent = {"Content-Type": "application/yaml", TOKEN_HEADER: token_of(editor)}
    path = SIMULATION.format(namespace=namespace.name)
    for body, status, words in (
        (asks, 200, "the largest card in this cluster has"),
        (f"{asks}{'#' * LARGEST_YAML}", 413, f"limit of {LARGEST_YAML} bytes"),
    ):
        with request(tranche, editor, "POST", path, body=body, **sent) as response:
            assert (response.status, words in response.read().decode()) == (status, True)
