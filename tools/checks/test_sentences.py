"""What others are told when a program stops: each sentence that can reach them, and whether its numbers are public."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import colonnade
from colonnade import errors

ROOT = Path(colonnade.__file__).parent
PLANNED = {
    "kinds/glm/task.py", "kinds/glm/kept_scores.py", "kinds/glm/losses.py", "kinds/pca/task.py",
    "kinds/polynomial/task.py", "kinds/polynomial/expressions.py", "kinds/prediction/task.py",
    "kinds/regression/task.py", "kinds/sketch/model.py", "kinds/split/embedding_task.py",
    "kinds/synthesis/mixture/components.py", "kinds/synthesis/mixture/learners.py",
    "kinds/synthesis/mixture/task.py", "kinds/tables/task.py",
    "kinds/tables/stages.py", "protocols/align/task.py", "protocols/cost.py", "protocols/task.py",
    "protocols/moments/task.py", "protocols/committee_task.py",
}  # fmt: skip
"""Modules about a study before it begins: whatever they complain of is in the study file, which everybody has."""
ALONE = {
    "cli/console_commands.py", "cli/initialise.py", "cli/demo.py", "console/app.py", "federation/members.py",
    "federation/http_server.py", "federation/scores/web_api.py", "federation/hub_protocol.py", "study/local.py",
    "study/spec.py", "wire/connection_gate.py", "wire/identity.py", "wire/quota.py",
}  # fmt: skip
"""Modules about files, members, limits and addresses, before a study begins or beside it: they know of no table."""
NAMES = {
    "COORDINATOR", "NO_RESULT", "who", "event.name", "joiner", "kind", "me.name", "name", "owner", "peer", "self.name",
    "self.task.speaker", "sender", "task.active", "first", "WAITING.kind", "', '.join(about)",
    "', '.join(beyond)", "', '.join(seats)", "certificate.name", "hub", "hub_name", "lost",
    "opener", "peer.name", "self._name", "self._peer.name", "self.kind", "self.peer", "self.sender", "source", "verb",
    "seat", "sanitize(got, _LONGEST_KIND)", "', '.join(task.owners)", "', '.join((key.name for key in task.keys))",
}  # fmt: skip
"""Who, and which message: names of participants, events, messages and keys."""
PUBLIC = {
    "protocols/rows.py": {"otherwise", "what"},  # fixed sentences, and which numbers were to be the same
    "protocols/align/fuzzy.py": {"CANDIDATES_AT_MOST", "similarity"},
    "protocols/align/programs.py": {"after", "task.at_least"},  # what was spent: a fixed sentence
    "protocols/lanes/arbiter.py": {"MOST_ATTEMPTS", "MOST_LOST"},
    "protocols/lanes/lane.py": {"self._engine.name", "what"},  # what somebody did: fixed words
    "protocols/compatibility.py": {"_sentence(one, other, differ, told)"},  # names of rules, versions of programs
    "kinds/glm/programs.py": {"task.rows"},
    "protocols/roles.py": {"degree", "mask.degree", "shares.degree", "values.dtype"},
    "kinds/prediction/model.py": {"task.to"},
    "mpc/fixed_point/shared_bits.py": {"degree", "len(points)"},
    "mpc/engine.py": {"'are' if len(self.lost) > 1 else 'is'", "enough", "left", "seats"},
    "mpc/shamir.py": {"degree", "len(points)"},
    "study/lanes/worker.py": {"_GIVEN_UP"},
    "cli/membership.py": {"_NOT_THE_WORDS", "_left(left)"},  # fixed words, and tries that are left
    "cli/key_commands.py": {"key"},  # a path
    "study/connect.py": {"identity.name", "key"},  # a path, before anybody is connected
    "wire/reliable_transport.py": {"type(error).__name__"},
    "wire/hub.py": {"LOOPBACK", "account.name", "address", "host", "most", "pinned.fingerprint", "stall"},
    "wire/hub_connection.py": {
        "_disconnection_text(self._identity.name, error)", "_disconnection_text(self._own_name, error)",
        "sanitize(error.details())", "self._address", "str(end)",
        # raised before anybody is connected
        "_IS_IT_THE_HUB", "_what_to_compare(since)", "address", "error.strerror or error", "error.verify_message",
        "hub.fingerprint", "hub.name", "identity.certificate.fingerprint", "identity.name", "most", "said", "timeout",
    },
    "wire/direct_links.py": {
        "self.why or 'the other end hung up'", "self.why or error.strerror or 'the connection broke'",
        "listen", "why",  # raised before anybody is connected
    },
    "wire/packets.py": {"number"},
    "wire/study_sessions.py": {
        "count", "sanitize(room)", "sanitize(unknown[0])", "len(self._homes)", "room", "self._closed[place]",
    },
    "wire/endpoint.py": {
        "clock_text()", "error.verify_message", "fingerprint_of(found or b'')", "peer.fingerprint", "reason",
        "self._peer.fingerprint", "_VERSION[len(_WIRE):].decode()", "theirs.decode() if known else '?'",
    },
    "wire/codec.py": {
        "MAX_DEPTH", "MAX_FRAME", "MAX_INT_BYTES", "MAX_RANK", "MAX_VALUES", "dtype", "tag", "type(array).__name__",
        "type(key).__name__", "type(value).__name__",
    },
    "wire/workers.py": {
        "base.fingerprint", "hours", "missing[0]", "self.worker.name", "what", "worker.name",
    },
    "wire/peer_liveness.py": {"_STOPPED", "grace", "idle", "self._down[1]", "timeout"},
}  # fmt: skip
"""What the study file or the code says: limits, seats, types, addresses, certificates; and how a connection broke."""
PASSED_ON = {
    "wire/codec.py": {"error"},
    "wire/hub_connection.py": {"error"},
    "wire/reliable_transport.py": {"error", "flood"},
    "wire/in_memory_network.py": {"*self._lost[peer].args"},
    "wire/peer_liveness.py": {
        *("*self._lost[name].args", "said"),
        "f'{said}' if _STOPPED in said else f'{name}{_STOPPED}{said}'",
    },
}
"""Other sentences that are public, or that everybody was told."""
LISTED = {
    "protocols/align/programs.py": {"found"},
    "protocols/rows.py": {"sanitize(problem)", "problem", "said"},
}
"""Numbers that depend on tables and that all may know; docs/explanation/when-it-goes-wrong.md lists each."""
SAID_BY_MODULE = {"protocols/align/programs.py", "protocols/rows.py", "wire/endpoint.py", "wire/packets.py"}
"""Modules in which errors are passed on that are not public by their kind."""


@cache
def _texts() -> dict[str, str]:
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in sorted(ROOT.rglob("*.py"))}


def _public_kinds() -> set[str]:
    """The names of all kinds of errors whose text is told to others, also of those that a module derives."""
    found = {name for name, kind in vars(errors).items() if getattr(kind, "public", False) is True}
    classes = [
        each for text in _texts().values() for each in re.findall(r"^ *class (\w+)\((.+)\):", text, re.MULTILINE)
    ]
    while more := {name for name, bases in classes if found & set(bases.split(", "))} - found:
        found |= more
    return found


def _sentences() -> Iterator[tuple[str, bool, str]]:
    """The module, whether others are told of such an error, and each expression in or beside its text."""
    public = _public_kinds()
    raised = re.compile(rf"\b(\w+Error|{'|'.join(public)})\(")
    for where, text in _texts().items():
        looked_at = where not in PLANNED | ALONE and raised.search(text)
        for call in ast.walk(ast.parse(text)) if looked_at else ():
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
                continue
            kind = call.func.id
            if not (kind.endswith("Error") or kind in public):
                continue
            told = kind in public or (where in SAID_BY_MODULE and hasattr(errors, kind))
            shown = [ast.unparse(part.value) for part in ast.walk(call) if isinstance(part, ast.FormattedValue)]
            beside = [each for each in call.args if not isinstance(each, ast.Constant | ast.JoinedStr)]
            plain = [re.sub(r" \[[A-Z]{2}\d{3}\]", "", ast.unparse(each)) for each in beside]
            yield from ((where, told, each) for each in (*shown, *plain))


def test_every_number_that_others_can_be_told_was_looked_at_and_is_still_there() -> None:
    found = set(_sentences())
    tables = (PUBLIC, LISTED, PASSED_ON)
    known = {where: NAMES.union(*(table.get(where, ()) for table in tables)) for where in _texts()}
    assert not {(where, each) for where, told, each in found if told and each not in known[where]}
    said = {(where, each) for where, _, each in found}
    for table in tables:
        assert {(where, each) for where, some in table.items() for each in some} <= said
    assert {each for _, each in said} >= NAMES
    assert _texts().keys() >= PLANNED | ALONE


def test_the_modules_that_make_an_error_public_are_known() -> None:
    assert {where for where, text in _texts().items() if "error.public = True" in text} == SAID_BY_MODULE
