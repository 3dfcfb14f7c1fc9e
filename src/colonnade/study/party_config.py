"""A party's own configuration: where its table and key are, and what it allows. Private to the party."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from colonnade.disk import reading
from colonnade.errors import DataError, PolicyError, PrivacyError, StudyError
from colonnade.models.base import Estimator
from colonnade.privacy import Budget, Event, Ledger, NonPrivate, PostProcessing, Statement, parse_budgets
from colonnade.privacy.events import audience_of
from colonnade.privacy.ledger.approvers import BY_PROGRAM, Approver
from colonnade.privacy.ledger.caps import (
    AbortedStudiesLimit,
    AlignmentsLimit,
    BudgetForecast,
    CapPeriod,
    RemainingBudget,
    SpendingAccounts,
    with_hub_analyst,
)
from colonnade.privacy.ledger.participants import DisclosedStudy
from colonnade.privacy.observers import OTHERS
from colonnade.study.party_file import AgentSection, ApprovalMode, CapSection, PartyFile
from colonnade.study.spec import Study, first_problem, load_kept_file, read_toml
from colonnade.tables import Schema, Table, read_table
from colonnade.tables.cell_parsing import TextFormat, format_as_toml
from colonnade.tables.keys import KeyColumn, KeyPlan, key_columns
from colonnade.tables.sources.base import TableSource
from colonnade.tables.sources.databases import Query
from colonnade.tables.sources.factory import open_source
from colonnade.wire import Certificate

Approval = Callable[[Study, Statement], bool]
LEAST_DIGITS = 32
"""128 bits: with fewer digits, somebody could search for two studies whose digests begin alike."""


@dataclass(frozen=True)
class DigestApproval:
    """Approves the one study whose digest starts with these digits."""

    digits: str
    how: str = "the digest given with --approve"
    approvers: tuple[Approver, ...] = ()
    """Whose yes an agent has on record; otherwise whoever types the digest says it."""

    def __call__(self, study: Study, statement: Statement) -> bool:
        """True if the digest is that of this study; otherwise an error says why it is not."""
        if not re.fullmatch(rf"[0-9a-f]{{{LEAST_DIGITS},64}}", self.digits.lower()):
            raise PolicyError(
                f"--approve takes {LEAST_DIGITS} to 64 hexadecimal digits of the digest of the study [PO010]"
            )
        if not study.digest.startswith(self.digits.lower()):
            raise PolicyError(
                f"--approve names another study than {study.name!r} as it stands here, whose digest is "
                f"{study.digest}; look at what it costs now before you approve it [PO011]"
            )
        return True


@dataclass(eq=False)
class PartyConfig:
    """A party file, with its paths resolved."""

    path: Path
    content: PartyFile
    asked_by: str = ""
    """Who asks for what runs now, where it was proposed or stands open; it is no part of the file."""

    @classmethod
    def load(cls, path: str | Path) -> PartyConfig:
        """Read and check a party file."""
        path = Path(path)
        raw = read_toml(path, "party file")
        if "task" in raw and "policy" not in raw:
            raise StudyError(f"{path} is a study file: name the party's own file in its place [ST571]")
        if "columns" in raw and "policy" not in raw:
            raise StudyError(f"{path} is a schema: name the party's own file in its place [ST572]")
        try:
            return cls(path, PartyFile.model_validate(raw))
        except ValidationError as error:
            raise StudyError(f"{path}: {first_problem(error)} [ST573]") from None

    @property
    def name(self) -> str:
        """The party's name."""
        return self.content.name

    @property
    def data(self) -> str | Path | Query:
        """Where the party's table lies: a path or a pattern, the address of a store, or a query."""
        return self.content.table_source(self.path.parent)

    def source(self, text: TextFormat | None = None) -> TableSource:
        """The party's table, not read yet; ``text`` is how CSV files are written, if more is known than it says."""
        return open_source(self.data, None, text or self.content.text_format)

    @property
    def key(self) -> Path:
        """The party's private key; its certificate lies beside it."""
        return self.path.parent / self.content.key

    @property
    def ledger(self) -> Path:
        """The party's ledger."""
        return self.path.parent / self.content.ledger

    @property
    def kept(self) -> Path | None:
        """The file of the weights that the party keeps of a model; ``None`` if its configuration names none."""
        return None if self.content.kept is None else self.path.parent / self.content.kept

    @property
    def spool(self) -> Path:
        """The folder in which its table lies in partitions while a study in lanes runs."""
        return self.path.parent / (self.content.compute.spool or ".")

    @property
    def alignments(self) -> Path:
        """The folder in which the party keeps earlier alignments."""
        return self.ledger.parent / "alignments"

    @property
    def agent_section(self) -> AgentSection:
        """What the party file says of its agent; an error if it has no such section."""
        if self.content.agent is None:
            raise StudyError(
                f'{self.path} has no [agent] section: add one, with federation = "FEDERATION.toml", as '
                "docs/how-to/federation.md says [ST574]"
            )
        return self.content.agent

    @property
    def caps(self) -> tuple[Budget, ...]:
        """The most that each observer may ever learn; with an agent, also an analyst who watches the hub."""
        return self._budgets(self.content.policy.budget)

    @property
    def periods(self) -> tuple[CapPeriod, ...]:
        """The most that each observer may learn within so many days."""
        parts = self.content.policy.periods
        return tuple(CapPeriod(part.days, self._budgets(part)) for part in parts)

    def _budgets(self, part: CapSection) -> tuple[Budget, ...]:
        budgets = parse_budgets(part.epsilon, part.delta)
        return budgets if self.content.agent is None else with_hub_analyst(budgets)

    @property
    def failures(self) -> AbortedStudiesLimit:
        """How many studies may end early: each of them may have told whoever asked something."""
        return AbortedStudiesLimit(self.content.policy.failures.at_most, self.content.policy.failures.days)

    @property
    def alignment_limit(self) -> AlignmentsLimit:
        """How many alignments may be made: each tells others who is on this party's list."""
        part = self.content.policy.alignments
        return AlignmentsLimit(part.at_most, part.days, part.at_most_each or -(-part.at_most // 4))

    def note_alignment(self, study: Study) -> None:
        """Write down that the people of a study are about to be aligned, or refuse it if there were too many."""
        self.open_ledger().note_alignment(study.name, study.trust, self.alignment_limit, self.asked_by)

    @property
    def approval(self) -> ApprovalMode:
        """How a study that the policy and the budget allow is approved."""
        return self.content.policy.approval

    @property
    def policy_approver(self) -> Approver:
        """Who says yes where nobody is asked."""
        return Approver("the policy, within its budget", "policy", self.path.name)

    def approve(self, study: Study, statement: Statement, approve: Approval | None) -> tuple[str, tuple[Approver, ...]]:
        """How a study was approved, in words, and by whom, or an error; called before anything is reserved or sent."""
        self._check_open()
        if isinstance(approve, DigestApproval):
            approve(study, statement)  # a digest of another study is a mistake, even where the policy approves
        known = getattr(approve, "approvers", (BY_PROGRAM,))
        if self.approval == "auto-within-budget":
            by = (isinstance(approve, DigestApproval) and approve.approvers) or (self.policy_approver,)
            return ", ".join(map(str, by)), by
        if approve is None:
            raise PolicyError(
                f"nobody approved study {study.name!r} for {self.name}: {self.path.name} says to ask and there is no "
                f"terminal, so look at what it costs and add `--approve {study.digest}` [PO012]"
            )
        rule = self.content.policy.rule
        counted = rule.count(known := known or (Approver.at_terminal(),))
        if len(counted) < rule.needed:
            raise PolicyError(
                f"{self.path.name} of {self.name} asks for the yes of {rule}, and study {study.name!r} has that of "
                f"{', '.join(map(str, counted)) or 'nobody who counts'}: propose it to an agent, in whose console "
                "people sign in [PO780]"
            )
        if not approve(study, statement):
            raise PolicyError(
                f"study {study.name!r} was not approved by {self.name}'s operator; nothing was sent [PO013]"
            )
        return str(getattr(approve, "how", known[0])), counted

    def table(self, schema: Schema, plan: KeyPlan | None = None, label: str | None = None) -> Table:
        """The party's table, checked row by row before anything is sent; with keys if the study aligns people.

        Cells that the schema has no place for are mapped and counted, or an error if the party's file says so. Rows
        without a ``label`` are left out of the keys.
        """
        if plan is None and self.content.id is None:
            raise StudyError(
                f"{self.path.name} of {self.name} names no id column, and the study has no [align]: "
                'add id = "COLUMN", whose ids must be those of the other parties [ST575]'
            )
        columns = None if plan is None else self.key_columns(plan)
        own = self.content
        written = schema.with_text_format(own.text_format)
        table = read_table(self.data, written, id=own.id, keys=plan, columns=columns, misfits=own.misfits, label=label)
        table.check()
        return table

    def count_rows(self, schema: Schema) -> int | None:
        """How many rows the party's table has, which no other participant is told; ``None`` if it cannot be read."""
        with suppress(DataError):
            return self.source(schema.with_text_format(self.content.text_format).text).count()
        return None

    def key_columns(self, plan: KeyPlan) -> dict[str, KeyColumn]:
        """In which column this party has each part of a study's key."""
        given = {name: KeyColumn(part.column, part.format) for name, part in self.content.keys.items()}
        return key_columns(plan.keys, given, self.content.id, str(self.path))

    def key_news(self, study: Study) -> str | None:
        """A sentence about the columns by which the study recognises this party's people, if it aligns them."""
        if study.aligning is None:
            return None
        held = ", ".join(f"{part} in {at.column!r}" for part, at in self.key_columns(study.aligning.plan).items())
        return f"{self.name}'s keys in this study, whose cells are compared exactly, outside every epsilon: {held}"

    def estimator(self, study: Study) -> Estimator:
        """The study's model, with this party's own weights if the study needs them; checked before anything is sent."""
        model = study.estimator()
        own = self.content.encoder
        model.equip(self.name, None if own is None else own.resolve(self.path))
        load_kept_file(model, self.name, self.kept, self.path)
        return model

    def check_membership(self, study: Study) -> None:
        """Raise an error if this party is not in the study."""
        if self.name not in study.content.parties:
            raise PolicyError(
                f"{self.name} is not a party of study {study.name!r}; those are "
                f"{', '.join(study.content.parties)} [PO014]"
            )

    def check(self, study: Study) -> None:
        """Raise an error if the policy does not allow the study."""
        self.check_membership(study)
        self._check_open()
        for cap in (*self.caps, *(cap for period in self.periods for cap in period.budgets)):
            self._check_cap(cap, study)
        if (objection := next(self._objections(study), None)) is not None:
            raise PolicyError(objection)
        if self.ledger.exists():
            self.open_ledger().check_aborted_studies(self.failures)

    def charged_events(self, study: Study) -> tuple[Event, ...]:
        """The events that are charged to this party: all but those that are opened to this party alone."""
        others = tuple(event for event in study.events if audience_of(event) != (self.name,))
        return others or (PostProcessing(f"opened to {self.name} alone", audience=(self.name,)),)

    def check_budget(self, study: Study) -> None:
        """Raise an error if the caps do not allow the study; nothing is reserved, and no ledger is made."""
        asked = (study.name, self.charged_events(study), study.trust, self.caps, self.periods, self.ledger_keys(study))
        if self.ledger.exists():
            self.open_ledger().check(*asked)
        else:
            name, events, trust, caps, periods, keys = asked
            self._new().refuse(name, DisclosedStudy.of(self.name, events, trust, keys), caps, periods)

    def foresee(self, study: Study, attempts: int) -> tuple[BudgetForecast, ...]:
        """What would be left of each cap after a study that may take so many attempts; no ledger is made."""
        asked = (self.charged_events(study), study.trust, self.caps, self.periods, self.ledger_keys(study), attempts)
        if self.ledger.exists():
            return self.open_ledger().forecast(*asked)
        events, trust, caps, periods, keys, _ = asked
        return self._new().forecast(caps, periods, DisclosedStudy.of(self.name, events, trust, keys), attempts)

    def ledger_keys(self, study: Study) -> dict[str, str]:
        """The keys by which the ledger recognises everybody: of a member that has another one by now, its first."""
        agent, first = self.content.agent, dict[str, str]()
        if agent is not None and (file := self.path.parent / agent.federation).exists():
            try:
                members = reading.read_toml(file)["members"]
                former = {name: each["formerly"] for name, each in members.items() if "formerly" in each}
            except (reading.UnreadableFile, reading.MalformedFile, KeyError, TypeError, AttributeError):
                raise StudyError(f"{file} cannot be read, and it says whose key is another one now [ST800]") from None
            certs = file.parent / "certs"
            for path in [*(certs / f"{name}.crt" for name in former), *sorted((certs / "former").glob("*.crt"))]:
                if (each := Certificate.load(path)).name in former:
                    first[each.key_fingerprint] = former[each.name]
        return {name: first.get(key, key) for name, key in study.keys().items()}

    def _new(self) -> SpendingAccounts:
        """The accounts of a party that has no ledger yet."""
        return SpendingAccounts((), self.name, datetime.now(UTC))

    def open_ledger(self) -> Ledger:
        """The party's ledger, made if there is none."""
        return Ledger(self.ledger, owner=self.name)

    def remaining(self) -> tuple[RemainingBudget, ...]:
        """What is left of each cap for each observer; no ledger is made where there is none."""
        if self.ledger.exists():
            return self.open_ledger().remaining(self.caps, self.periods)
        return self._new().remainders(self.caps, self.periods)

    def note_time(self) -> bool:
        """Call :meth:`Ledger.note_time` where it matters: if there are periods and a ledger."""
        return bool(self.periods) and self.ledger.exists() and self.open_ledger().note_time()

    @property
    def ledger_news(self) -> str | None:
        """A warning about the ledger before the study: that there is none, or that it has no chain; else ``None``."""
        if not self.ledger.exists():
            return f"new ledger {self.ledger}: nothing on record before this study"
        if not self.open_ledger().chained:
            return f"ledger {self.ledger} was never chained: this study chains it as it stands"
        return None

    def pins_schema(self, study: Study) -> bool:
        """Whether the policy names the schema that the study has for this party."""
        return study.schemas[self.name].digest in (self.content.policy.schemas or ())

    def schema_news(self, study: Study) -> str:
        """A sentence about the schema that the study has for this party: its digest, and whether the policy names it.

        Who writes the schema decides what becomes of every cell, so a new one should be read before it is agreed to.
        """
        digest, file = study.schemas[self.name].digest, study.content.parties[self.name].schema_file
        if self.pins_schema(study):
            return f"{self.name}'s schema in this study, {digest}, is one that {self.path.name} names"
        news = f"{self.name}'s schema in this study is new: {self.path.name} does not name {digest} under `schemas`"
        if self.approval == "auto-within-budget":
            return f"{news} and approves by itself, so whoever writes a study decides what becomes of a cell; name it"
        return f"{news}, so read {file} before you agree"

    @property
    def failed_count(self) -> int:
        """How many studies did not end well, or have not ended, within the days that the policy counts."""
        if not self.ledger.exists():
            return 0
        return self.open_ledger().count_aborted_studies(days=self.failures.days)

    def _check_open(self) -> None:
        if self.approval == "never":
            raise PolicyError(f'{self.name} takes part in no study: {self.path.name} says approval = "never" [PO016]')

    def _objections(self, study: Study) -> Iterator[str]:
        """What the policy does not allow in a study, one thing after the other.

        What others are told exactly is allowed by name; so is a way of matching people, and a key: no epsilon covers
        these.
        """
        policy, file = self.content.policy, self.path.name
        if study.content.task.kind not in policy.tasks:
            yield (
                f"{self.name}'s policy allows the tasks {', '.join(policy.tasks)}, and study {study.name!r} asks for "
                f"{study.content.task.kind}; change {file} if you agree [PO015]"
            )
        # Columns of the party's file, whatever the study calls them: whoever wrote it chose its names.
        called: dict[str, list[str]] = {}
        for name, column in study.roster.schemas[self.name].columns.items():
            called.setdefault(column.source(name), []).append(name)
        beyond = [
            source if names == [source] else f"{source} (called {', '.join(names)})"
            for source, names in called.items()
            if policy.columns != "all" and source not in policy.columns
        ]
        if beyond:
            yield (
                f"study {study.name!r} asks {self.name} for columns its policy does not allow: {', '.join(beyond)}; "
                f"add them to {file} if you agree [PO017]"
            )
        # Where nobody holds shares there is nothing to check: what others are told is noised on the party's own side.
        if policy.security == "active" and study.trust.committee and not study.trust.active:
            yield (
                f"{self.name}'s policy allows only studies whose seats check each other, and study {study.name!r} does "
                'not: ask for security = "active" at its top, or change `security` in '
                f"{file} if you agree [PO018]"
            )
        if policy.inputs == "proven" and study.trust.committee and study.trust.inputs == "unproven":
            yield (
                f"{self.name}'s policy allows only studies whose owners prove that what they deal keeps its bounds, "
                f'and study {study.name!r} does not: ask for inputs = "proven" at its top, or change `inputs` in '
                f"{file} if you agree [PO861]"
            )
        if study.content.trial and not policy.trial:
            yield (
                f"study {study.name!r} is a trial, whose schemas may hold bounds taken from data, and {self.name}'s "
                f"policy does not allow that: add trial = true under [policy] of {file} if you agree [PO019]"
            )
        if policy.schemas is not None and not self.pins_schema(study):
            yield (
                f"study {study.name!r} has a schema for {self.name} that its policy does not name, of digest "
                f"{study.schemas[self.name].digest}: read {study.content.parties[self.name].schema_file}, and add the "
                f"digest to `schemas` in {file} if you agree [PO020]"
            )
        # A file that cannot be read so ends the study, which is an exact answer about cells of any of its columns.
        said = study.schemas[self.name].text.stated
        unsaid = {key: value for key, value in said.items() if key not in self.content.text_format.stated}
        if unsaid and not self.pins_schema(study) and not study.content.trial:
            yield (
                f"the schema for {self.name} in study {study.name!r} says {format_as_toml(unsaid)}: only "
                f"{self.name} says that of its file, so write at the top of {file} how it is written, or "
                "name the schema's digest under `schemas` there if you agree [PO021]"
            )
        exact = [event for event in self.charged_events(study) if isinstance(event, NonPrivate)]
        own = [event for event in exact if not event.about or self.name in event.about]
        told = {name: event for event in own for name in event.audience or ("everyone",)}
        if strangers := sorted(set(told) - {self.name, *policy.exact}):
            why = told[strangers[0]].reason
            what = "exact answers, without noise" if "exact" in why else f"what no epsilon bounds ({why})"
            yield (
                f"study {study.name!r} tells {', '.join(strangers)} {what}, and {self.name}'s "
                f"policy does not allow that: name them under `exact` in {file}, and in no "
                "cap, if you agree [PO022]"
            )
        aligning = study.aligning
        if policy.hidden and not (aligning is not None and aligning.hidden):
            tells = "has no [align]" if aligning is None else "tells each party whom of its people all the others hold"
            yield (
                f"{self.name}'s policy allows only studies in which nobody learns who matched, and study "
                f"{study.name!r} {tells}: ask for hidden = true in its [align], or change `hidden` in {file} "
                "if you agree [PO023]"
            )
        if aligning is not None and aligning.mode not in policy.align:
            yield (
                f"study {study.name!r} matches people by {aligning.mode}, and {self.name}'s policy allows "
                f"{', '.join(policy.align) or 'no matching'}: see what it tells with `colonnade privacy "
                f"{study.path.name}`, and add it to `align` in {file} if you agree [PO024]"
            )
        for part, held in {} if aligning is None else self.key_columns(aligning.plan).items():
            # Whoever wrote the study chose the name, so a column that merely has it is no consent.
            if part not in self.content.keys and held.column != self.content.id:
                yield (
                    f"study {study.name!r} recognises people by {part!r}, whose cells are compared exactly, and "
                    f'{file} names no column of {self.name} for it: add {part} = "COLUMN" under [keys] if '
                    "you agree [PO025]"
                )

    def _check_cap(self, cap: Budget, study: Study) -> None:
        """Raise an error if a cap names an observer that is neither in this study nor in an earlier one."""
        if cap.selector == OTHERS:
            return
        try:
            cap.observers(study.trust, alike=lambda _: 0)
        except PrivacyError as error:
            met = self.open_ledger().names_met() if self.ledger.exists() else set()
            if not set(cap.selector.split("+")) <= met | set(study.participants):
                raise PolicyError(
                    f"{self.path.name}: the cap for {cap.selector!r} fits nobody: {error} [PO026]"
                ) from None


RerunDecision = bool | Callable[[str], bool]
"""Whether a study may run again, or a function that asks, with a sentence about the earlier run."""


@dataclass(frozen=True)
class EarlierRuns:
    """What a ledger holds about earlier runs of one study, which ``party`` took part in."""

    party: str
    ended_well: tuple[str, ...]
    """When the runs were reserved that ended well."""
    charged: tuple[str, ...]
    """When those were reserved that did not end well, or have not ended, and count in full."""

    @classmethod
    def of(cls, config: PartyConfig, study: Study) -> EarlierRuns:
        """What is on record; nothing where there is no ledger yet."""
        found = config.open_ledger().runs_of(study.digest) if config.ledger.exists() else ()
        when = {state: tuple(at for at, now in found if now == state) for state in ("committed", "sent", "reserved")}
        return cls(config.name, when["committed"], tuple(sorted((*when["sent"], *when["reserved"]))))

    @property
    def sentence(self) -> str | None:
        """That the study already ran, and when; ``None`` if it never ended well."""
        if not self.ended_well:
            return None
        times = f", the last of {len(self.ended_well)} times" if len(self.ended_well) > 1 else ""
        return f"already ran on {_day(self.ended_well[-1])}{times}, as {self.party}'s ledger says"

    @property
    def unfinished(self) -> str | None:
        """What earlier runs cost that did not end well; ``None`` if there were none."""
        if not self.charged:
            return None
        runs = "a run" if len(self.charged) == 1 else f"{len(self.charged)} runs"
        return (
            f"{self.party}'s ledger holds {runs} of this study that did not end well, begun on "
            f"{_day(self.charged[-1])}: charged in full, and no reason not to run it now"
        )


def asks_before_rerun(config: PartyConfig) -> bool:
    """Whether somebody must say yes before a study runs again: as ``again`` says, or as every study is approved."""
    given = config.content.policy.again
    return config.approval != "auto-within-budget" if given is None else not given


def check_rerun(study: Study, config: PartyConfig, approve: Approval | None, again: RerunDecision) -> str | None:
    """A sentence about an earlier run, for the record; an error if this would be another and nobody agreed to it.

    A program that is asked about every study with ``approve`` is asked about this one too.
    """
    said = EarlierRuns.of(config, study).sentence
    if said is None or not asks_before_rerun(config) or again is True:
        return said
    if callable(again):
        if not again(f"{study.name!r} {said}"):
            raise PolicyError(
                f"study {study.name!r} was not run again by {config.name}'s operator; nothing was sent [PO027]"
            )
    elif approve is None or isinstance(approve, DigestApproval):
        raise PolicyError(rerun_refusal(study, said))
    return said


def rerun_refusal(study: Study, said: str) -> str:
    """The sentence for whoever can answer no question."""
    return (
        f"study {study.name!r} {said}: its result is in that run's folder; add `--again` to run, and "
        "spend, once more [PO028]"
    )


def _day(created: str) -> str:
    return f"{created[:16].replace('T', ' ')} UTC"
