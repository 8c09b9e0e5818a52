"""Kubeconfig files are read as kubectl reads them; a wrong file is a clear error."""

import base64
import json
import stat
import sys
from pathlib import Path
from typing import Any

import certifi
import pytest
import yaml

from cli.errors import CommandError
from cli.kube import kubeconfig
from cli.kube.access import access
from cli.kube.kubeconfig import Overrides


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


def test_flags_override_the_current_context(tmp_path: Path) -> None:
    """Context, cluster, user and impersonation are chosen as by kubectl."""
    file = _write(tmp_path / "config", _config())
    result = access(Overrides(kubeconfig=file))
    assert (result.server, result.namespace, result.headers) == (
        "https://a:6443",
        "team",
        {"Authorization": "Bearer t"},
    )
    assert access(Overrides(kubeconfig=file, context="two")).server == "http://b"
    result = access(Overrides(kubeconfig=file, cluster="b", user="other", impersonate="jane"))
    proof = base64.b64encode(b"me:secret").decode()
    assert (result.server, result.headers) == (
        "http://b",
        {"Authorization": f"Basic {proof}", "Impersonate-User": "jane"},
    )


def test_files_are_merged_and_paths_are_relative_to_their_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first entry with a name wins, and a relative path starts from the folder of its file."""
    folder = tmp_path / "second"
    folder.mkdir()
    (folder / "token").write_text("from-file\n")
    first = {"contexts": [{"name": "one", "context": {"cluster": "b", "user": "filed"}}]}
    second = _config()
    second["users"].append({"name": "filed", "user": {"tokenFile": "token"}})
    files = [_write(tmp_path / "first", first), str(tmp_path / "absent"), _write(folder / "config", second)]
    monkeypatch.setenv("KUBECONFIG", ":".join(files))
    result = access(Overrides())
    assert (result.server, result.headers) == ("http://b", {"Authorization": "Bearer from-file"})


def test_credential_plugin_provides_the_token(tmp_path: Path) -> None:
    """The plugin receives KUBERNETES_EXEC_INFO as from client-go, and its token is used."""
    plugin = tmp_path / "plugin"
    plugin.write_text(
        '#!/bin/sh\necho "$KUBERNETES_EXEC_INFO" > "$1"\n'
        """echo '{"kind":"ExecCredential","status":{"token":"'$WHO'-token"}}'\n"""
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IEXEC)
    exec_info = tmp_path / "exec-info"
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(plugin),
            "args": [str(exec_info)],
            "env": [{"name": "WHO", "value": "me"}],
            "provideClusterInfo": True,
        }
    }
    result = access(Overrides(kubeconfig=_write(tmp_path / "config", _config(user))))
    assert result.headers == {"Authorization": "Bearer me-token"}
    info = json.loads(exec_info.read_text())
    assert (info["kind"], info["spec"]["cluster"]["server"]) == ("ExecCredential", "https://a:6443")


def test_auth_provider_is_supported(tmp_path: Path) -> None:
    """A deprecated auth-provider still provides its token."""
    body = base64.urlsafe_b64encode(b'{"sub":"me"}').decode().rstrip("=")
    user = {"auth-provider": {"name": "oidc", "config": {"id-token": f"h.{body}.s"}}}
    result = access(Overrides(kubeconfig=_write(tmp_path / "config", _config(user))))
    assert [value.removeprefix("Bearer ") for value in result.headers.values()] == [f"h.{body}.s"]


@pytest.mark.parametrize(
    ("content", "flags", "message"),
    [
        ("{", {}, "is not YAML: "),
        ("[]", {}, "is not a mapping but a list"),
        ("", {}, "has no current-context; choose one of its contexts with --context: none"),
        ({"clusters": ["a"]}, {}, "clusters: an entry is not a mapping with a name"),
        (_config(), {"context": "x"}, "has no context 'x'; it has one, two; choose one with --context"),
        (_config(), {"user": "x"}, "has no user 'x'; it has other, u; choose one with --user"),
        (_config(**{"insecure-skip-tls-verify": "maybe"}), {}, "cluster a: Expected `bool`, got `str`"),
        (_config(server="a:6443"), {}, "context one: server 'a:6443' is not an https:// URL"),
        (_config(**{"certificate-authority-data": "!"}), {}, "certificate-authority-data is not a PEM text in base64"),
        (_config(**{"certificate-authority-data": "eA=="}), {}, "context one: its certificates cannot be used"),
        (_config(**{"certificate-authority": "absent"}), {}, "absent cannot be read: No such file or directory"),
        (_config({"tokenFile": "absent"}), {}, "user u, tokenFile: "),
        (_config({"exec": {"command": "/absent", "installHint": "get it"}}), {}, "/absent cannot be run: No such file"),
        (_config({"exec": {"command": "false"}}), {}, "credential plugin false failed with code 1; log in again"),
        (_config({"exec": {"command": "echo"}}), {}, "credential plugin echo did not print an ExecCredential"),
    ],
)
def test_wrong_kubeconfig_is_a_one_line_error(
    content: object, flags: dict[str, str], message: str, tmp_path: Path
) -> None:
    """The line names the file or the entry, its value and the next step."""
    with pytest.raises(CommandError) as error:
        access(Overrides(kubeconfig=_write(tmp_path / "config", content), **flags))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_service_account_is_used_inside_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a kubeconfig, a pod uses its own cluster; outside of a pod the error says that none is configured."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(CommandError, match="no cluster is configured"):
        access(Overrides())
    monkeypatch.setattr("cli.kube.access._MOUNT", tmp_path)
    for name in ("token", "namespace"):
        (tmp_path / name).write_text(name)
    (tmp_path / "ca.crt").write_text(Path(certifi.where()).read_text())
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    result = access(Overrides())
    assert (result.server, result.namespace) == ("https://[fd00::1]:443", "namespace")
    assert result.headers == {"Authorization": "Bearer token"}


def test_windows_has_several_homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As kubectl, the first of HOME, HOMEDRIVE with HOMEPATH, and USERPROFILE that has a kubeconfig counts."""
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    for variable, name in (("HOME", "a"), ("HOMEPATH", "b"), ("USERPROFILE", "c")):
        monkeypatch.setenv(variable, str(tmp_path / name))
    monkeypatch.setenv("HOMEDRIVE", "")
    for name in ("c", "b", "a"):
        file = tmp_path / name / ".kube" / "config"
        file.parent.mkdir(parents=True)
        file.touch()
        assert kubeconfig.paths(Overrides()) == [file]


def test_client_certificate_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its key is on disk only while OpenSSL reads it, in a folder of the user."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen: list[int] = []

    def load(_: object, file: Path) -> None:
        seen.append(file.parent.stat().st_mode & 0o777)
        assert "key" in file.read_text()

    monkeypatch.setattr("ssl.SSLContext.load_cert_chain", load)
    certificate, key = (base64.b64encode(each).decode() for each in (b"certificate", b"key"))
    user = {"client-certificate-data": certificate, "client-key-data": key}
    kept = tmp_path / "config"
    access(Overrides(kubeconfig=_write(kept, _config(user))))
    assert seen == [0o700]
    assert list(tmp_path.iterdir()) == [kept]
