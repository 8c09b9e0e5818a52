"""A kubeconfig file: who is meant, or an error that names the file."""

import atexit
import shutil
import tempfile
from pathlib import Path

from cli import kubeconfig
from cli.errors import CommandError
from cli.kubeconfig import Wanted

_FILE = Path(tempfile.mkdtemp(prefix="fuzz-")) / "config"
atexit.register(shutil.rmtree, _FILE.parent)


def try_bytes(data: bytes) -> None:
    """Read `data` as the file that a flag names."""
    _FILE.write_bytes(data)
    for wanted in (Wanted(kubeconfig=str(_FILE)), Wanted(kubeconfig=str(_FILE), context="lab", cluster="c", user="u")):
        try:
            kubeconfig.read(wanted)
            kubeconfig.contexts(wanted)
        except CommandError as error:
            assert str(_FILE) in str(error)
