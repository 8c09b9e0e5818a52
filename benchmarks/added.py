"""Added latency: samples with and without a component, taken in turns."""

import msgspec

from benchmarks.results import percentile


class Added(msgspec.Struct, frozen=True):
    """Seconds of the same work with and without a component."""

    loaded: list[float] = msgspec.field(default_factory=list)
    bare: list[float] = msgspec.field(default_factory=list)

    def at(self, percent: float) -> float:
        """Return the added latency at a percentile, in milliseconds."""
        return (percentile(self.loaded, percent) - percentile(self.bare, percent)) * 1e3

    @property
    def figure(self) -> str:
        """The added latency, formatted."""
        return f"p50 {self.at(50):+.2f} ms, p99 {self.at(99):+.2f} ms"

    @property
    def reference(self) -> str:
        """The latencies with and without the component, formatted."""
        loaded, bare = (
            f"p50 {percentile(seconds, 50) * 1e3:.2f}, p99 {percentile(seconds, 99) * 1e3:.2f} ms"
            for seconds in (self.loaded, self.bare)
        )
        return f"with {loaded}; without {bare}"
