"""What standing processes count, for Prometheus: studies, attempts, members, bytes, what is left of the budget.

Without the package ``prometheus-client`` nothing is counted. A metric never has the name of a person, a column or a
study as a label: members, states and observers only. An agent and a hub each have their own metrics, so that none is
exported where nothing counts it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from colonnade.privacy.ledger.caps import Left
from colonnade.standing import office, verdict
from colonnade.standing.proposal import Ended

PREFIX = "colonnade"
_WHY_REFUSED = ("identity", "resource_exhausted", "not_found", "aborted", "invalid_argument", "question")


class _Uncounted:
    """A metric where nothing is counted."""

    def _ignore(self, *_: object) -> _Uncounted:
        return self

    labels = set = inc = observe = clear = _ignore


class Metrics:
    """What agents and hubs both count: proposals by state, and attempts by how they ended."""

    states: Sequence[str]

    def __init__(self) -> None:
        try:
            import prometheus_client
        except ImportError:
            self._prometheus: Any = None
        else:
            self._prometheus, self._registry = prometheus_client, prometheus_client.CollectorRegistry()
            prometheus_client.ProcessCollector(registry=self._registry)
        self._studies = self.gauge("studies", "Proposals by state", "state")
        self.attempts = self.counter("attempts", "Attempts by how they ended", "ended", get_args(Ended))

    def gauge(self, name: str, what: str, *labels: str) -> Any:
        """A metric that goes up and down."""
        if self._prometheus is None:
            return _Uncounted()
        return self._prometheus.Gauge(name, what, labels, namespace=PREFIX, registry=self._registry)

    def counter(self, name: str, what: str, label: str | None = None, values: Iterable[str] = ()) -> Any:
        """A metric that only grows, by the values of one label if there is one."""
        if self._prometheus is None:
            return _Uncounted()
        labels = () if label is None else (label,)
        made = self._prometheus.Counter(name, what, labels, namespace=PREFIX, registry=self._registry)
        for value in values:
            made.labels(value)
        return made

    def count_studies(self, by_state: Mapping[str, int]) -> None:
        """How many proposals are in which state; states that are not named have none."""
        for state in self.states:
            self._studies.labels(state).set(by_state.get(state, 0))

    def page(self) -> tuple[bytes, str]:
        """The metrics as text, and its content type."""
        if self._prometheus is None:
            return b"# pip install 'colonnade[console]' to count\n", "text/plain; charset=utf-8"
        return bytes(self._prometheus.generate_latest(self._registry)), str(self._prometheus.CONTENT_TYPE_LATEST)


class AgentMetrics(Metrics):
    """The metrics of an agent."""

    states = office.STATES

    def __init__(self) -> None:
        super().__init__()
        self.connected = self.gauge("connected", "1 while the hub can be reached")
        self.assessment_seconds: Any = _Uncounted()
        if self._prometheus is not None:
            self.assessment_seconds = self._prometheus.Histogram(
                "assessment_seconds",
                "How long it took to check a proposal",
                buckets=(0.1, 0.3, 1, 3, 10, 30, 100),
                namespace=PREFIX,
                registry=self._registry,
            )
        self._left = self.gauge(
            "epsilon_left", "What is left of a cap, by observer and by days (0: for ever)", "observer", "days"
        )
        self.scores = self.counter("scores", "Scores that were told to this party, or that it answered")
        self.sent = self.counter("sent_bytes", "Sealed bytes that studies sent, by way", "way", ("direct", "hub"))

    def show_left(self, caps: Iterable[Left]) -> None:
        """What is left of each cap; where several hold for one observer, of the one that leaves least."""
        found: dict[tuple[str, str], float] = {}
        for cap in caps:
            key = cap.who, f"{cap.days or 0:g}"
            found[key] = min(cap.left, found.get(key, cap.left))
        self._left.clear()
        for labels, epsilon in found.items():
            self._left.labels(*labels).set(epsilon)


class HubMetrics(Metrics):
    """The metrics of a hub."""

    states = verdict.STATES

    def __init__(self) -> None:
        super().__init__()
        self.members = self.gauge("members_present", "Members that are connected to the hub")
        self.rooms = self.gauge("rooms", "Studies that run through the hub now")
        self.lanes = self.gauge("lanes", "Lanes of studies that are open at the hub now")
        self._relayed = self.counter("relayed_bytes", "Bytes passed on between participants")
        self._refused = self.counter("refused", "Calls that were refused, by why", "why", _WHY_REFUSED)
        self._relayed_so_far, self._refused_so_far = 0, dict[str, int]()

    def count_traffic(self, relayed: int, refused: Mapping[str, int]) -> None:
        """How many bytes were passed on, and how many calls refused, by why; both since the start."""
        self._relayed.inc(relayed - self._relayed_so_far)
        for why, number in refused.items():
            self._refused.labels(why).inc(number - self._refused_so_far.get(why, 0))
        self._relayed_so_far, self._refused_so_far = relayed, dict(refused)
