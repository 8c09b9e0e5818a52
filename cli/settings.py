"""The allocation settings of `kubectl gpu top`: those of a configuration file, or the defaults.

Separate from `cli.installation.rules`, which loads the settings of all processes and is too slow for this command.
"""

from allocation.settings import AllocationSettings
from cli.errors import ConfigurationFileError, read_text


def allocation(path: str) -> AllocationSettings:
    """Return the section `allocation` of the file at `path`, or the defaults if `path` is empty.

    Raises:
        ConfigurationFileError: the file cannot be read, or one of its keys is wrong.
    """
    if not path:
        return AllocationSettings()
    from cluster import configuration  # noqa: PLC0415 -- slow to load, and most calls name no file

    try:
        return configuration.parse(
            read_text(path), source=path, section="allocation", settings=AllocationSettings
        ).allocation
    except configuration.ConfigurationError as error:
        raise ConfigurationFileError(str(error)) from None
