"""Kubeconfig files as kubectl reads them, and what is said of those that it could not read either."""

import base64
import json
import stat
from pathlib import Path
from typing import Any

import certifi
import pytest
import yaml

from cli.access import access
from cli.errors import CommandError
from cli.kubeconfig import Wanted


def _config(user: dict[str, Any] | None = None, **cluster: Any) -> dict[str, Any]:
    return {
        "current-context": "one",
        "contexts": [
            {"name": "one", "context": {"cluster": "a", "user": "u", "namespace": "team"}},
            {"name": "two", "context": {"cluster": "b", "user": "u"}},
        ],
        "clusters": [
            {"name": "a", "cluster": {"server": "https://a:6443/", **cluster}},
            {"name": "b", "cluster": {"server": "http://b"}},
        ],
        "users": [
            {"name": "u", "user": {"token": "t"} if user is None else user},
            {"name": "other", "user": {"username": "me", "password": "secret"}},
        ],
    }


def _write(path: Path, content: object) -> str:
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return str(path)


def test_the_current_context_and_the_flags_that_win_over_it(tmp_path: Path) -> None:
    """Context, cluster, user and impersonation are chosen as kubectl does."""
    file = _write(tmp_path / "config", _config())
    way = access(Wanted(kubeconfig=file))
    assert (way.server, way.namespace, way.headers) == ("https://a:6443", "team", {"Authorization": "Bearer t"})
    assert access(Wanted(kubeconfig=file, context="two")).server == "http://b"
    way = access(Wanted(kubeconfig=file, cluster="b", user="other", impersonate="jane"))
    proof = base64.b64encode(b"me:secret").decode()
    assert (way.server, way.headers) == ("http://b", {"Authorization": f"Basic {proof}", "Impersonate-User": "jane"})


def test_files_are_merged_and_their_paths_are_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two entries with one name the first file's counts, and a relative path starts from its file's folder."""
    folder = tmp_path / "second"
    folder.mkdir()
    (folder / "token").write_text("from-file\n")
    first = {"contexts": [{"name": "one", "context": {"cluster": "b", "user": "filed"}}]}
    second = _config()
    second["users"].append({"name": "filed", "user": {"tokenFile": "token"}})
    files = [_write(tmp_path / "first", first), str(tmp_path / "absent"), _write(folder / "config", second)]
    monkeypatch.setenv("KUBECONFIG", ":".join(files))
    way = access(Wanted())
    assert (way.server, way.headers) == ("http://b", {"Authorization": "Bearer from-file"})


def test_a_credential_plugin_is_asked(tmp_path: Path) -> None:
    """By client-go's protocol: it is told what it is asked for, and its token is used."""
    plugin = tmp_path / "plugin"
    plugin.write_text(
        '#!/bin/sh\necho "$KUBERNETES_EXEC_INFO" > "$1"\n'
        """echo '{"kind":"ExecCredential","status":{"token":"'$WHO'-token"}}'\n"""
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IEXEC)
    told = tmp_path / "told"
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(plugin),
            "args": [str(told)],
            "env": [{"name": "WHO", "value": "me"}],
            "provideClusterInfo": True,
        }
    }
    way = access(Wanted(kubeconfig=_write(tmp_path / "config", _config(user))))
    assert way.headers == {"Authorization": "Bearer me-token"}
    info = json.loads(told.read_text())
    assert (info["kind"], info["spec"]["cluster"]["server"]) == ("ExecCredential", "https://a:6443")


def test_what_kubectl_is_leaving_behind_is_left_to_the_library(tmp_path: Path) -> None:
    """An auth-provider of old gives its token still."""
    body = base64.urlsafe_b64encode(b'{"sub":"me"}').decode().rstrip("=")
    user = {"auth-provider": {"name": "oidc", "config": {"id-token": f"h.{body}.s"}}}
    way = access(Wanted(kubeconfig=_write(tmp_path / "config", _config(user))))
    assert [value.removeprefix("Bearer ") for value in way.headers.values()] == [f"h.{body}.s"]


@pytest.mark.parametrize(
    ("content", "wanted", "said"),
    [
        ("{", {}, "is no YAML: "),
        ("[]", {}, "is no mapping but a list"),
        ("", {}, "has no current-context; name one with --context: none"),
        ({"clusters": ["a"]}, {}, "clusters: an entry is no mapping with a name"),
        (_config(), {"context": "x"}, "has no context 'x'; it has one, two; choose one with --context"),
        (_config(), {"user": "x"}, "has no user 'x'; it has other, u; choose one with --user"),
        (_config(**{"insecure-skip-tls-verify": "maybe"}), {}, "cluster a: Expected `bool`, got `str`"),
        (_config(server="a:6443"), {}, "context one: server 'a:6443' is no https:// URL"),
        (_config(**{"certificate-authority-data": "!"}), {}, "certificate-authority-data is no base64 of a PEM text"),
        (_config(**{"certificate-authority-data": "eA=="}), {}, "context one: its certificates cannot be used"),
        (_config(**{"certificate-authority": "absent"}), {}, "absent cannot be read: No such file or directory"),
        (_config({"tokenFile": "absent"}), {}, "user u, tokenFile: "),
        (_config({"exec": {"command": "/absent", "installHint": "get it"}}), {}, "/absent cannot be run: No such file"),
        (_config({"exec": {"command": "false"}}), {}, "credential plugin false failed with code 1; log in again"),
        (_config({"exec": {"command": "echo"}}), {}, "credential plugin echo answered no ExecCredential"),
    ],
)
def test_a_bad_kubeconfig_is_one_sentence(content: object, wanted: dict[str, str], said: str, tmp_path: Path) -> None:
    """It names the file or the entry, what it holds and the next step."""
    with pytest.raises(CommandError) as error:
        access(Wanted(kubeconfig=_write(tmp_path / "config", content), **wanted))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_in_a_pod_the_mount_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a kubeconfig, a pod asks its own cluster; anywhere else it is said that no cluster is named."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(CommandError, match="no cluster is named"):
        access(Wanted())
    monkeypatch.setattr("cli.access._MOUNT", tmp_path)
    for name in ("token", "namespace"):
        (tmp_path / name).write_text(name)
    (tmp_path / "ca.crt").write_text(Path(certifi.where()).read_text())
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    way = access(Wanted())
    assert (way.server, way.namespace) == ("https://[fd00::1]:443", "namespace")
    assert way.headers == {"Authorization": "Bearer token"}
