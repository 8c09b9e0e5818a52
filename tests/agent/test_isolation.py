from pathlib import Path

from agent.isolation import backends
from agent.settings import AgentSettings


def test_backend_is_offered_if_its_files_exist(tmp_path: Path) -> None:
    """A pod with HAMi-core or MPS must find the library or the daemon's directory; `none` always works."""
    library, pipes = tmp_path / "libvgpu.so", tmp_path / "nvidia-mps"
    settings = AgentSettings(hami_core_library=str(library), mps_pipe_directory=str(pipes))
    assert backends(settings) == ("none",)
    library.touch()
    assert backends(settings) == ("none", "hami-core")
    pipes.mkdir()
    assert backends(settings) == ("none", "hami-core", "mps")


def test_empty_setting_withholds_a_backend(tmp_path: Path) -> None:
    """An administrator can withhold a backend that is installed."""
    assert backends(AgentSettings(hami_core_library="", mps_pipe_directory="")) == ("none",)
