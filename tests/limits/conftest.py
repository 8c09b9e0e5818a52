"""The programs that show which limit a process meets."""

import pytest

from tests.cuda.programs import Programs, build


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """The stubs and the probe, compiled once."""
    return build(tmp_path_factory.mktemp("cuda"))
