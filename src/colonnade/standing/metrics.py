"""What standing processes count, for Prometheus: studies, attempts, members, bytes, what is left of the budget.

Without the package ``prometheus-client`` nothing is counted. A metric never has the name of a person, a column or a
study as a label: members, states and observers only. An agent and a hub each have their own metrics, so that none is
exported where nothing counts it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

from colonnade.privacy.ledger.caps import Left
from colonnade.standing import office, verdict
from colonnade.standing.proposal import Ended

PREFIX = "colonnade"
_WAYS = ("direct", "hub")
_WHY_REFUSED = ("identity", "resource_exhausted", "not_found", "aborted", "invalid_argument", "question")


class _Metrics:
    """What both count: proposals by state, and attempts by how they ended."""

    states: Sequence[str]

    def __init__(self) -> None:
        try:
            import prometheus_client as prometheus
        except ImportError:
            self._prometheus: Any = None
            return
        self._prometheus, self._registry = prometheus, prometheus.CollectorRegistry()
        named: dict[str, Any] = {"registry": self._registry, "namespace": PREFIX}
        self._studies = prometheus.Gauge("studies", "Proposals by state", ["state"], **named)
        self._attempts = prometheus.Counter("attempts", "Attempts by how they ended", ["ended"], **named)
        for ended in get_args(Ended):
            self._attempts.labels(ended)
        prometheus.ProcessCollector(registry=self._registry)
        self._make(prometheus, named)

    def _make(self, prometheus: Any, named: dict[str, Any]) -> None:
        """Make those that only one of the two has."""
        raise NotImplementedError

    @property
    def counts(self) -> bool:
        """Whether anything is counted."""
        return self._prometheus is not None

    def studies(self, by_state: Mapping[str, int]) -> None:
        """How many proposals are in which state; states that are not named have none."""
        if self.counts:
            for state in self.states:
                self._studies.labels(state).set(by_state.get(state, 0))

    def attempt(self, ended: Ended) -> None:
        """One more attempt has ended."""
        if self.counts:
            self._attempts.labels(ended).inc()

    def page(self) -> tuple[bytes, str]:
        """The metrics as text, and its content type."""
        if not self.counts:
            return b"# pip install 'colonnade[console]' to count\n", "text/plain; charset=utf-8"
        return bytes(self._prometheus.generate_latest(self._registry)), str(self._prometheus.CONTENT_TYPE_LATEST)


class AgentMetrics(_Metrics):
    """The metrics of an agent."""

    states = office.STATES

    def _make(self, prometheus: Any, named: dict[str, Any]) -> None:
        self._connected = prometheus.Gauge("connected", "1 while the hub can be reached", **named)
        self._assessed = prometheus.Histogram(
            "assessment_seconds", "How long it took to check a proposal", buckets=(0.1, 0.3, 1, 3, 10, 30, 100), **named
        )
        self._left = prometheus.Gauge(
            "epsilon_left",
            "What is left of a cap, by observer and by days (0: for ever)",
            ["observer", "days"],
            **named,
        )
        self._scores = prometheus.Counter("scores", "Scores that were told to this party, or that it answered", **named)
        self._sent = prometheus.Counter("sent_bytes", "Sealed bytes that studies sent, by way", ["way"], **named)
        for way in _WAYS:
            self._sent.labels(way)

    def connected(self, now: bool) -> None:
        """Whether the hub can be reached."""
        if self.counts:
            self._connected.set(int(now))

    def assessed(self, seconds: float) -> None:
        """A proposal was checked."""
        if self.counts:
            self._assessed.observe(seconds)

    def left(self, caps: Iterable[Left]) -> None:
        """What is left of each cap; where several hold for one observer, of the one that leaves least."""
        if self.counts:
            found: dict[tuple[str, str], float] = {}
            for cap in caps:
                key = cap.who, f"{cap.days or 0:g}"
                found[key] = min(cap.left, found.get(key, cap.left))
            self._left.clear()
            for labels, epsilon in found.items():
                self._left.labels(*labels).set(epsilon)

    def sent(self, way: Literal["direct", "hub"], count: int) -> None:
        """A study that has ended sent so many bytes this way."""
        if self.counts:
            self._sent.labels(way).inc(count)

    def scored(self, people: int) -> None:
        """So many scores more were told."""
        if self.counts:
            self._scores.inc(people)


class HubMetrics(_Metrics):
    """The metrics of a hub."""

    states = verdict.STATES

    def _make(self, prometheus: Any, named: dict[str, Any]) -> None:
        self._members = prometheus.Gauge("members_present", "Members that are connected to the hub", **named)
        self._rooms = prometheus.Gauge("rooms", "Studies that run through the hub now", **named)
        self._lanes = prometheus.Gauge("lanes", "Lanes of studies that are open at the hub now", **named)
        self._relayed = prometheus.Counter("relayed_bytes", "Bytes passed on between participants", **named)
        self._refused = prometheus.Counter("refused", "Calls that were refused, by why", ["why"], **named)
        for why in _WHY_REFUSED:
            self._refused.labels(why)
        self._relayed_so_far, self._refused_so_far = 0, dict[str, int]()

    def present(self, members: int) -> None:
        """How many members are connected."""
        if self.counts:
            self._members.set(members)

    def rooms(self, now: int) -> None:
        """How many rooms are open."""
        if self.counts:
            self._rooms.set(now)

    def lanes(self, now: int) -> None:
        """How many lanes are open."""
        if self.counts:
            self._lanes.set(now)

    def relayed(self, in_all: int) -> None:
        """How many bytes were passed on since the start."""
        if self.counts:
            self._relayed.inc(in_all - self._relayed_so_far)
            self._relayed_so_far = in_all

    def refused(self, in_all: Mapping[str, int]) -> None:
        """How many calls were refused since the start, by why."""
        if self.counts:
            for why, number in in_all.items():
                self._refused.labels(why).inc(number - self._refused_so_far.get(why, 0))
            self._refused_so_far = dict(in_all)
