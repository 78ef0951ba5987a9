"""Write a draft as a policy in YAML, with its reasons as comments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from shoal.drafts.draft import EVERY_RECORD, Draft
from shoal.drafts.fields import may_be_code
from shoal.drafts.guesses import Guess
from shoal.policy import DECIDE

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]*(?:[.-][A-Za-z0-9_]+)*")
_RESERVED = frozenset(["yes", "no", "true", "false", "on", "off", "null", "y", "n"])
"""Words that some readers of YAML take for other things than texts."""
_OTHER_TOPICS = {"output": "anonymous", "quarantine": "quarantine", "evidence": "evidence"}


def write_draft(draft: Draft) -> str:
    """Return the policy. It holds names of fields and rounded bounds, and words that at least k people have."""
    return "\n".join([*_head(draft), *_attributes(draft), *_settings(draft)]) + "\n"


def kafka_section(topic: str, bootstrap_servers: str | None) -> str:
    """Return the section ``kafka`` of a draft for a topic; the other topics are named after it."""
    others = {kind: f"{topic}.{name}" for kind, name in _OTHER_TOPICS.items()}
    names = {"input": topic, **others, "group": f"shoal-{topic}"}
    if bootstrap_servers is not None:
        names = {"bootstrap_servers": bootstrap_servers, **names}
    lines = [f"  {name}: {_quoted(value)}" for name, value in names.items()]
    head = "# Create the other topics with as many partitions as the input; protect evidence like the input."
    return "\n".join([head, "kafka:", *lines, ""])


def _head(draft: Draft) -> Iterator[str]:
    sample = draft.sample
    read = f"{'the first ' if sample.is_cut else ''}{sample.rows:,} rows of {len(sample.columns):,} fields"
    yield f"# A draft that shoal init made from {_comment(sample.name)}: {read}."
    yield "# The line above a field says why. DECIDE marks what only you can decide; shoal check lists these lines."
    yield "# Remove a mark when you have decided. No value that fewer than k people have is in this file."
    for note in sample.notes:
        yield f"# {note}"
    if draft.subject == EVERY_RECORD:
        yield "# Every row is another person, as you said."
        yield f"subject: {EVERY_RECORD}"
    elif not draft.subject:
        yield f"{DECIDE}say who the person is: k counts people, and shoal check refuses this policy until it knows"
        for field in draft.candidates:
            count = f"{len(field.counts):,} different in {sample.rows:,} rows"
            yield f"#   --subject {_comment(field.name)} ({count}), or subject: true at this field"
        yield f"#   --subject {EVERY_RECORD}, or this line, if every row is another person:"
        yield f"# subject: {EVERY_RECORD}"


def _attributes(draft: Draft) -> Iterator[str]:
    if draft.hidden:
        what = "1 field is" if draft.hidden == 1 else f"{draft.hidden:,} fields are"
        yield f"# {what} dropped and not named here: fewer than {draft.k} people have it, and a name can be a value."
    if draft.hidden or draft.sample.has_others or any(map(_is_left_out, draft.guesses)):
        yield "# Not declared, and so dropped, is what some records lack: a declared field must be there."
        yield "undeclared: drop"
    if all(guess.role != "quasi_identifier" for guess in draft.guesses):
        yield f"{DECIDE}no field is left to make alike: give one that others may know the role quasi_identifier"
    yield "attributes:"
    for guess in draft.guesses:
        yield f"  # {_comment(guess.field.name)}: {guess.reason}"
        if guess.decide:
            yield f"  {DECIDE}{_comment(guess.field.name)}: {guess.decide}"
        line = f"  {_scalar(guess.field.name)}: {{{', '.join(_keys(guess))}}}"
        yield f"  #{line[1:]}" if _is_left_out(guess) else line


def _is_left_out(guess: Guess) -> bool:
    """Return whether the field is dropped by not being declared: a declared one would have to be in every record."""
    return guess.role == "identifier" and "subject" not in guess.keys and guess.field.absent > 0


def _keys(guess: Guess) -> Iterator[str]:
    yield f"role: {guess.role}"
    if guess.field.source:
        yield f"from: {guess.field.source}"
    if len(guess.field.path) > 1:
        yield f"from: {_scalar('value.' + guess.field.name)}"
        if guess.role != "identifier":
            yield f"to: {_scalar(guess.field.name)}"
    for key, value in guess.keys.items():
        yield f"{key}: {_flow(value)}"


def _settings(draft: Draft) -> Iterator[str]:
    sample = draft.sample
    if may_be_code(sample):
        what = "NA is missing in all fields" if "NA" in draft.missing else "NA is a value"
        yield f"{DECIDE}missing_values: {what}, and may be a code of two letters, as that of Namibia; is this right?"
    if draft.missing:
        yield "# These texts were seen, and mean that a value is missing."
        yield f"missing_values: {_flow(['', *draft.missing])}"
    if sample.unwrap:
        yield "# The envelope of the messages. deletes: drop leaves out messages that say that a row was deleted."
        yield f"unwrap: {sample.unwrap}"
    if sample.dialect:
        yield "# How the file is written, as far as it differs from commas, UTF-8 and decimal points."
        yield f"csv: {{{', '.join(f'{key}: {_quoted(value)}' for key, value in sample.dialect.items())}}}"
    yield f"# k: each cluster has at least {draft.k} of the {draft.people:,} people."
    yield f"# {_why_k(draft)}"
    if not draft.diversity and any(guess.role == "confidential" for guess in draft.guesses):
        yield f"{DECIDE}privacy: k does not hide a confidential value that a whole cluster shares; l does, at a loss"
    yield f"privacy: {{k: {draft.k}{f', l: {draft.diversity}' if draft.diversity > 1 else ''}}}"
    if sample.is_parquet:
        return  # Parquet is for finished tables
    yield "# delta: a record waits for so many later ones. Beyond 20 times k, little is gained."
    yield "# shoal pipe publishes by it; shoal batch, for a finished table, waits for all and loses less."
    yield f"stream: {{delta: {draft.delta}}}"


def _why_k(draft: Draft) -> str:
    if draft.people < draft.k:
        return "These are too few to release anything: give a longer sample, or another subject."
    if draft.k < 10:  # noqa: PLR2004
        return "With so few, a larger k loses much. 10 is usual where health is concerned."
    return "10 is usual where health is concerned; a smaller k loses less, and protects less."


def _flow(value: Any) -> str:  # noqa: ANN401 - a value of a key
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() else f"{Decimal(repr(value)):f}"
    return str(value) if isinstance(value, int) else _scalar(value)


def _scalar(text: str) -> str:
    return text if _PLAIN.fullmatch(text) and text.lower() not in _RESERVED else _quoted(text)


def _quoted(text: str) -> str:
    """Return a text in quotation marks, as YAML reads it."""
    return "".join(map(_escaped, json.dumps(text, ensure_ascii=False)))


def _escaped(letter: str) -> str:
    """Return a letter, or its code if it is not printable: YAML knows no surrogate pairs, which JSON writes."""
    code = ord(letter)
    return letter if letter.isprintable() else f"\\U{code:08X}" if code > 0xFFFF else f"\\u{code:04x}"  # noqa: PLR2004


def _comment(text: str) -> str:
    """Return a name for a comment, which no character of it can end."""
    return text if text.isprintable() else _quoted(text)
