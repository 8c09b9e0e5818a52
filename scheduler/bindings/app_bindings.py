"""The GPUBindings of the cluster by application, and the cards that they give to a pod."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping

from allocation import names
from allocation.bindings import granted
from allocation.bindings.binding import Binding, ShareMode
from allocation.bindings.bound_cards import BoundCard, BoundCards, ConsumePolicy
from allocation.bindings.granted import Granted
from allocation.ledger.ledger import Ledger
from allocation.reasons import PodReason
from allocation.settings import BindingSettings
from cluster.gpu_binding import GpuBinding
from scheduler.bindings.app_pods import AppPods
from scheduler.gpu_requirements import WaitingPodError
from scheduler.objects import Pod


class AppBindings:
    """The bindings by name, indexed by application; a pod without a binding waits for one.

    Attributes:
        settings: which pods are concerned.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        settings: BindingSettings,
        on_change: Callable[[Collection[str]], object] = lambda _uids: None,
    ) -> None:
        """Find the nodes of cards and the cards of pods in `ledger`, and note there that a binding has changed.

        `on_change` is then called with the UIDs of the pods that the binding, or its previous state, may concern.
        """
        self.settings = settings
        self._pods = AppPods(ledger)
        self._ledger = ledger
        self._on_change = on_change
        self._bindings: dict[str, Binding] = {}
        self._by_app: defaultdict[str, dict[str, Binding]] = defaultdict(dict)
        self._share_modes: dict[str, Mapping[str, ShareMode]] = {}
        """By node and UUID."""

    def __len__(self) -> int:
        """Return the number of bindings."""
        return len(self._bindings)

    def __iter__(self) -> Iterator[Binding]:
        """Iterate over the bindings."""
        return iter(tuple(self._bindings.values()))

    @property
    def is_on(self) -> bool:
        """Whether bindings are applied to any pod."""
        return self.settings.mode != "off"

    # ---- objects ---------------------------------------------------------------------------------------------------

    def set(self, binding: GpuBinding, _old: GpuBinding | None = None) -> None:
        """Set the state of a GPUBinding."""
        new, old = binding.binding, self._bindings.get(binding.metadata.name)
        if new == old:
            return
        app = new.spec.app_name
        concerned = self._remove(old) if old is not None else frozenset()
        self._bindings[new.name] = self._by_app[app][new.name] = new
        self._changed({*concerned, *self._pods.of_app(app)})

    def drop(self, binding: GpuBinding) -> None:
        """Forget a GPUBinding; pods that have its card keep it."""
        old = self._bindings.get(binding.metadata.name)
        if old is not None:
            self._changed(self._remove(old))

    def _remove(self, old: Binding) -> Collection[str]:
        """Remove a binding; return the UIDs of the pods of its application."""
        app = old.spec.app_name
        del self._bindings[old.name], self._by_app[app][old.name]
        if not self._by_app[app]:
            del self._by_app[app]
        return self._pods.of_app(app)

    def _changed(self, concerned: Collection[str]) -> None:
        self._ledger.changes.add_other()
        self._on_change(concerned)

    def set_share_modes(self, node: str, modes: Mapping[str, ShareMode]) -> None:
        """Set how pods share the cards of a node; a card without a mode is time-sliced."""
        if modes:
            self._share_modes[node] = modes
        else:
            self._share_modes.pop(node, None)

    def of_app(self, app: str) -> Collection[Binding]:
        """Return the bindings of an application."""
        return self._by_app.get(app, {}).values()

    # ---- pods ------------------------------------------------------------------------------------------------------

    def set_pod(self, pod: Pod) -> Collection[str]:
        """Set the state of a live pod; return the UIDs of the pods that may have cards which it had."""
        return self._pods.set(pod) if self.is_on else ()

    def drop_pod(self, uid: str) -> Collection[str]:
        """Forget a pod that is finished or deleted; return the UIDs of the pods that may have its cards."""
        return self._pods.drop(uid)

    def peers(self, uid: str) -> Collection[str]:
        """Return the UIDs of the other pods of a pod's application."""
        return self._pods.peers(uid)

    def concern(self, labels: Mapping[str, str], namespace: str) -> bool:
        """Whether bindings decide about the cards of a pod with these labels."""
        return granted.concern(labels, namespace, self.settings)

    def granted(self, labels: Mapping[str, str], namespace: str) -> Granted | None:
        """Return what bindings give a pod with these labels; None if they do not concern it."""
        return Granted.of_labels(labels, namespace, find_bindings=self.of_app, settings=self.settings)

    def cards(
        self, given: Granted, *, policy: ConsumePolicy, other_than: Collection[str], is_instance: bool = False
    ) -> BoundCards:
        """Return the cards that bindings give a pod, with how it shares them and who has them.

        `other_than` are the UIDs of the pods that do not use up any of them: the pod itself, and those that go. With
        `is_instance` the pod gets instances of them by its claim.

        Raises:
            WaitingPodError: no card may be given to the pod, because it belongs to no application, or no binding gives
                one to its application.
        """
        identity = given.identity
        if identity is None:
            why = f"pod has no owner application: set label {names.APP_NAME} on it, as the application's service does"
            raise WaitingPodError(PodReason.NoOwnerApplication, why)
        if not given.grants:
            why = f"no card bound to {identity} in namespace {identity.namespace}"
            raise WaitingPodError(PodReason.NoGpuBinding, f"{why}: a GPUBinding has to name the app and select the pod")
        consumers = self._pods.consumers(identity, other_than=other_than)
        cards = (
            BoundCard(each, self._share_mode(each.card), consumers.get(each.card, ()), is_instance)
            for each in given.grants
        )
        return BoundCards(identity, policy, tuple(cards))

    def _share_mode(self, card: str) -> ShareMode:
        position = self._ledger.position(card)
        modes = self._share_modes.get(self._ledger.node(position[0]), {}) if position is not None else {}
        return modes.get(card, "time-slicing")
