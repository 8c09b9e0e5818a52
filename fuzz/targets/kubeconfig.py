"""Kubeconfig files: reading one yields an identity, or an error that names the file."""

import atexit
import shutil
import tempfile
from pathlib import Path

from cli.errors import CommandError
from cli.kube import kubeconfig
from cli.kube.kubeconfig import Overrides

_FILE = Path(tempfile.mkdtemp(prefix="fuzz-")) / "config"
atexit.register(shutil.rmtree, _FILE.parent)


def try_bytes(data: bytes) -> None:
    """Read `data` as the file given by --kubeconfig."""
    _FILE.write_bytes(data)
    for flags in (
        Overrides(kubeconfig=str(_FILE)),
        Overrides(kubeconfig=str(_FILE), context="lab", cluster="c", user="u"),
    ):
        try:
            kubeconfig.read(flags)
            kubeconfig.contexts(flags)
        except CommandError as error:
            assert str(_FILE) in str(error)
