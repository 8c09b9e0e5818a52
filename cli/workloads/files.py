"""The workloads and claims of the files that `-f` names."""

from collections.abc import Iterable
from typing import Any

import msgspec

from cli.errors import CommandError
from cli.manifests import manifest_files
from cli.workloads import expand
from cli.workloads.claims import claims_in
from cli.workloads.workload import Workload


class SourcedWorkload(msgspec.Struct, frozen=True):
    """A workload of a file; `source` is its place, for messages."""

    source: str
    workload: Workload


def read(names: Iterable[str]) -> tuple[list[SourcedWorkload], list[dict[str, Any]]]:
    """Return the workloads and the claims of files.

    Raises:
        CommandError: a file cannot be read, or no file has a pod or a pod template.
    """
    names = list(names)
    workloads: list[SourcedWorkload] = []
    claims: list[dict[str, Any]] = []
    for name in names:
        label, documents = manifest_files.read(name)
        contents = (each.plain for each in documents if each.content is not None)
        for number, content in enumerate(contents, start=1):
            where = f"{label}, document {number}"
            workloads += [SourcedWorkload(f"{where}, {each.owner}", each) for each in expand.of(content)]
            claims += claims_in(content)
    if not workloads:
        raise CommandError(f"no pod and no pod template in {', '.join(names)}")
    return workloads, claims
