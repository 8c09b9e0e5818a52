"""`python -m agent.mps_daemon`: run the control daemon of MPS on this node until it ends or this process has to.

The kubelet starts it again. Whether containers can use it is asked by the agent, at its socket (`agent.isolation`).
"""

import asyncio
import logging
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from agent import isolation
from agent.settings import AgentSettings
from cluster import process
from cluster.configuration import load

log = logging.getLogger(__name__)

QUIT_SECONDS: Final = 60.0
"""How long the daemon may take to end the servers of its clients; manifests/mps leaves the pod more than that."""


class DaemonError(Exception):
    """The daemon cannot run, or has ended by itself."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the daemon until SIGTERM or SIGINT; if it ends before, print the reason and exit with code 1."""
    configuration = load(
        argv,
        section="agent",
        settings=AgentSettings,
        prog="tranche-mps",
        description="Runs the control daemon of MPS for the containers of a node.",
    )
    process.run(partial(serve, configuration.own), log=configuration.log, failures=(DaemonError, OSError))


async def serve(settings: AgentSettings, stop: asyncio.Event) -> None:
    """Run the daemon until `stop` is set.

    Raises:
        DaemonError: it cannot run, or has ended by itself.
        OSError: the pipe directory cannot be made or written.
    """
    prepare(Path(settings.mps_pipe_directory))
    daemon = await _started(settings)
    ended, stopped = asyncio.create_task(daemon.wait()), asyncio.create_task(stop.wait())
    await asyncio.wait((ended, stopped), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if ended.done():
        raise DaemonError(
            f"{settings.mps_program} ended with code {ended.result()}: the reason is above, or in its logs in"
            f" {settings.mps_log_directory}"
        )
    try:
        async with asyncio.timeout(QUIT_SECONDS):
            await daemon.communicate(b"quit\n")
    except TimeoutError:
        log.warning("the control daemon did not quit within %.0f s: it is killed", QUIT_SECONDS)
        daemon.kill()
    await ended


async def _started(settings: AgentSettings) -> asyncio.subprocess.Process:
    folders = {
        "CUDA_MPS_PIPE_DIRECTORY": settings.mps_pipe_directory,
        "CUDA_MPS_LOG_DIRECTORY": settings.mps_log_directory,
    }
    try:
        return await asyncio.create_subprocess_exec(
            *(settings.mps_program, "-f", *settings.mps_arguments),
            # It reads commands from its standard input, and ends with it.
            stdin=asyncio.subprocess.PIPE,
            env={**os.environ, **folders},
        )
    except OSError as error:
        raise DaemonError(
            f"{settings.mps_program}: {error.strerror}: NVIDIA's runtime brings it with the driver, if the pod has its"
            " RuntimeClass"
        ) from None


def prepare(pipes: Path) -> None:
    """Make the pipe directory, which only this user may write, and remove the socket of a daemon that has gone.

    Raises:
        DaemonError: another daemon listens there.
        OSError: the directory cannot be made or written.
    """
    pipes.mkdir(mode=0o755, parents=True, exist_ok=True)
    if not isolation.mps_problem(str(pipes)):
        raise DaemonError(
            f"another control daemon of MPS listens at {pipes}/control: end it, or set agent.mps_pipe_directory"
        )
    (pipes / "control").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
