"""The objects of dynamic resource allocation, resource.k8s.io/v1: classes of devices, devices, and who has them."""

import msgspec

from cluster.metadata import ObjectMeta


class DeviceClassSpec(msgspec.Struct, rename="camel", gc=False):
    """The extended resource that kube-scheduler satisfies with devices of the class; empty for most classes."""

    extended_resource_name: str = ""


class DeviceClass(msgspec.Struct, gc=False):
    """A DeviceClass, with the extended resource that it satisfies."""

    metadata: ObjectMeta
    spec: DeviceClassSpec = msgspec.field(default_factory=DeviceClassSpec)


class DeviceSelector(msgspec.Struct, gc=False):
    """The devices that a rule taints: of a driver, of a pool; an empty field selects all."""

    driver: str = ""
    pool: str = ""
    device: str = ""


class DeviceTaint(msgspec.Struct, gc=False):
    """What keeps claims that do not tolerate it off a device."""

    key: str = ""
    effect: str = ""


class DeviceTaintRuleSpec(msgspec.Struct, rename="camel", gc=False):
    """A taint, and the devices that have it; none without a selector."""

    device_selector: DeviceSelector | None = None
    taint: DeviceTaint = msgspec.field(default_factory=DeviceTaint)


class DeviceTaintRule(msgspec.Struct, gc=False):
    """A rule by which an administrator taints devices."""

    metadata: ObjectMeta
    spec: DeviceTaintRuleSpec = msgspec.field(default_factory=DeviceTaintRuleSpec)

    def keeps_off(self, driver: str, pool: str) -> bool:
        """Whether it keeps new pods from every device of a pool of a driver."""
        selector, taint = self.spec.device_selector, self.spec.taint
        return (
            selector is not None
            and taint.effect in ("NoSchedule", "NoExecute")
            and selector.driver in ("", driver)
            and selector.pool in ("", pool)
            and not selector.device
        )


class Text(msgspec.Struct, gc=False):
    """The value of an attribute, as far as it is a text."""

    string: str = ""


class DeviceAttributes(msgspec.Struct, gc=False):
    """The attribute of a device that says which card it is."""

    uuid: Text | None = None


class Device(msgspec.Struct, gc=False):
    """A device of a ResourceSlice."""

    name: str = ""
    attributes: DeviceAttributes = msgspec.field(default_factory=DeviceAttributes)

    @property
    def uuid(self) -> str:
        """The UUID of the card; empty if the driver does not say it."""
        return self.attributes.uuid.string if self.attributes.uuid is not None else ""


class Pool(msgspec.Struct, gc=False):
    """The pool of a slice, and the generation of the pool."""

    name: str = ""
    generation: int = 0


class ResourceSliceSpec(msgspec.Struct, rename="camel", gc=False):
    """The devices of one driver on a node."""

    driver: str = ""
    pool: Pool = msgspec.field(default_factory=Pool)
    node_name: str = ""
    devices: tuple[Device, ...] = ()


class ResourceSlice(msgspec.Struct, gc=False):
    """A ResourceSlice, which a DRA driver publishes."""

    metadata: ObjectMeta
    spec: ResourceSliceSpec = msgspec.field(default_factory=ResourceSliceSpec)


class AllocatedDevice(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A device that is allocated to a claim; with `admin_access` others may have it as well."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None


class AllocatedDevices(msgspec.Struct, gc=False):
    """The devices of an allocation; the API server accepts 32."""

    results: tuple[AllocatedDevice, ...] = ()


class ClaimAllocation(msgspec.Struct, gc=False):
    """The allocation of a claim."""

    devices: AllocatedDevices = msgspec.field(default_factory=AllocatedDevices)


class ResourceClaimStatus(msgspec.Struct, gc=False):
    """The status of a claim, which kube-scheduler writes."""

    allocation: ClaimAllocation | None = None


class ResourceClaim(msgspec.Struct, gc=False):
    """A ResourceClaim; what it requests is not read."""

    metadata: ObjectMeta
    status: ResourceClaimStatus = msgspec.field(default_factory=ResourceClaimStatus)

    @property
    def devices(self) -> tuple[AllocatedDevice, ...]:
        """The devices that it alone has."""
        allocation = self.status.allocation
        return tuple(each for each in allocation.devices.results if not each.admin_access) if allocation else ()
