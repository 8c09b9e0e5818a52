"""Which environment variables users may set in a managed pod."""

import pytest

from allocation import fabric
from allocation.variables import TABLE, Ruling, is_owned
from allocation.wire import environment


def test_every_variable_has_one_row_and_a_reason() -> None:
    """A row that another row covers would have no effect."""
    for row in TABLE:
        name = row.name.replace("*", "0")
        assert [each.name for each in TABLE if each.covers(name)] == [row.name]
        assert row.reason


def test_variables_of_the_fabric_are_admitted() -> None:
    """They give no card."""
    rulings = {row.ruling for row in TABLE for name in fabric.VARIABLES if row.covers(name)}
    assert rulings == {Ruling.ADMITTED}


def test_variables_that_tranche_sets_are_owned() -> None:
    """These are all that refer to an allocation, for any card, and the core policy."""
    written = {*environment.references("main", 12), *environment.constants(priority=None, core_policy="force")}
    rows = [row for row in TABLE if row.ruling is Ruling.SET]
    assert {row.name for row in rows for name in written if row.covers(name)} == {row.name for row in rows}
    assert all(is_owned(name) for name in written)


@pytest.mark.parametrize(
    "name",
    [
        *("CUDA_DEVICE_SM_LIMIT_0", "CUDA_OVERSUBSCRIBE", "CUDA_DEVICE_MEMORY_SHARED_CACHE", "ACTIVE_OOM_KILLER"),
        *("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"),
        *("NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES", "NVIDIA_IMEX_CHANNELS", "CUDA_DISABLE_CONTROL"),
        *("NVIDIA_GPU_MEMORY_LIMIT", "NVIDIA_GPU_MEMORY_REQUEST", "NVIDIA_NVSWITCH"),
    ],
)
def test_variables_that_weaken_a_limit_are_owned(name: str) -> None:
    """HAMi-core, MPS and NVIDIA's toolkit read them."""
    assert is_owned(name)


@pytest.mark.parametrize(
    "name", ["NVIDIA_DRIVER_CAPABILITIES", "LD_PRELOAD", "CUDA_TASK_PRIORITY", "PATH", "CUDA_HOME"]
)
def test_harmless_variables_are_left_to_users(name: str) -> None:
    """Images and programs depend on them."""
    assert not is_owned(name)
