"""The configuration of the processes, for commands that must decide as they do.

It comes from the file of `--config`, else from the installation in the cluster, else from the defaults.
"""

from collections.abc import Sequence

import msgspec

from allocation.settings import AllocationSettings
from cli.errors import ConfigurationFileError, read_text
from cli.installation import installed
from cli.installation.method import Method
from cli.kube.client import Client
from cli.tables import note
from cluster import configuration
from cluster.configuration import Configuration, ConfigurationError
from scheduler.expander_settings import TemplateSettings
from scheduler.observation_settings import DraSettings
from scheduler.settings import (
    NETWORK_LEVELS,
    ConsolidationSettings,
    GangSettings,
    KubeSchedulerSettings,
    PreemptionSettings,
    SchedulerSettings,
    ScoreWeights,
)
from webhook.settings import WebhookSettings


class Rules(msgspec.Struct, frozen=True):
    """The settings of all processes.

    Attributes:
        allocation: how requests are read.
        webhook: the settings of admission.
        names: the schedulerNames of the pods that Tranche places.
        extender: whether kube-scheduler decides, and calls Tranche as its extender.
        weights: how much cards and preferences count, in loop mode.
        network_levels: the node labels that name network blocks, in loop mode.
        preemption: whether and how pods of lower priority are evicted.
        consolidation: whether and how pods are moved.
        moves_pods: whether pods can be moved at all.
        kube_scheduler: the Lease of kube-scheduler's leader, in extender mode.
        dra: the DRA drivers whose devices may be our cards.
        gangs: how pods that get nodes together are scheduled.
        node_groups: groups of nodes that may have no node yet.
        gaps: the parts of the installed configuration that cannot be read, and for which the defaults are assumed.
        method: how Tranche was installed; unknown, and as if by kubectl, if the settings come from a file.
    """

    allocation: AllocationSettings = AllocationSettings()
    webhook: WebhookSettings = WebhookSettings()
    names: tuple[str, ...] = SchedulerSettings().scheduler_names
    extender: bool = False
    weights: ScoreWeights = ScoreWeights()
    network_levels: tuple[str, ...] = NETWORK_LEVELS
    preemption: PreemptionSettings = PreemptionSettings()
    consolidation: ConsolidationSettings = ConsolidationSettings()
    kube_scheduler: KubeSchedulerSettings = KubeSchedulerSettings()
    dra: DraSettings = DraSettings()
    gangs: GangSettings = GangSettings()
    node_groups: tuple[TemplateSettings, ...] = ()
    moves_pods: bool = True
    gaps: tuple[str, ...] = ()
    method: Method = Method()

    def note_gaps(self) -> None:
        """Print a note for each gap."""
        for gap in self.gaps:
            note(f"{gap}: {installed.DEFAULTS}")


def read(path: str, client: Client) -> Rules:
    """Return the settings of the file at `path`, or the installed settings if `path` is empty.

    Raises:
        ConfigurationFileError: see `of_file` and `of_cluster`.
    """
    return of_file(path) if path else of_cluster(client)


def of_file(path: str) -> Rules:
    """Read the configuration file at `path`.

    Raises:
        ConfigurationFileError: the file cannot be read, or one of its keys is wrong.
    """
    return _rules(read_text(path), source=path)


def of_cluster(client: Client) -> Rules:
    """Read the installed settings; assume the defaults for parts that cannot be read.

    Raises:
        ConfigurationFileError: a key is wrong; the processes would not start either.
    """
    present = installed.read(client)
    chosen = _rules(
        present.text,
        source=present.source,
        scheduler_flags=present.scheduler_flags,
        webhook_flags=present.webhook_flags,
    )
    return msgspec.structs.replace(chosen, gaps=present.gaps, method=present.method)


def _rules(text: str, *, source: str, scheduler_flags: Sequence[str] = (), webhook_flags: Sequence[str] = ()) -> Rules:
    try:
        scheduler: Configuration[SchedulerSettings] = configuration.parse(
            text,
            source=source,
            flags=scheduler_flags,
            section="scheduler",
            settings=SchedulerSettings,
            others={"webhook": WebhookSettings},
        )
        webhook: Configuration[WebhookSettings] = configuration.parse(
            text, source=source, flags=webhook_flags, section="webhook", settings=WebhookSettings
        )
    except ConfigurationError as error:
        raise ConfigurationFileError(str(error)) from None
    own = scheduler.own
    return Rules(
        allocation=scheduler.allocation,
        webhook=webhook.own,
        names=own.scheduler_names,
        extender=own.extender,
        weights=own.weights,
        network_levels=own.network_levels,
        preemption=own.preemption,
        consolidation=own.consolidation,
        moves_pods=own.moves_pods,
        kube_scheduler=own.kube_scheduler,
        dra=own.dra,
        gangs=own.gangs,
        node_groups=own.expander.templates,
    )
