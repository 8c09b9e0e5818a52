"""What an administrator may decide about the scheduler."""

import msgspec

from cluster.election import ElectionSettings


class SchedulerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The scheduler's section of the configuration file.

    Attributes:
        host: where HTTP (health, metrics) listens; loopback unless said otherwise.
        port: its port.
        aliases: schedulerNames besides `tranche` whose pods are ours.
        concurrent_binds: Bindings under way at once.
        request_timeout_seconds: the server-side time limit of a Binding.
        relist_seconds: how often the whole state is read again, whatever the watches say.
        first_backoff_seconds: the pause after a pod's first failed attempt; it doubles.
        longest_backoff_seconds: the longest such pause.
        mig_wish_seconds: how long an agent has to make a MIG instance; nothing is asked of its card for as long again.
        election: who leads, and for how long without proof.
        drain_seconds: how long a process that is told to end waits for Bindings and events under way.
    """

    host: str = "127.0.0.1"
    port: int = 8444
    aliases: tuple[str, ...] = ()
    concurrent_binds: int = 64
    request_timeout_seconds: float = 10.0
    relist_seconds: float = 120.0
    first_backoff_seconds: float = 0.2
    longest_backoff_seconds: float = 5.0
    mig_wish_seconds: float = 120.0
    election: ElectionSettings = ElectionSettings()
    drain_seconds: float = 10.0
