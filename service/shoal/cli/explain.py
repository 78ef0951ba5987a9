"""`shoal explain CODE`: what an exit code, a code of an error, a reason or a check means, and what to do about it."""

from __future__ import annotations

import argparse
from difflib import get_close_matches

from shoal.errors import ConfigError

EXIT_CODES = {
    "0": "Done. `run` and `pipe --follow` end with it after SIGTERM and SIGINT, too.",
    "1": (
        "A guarantee or a check failed, or the program has an error. Nothing of the block at fault was sent. "
        "`pipe` ends with it if nothing was released of an input with records: the lines above name the "
        "cause."
    ),
    "2": (
        "The policy, an option, the input or the committed progress cannot be used. The message names the "
        "remedy. Nothing was written."
    ),
    "3": (
        "The broker refused, or was not reachable for kafka.patience_s. Look at the address, the credentials "
        "and the ACLs."
    ),
    "4": (
        "No setting that `tune` tried holds the targets. The page shows the nearest, and which target is out of reach."
    ),
    "130": "Interrupted by Ctrl-C. Outputs that are written as a whole were not changed; `tune` shows what was done.",
    "141": "The reader of an output pipe closed it, as `head` does.",
    "143": "Ended by SIGTERM. Outputs that are written as a whole were not changed.",
}
ERRORS = {
    "config": "The configuration is invalid. The message names the setting.",
    "policy": (
        "The policy is invalid. All its faults are listed, each with its line. `shoal check POLICY` lists them, too."
    ),
    "parameter": "A parameter or an array is invalid, such as k below 2 or a wrong shape.",
    "input": "A file, its format or the committed progress cannot be used. The message names the place and the remedy.",
    "guarantee": (
        "A guarantee would have been violated, so nothing more was sent. Start the process again, and report it."
    ),
    "anonymity": "A cluster had fewer than k people, or a person too large a share. Nothing of it was sent. Report it.",
    "broker": "The broker refused a request, or does not support it. The message names the setting or the permission.",
    "broker_unavailable": "The broker is not reachable, or does not answer. A worker tries again by itself.",
    "descriptors": (
        "The process may open no more files and connections. Raise the limit: LimitNOFILE of a systemd unit, ulimit -n "
        "of a shell. A worker tries again by itself."
    ),
    "topics_changed": (
        "A topic was deleted, or the input has new partitions. A worker checks all topics again by itself, and ends if "
        "one is missing or has too few partitions."
    ),
    "output_closed": "The reader of the output has closed the pipe. Not everything was written.",
    "unexpected": "A fault of Shoal, with its place. Outputs are not replaced. Report the line; it holds no value.",
    "fenced": (
        "Another worker owns the partition now. This one joins the group again. If it recurs, look whether "
        "two workers have one kafka.instance_id."
    ),
}
REASONS = {
    "undecodable": (
        "The message is not of the declared format, as text that is no JSON object. `pipe` and `check -i` "
        "name the cause and the line."
    ),
    "invalid": (
        "A field is missing, or its value does not fit the policy: its type, its taxonomy, or a timestamp "
        "more than an hour ahead. `shoal check POLICY -i FILE` counts the reasons by field."
    ),
    "suppressed": (
        "No cluster with enough other people was found in time, or a limit would have been exceeded: "
        "max_share, l, t, max_value_share, per_subject or min_population. A larger stream.delta helps."
    ),
    "too_large": "The message is longer than kafka.max_record_bytes.",
    "skip": (
        "The record was left out because a field has a text that the key skip of the policy lists. It is no record."
    ),
    "deletes": "A message of a change stream deletes a record. The key deletes says what becomes of it.",
    "tombstones": "A message without a value. The key tombstones says what becomes of it.",
}
CHECKS = {
    "existing": (
        "Evidence names only records that are in the original and fit the policy. Broken: is it the evidence "
        "of another run, or was the original changed or cut since?"
    ),
    "once": "No record is in two clusters.",
    "subjects": "Each cluster has at least k different people. It is the promise of k-anonymity.",
    "share": "No person owns more than privacy.max_share of a cluster's records.",
    "releases": "No person has more records in a window of offsets than privacy.per_subject allows.",
    "diversity": "The confidential values of a cluster are as diverse among its people as privacy.l says.",
    "value_share": "No confidential value belongs to more than privacy.max_value_share of a cluster's people.",
    "closeness": "The confidential values of a cluster are distributed nearly as those of all people: privacy.t.",
    "unchanged": "No field that identifies records is published as it came, unless publish_unchanged accepts it.",
    "envelope": "Released messages have neither a key nor headers.",
    "columns": "Every row has exactly the published fields, in their order.",
    "hidden": "No identifier and no undeclared field is in the output.",
    "spelling": "Every value has the one form in which Shoal writes it.",
    "grid": "Numbers and times are multiples of their resolution.",
    "bounds": "Numbers and times are within their bounds.",
    "values": "Every value is one that its scale can publish.",
    "nothing_else": "Every row belongs to a cluster and has the values that were computed again from the original.",
    "nothing_missing": "Every row that the clusters give was released.",
    "together": "The rows of a cluster follow each other and have equal quasi-identifiers.",
    "byte_order": "The rows of a cluster are in the order of their bytes, which tells nothing about arrival.",
    "in_turn": "With --keep-order: the rows are in the order of the input.",
    "own_position": "With reveal_order: each row has the other fields of the record at its position.",
    "traced": "Every row has the unchanged fields of one record of the original, which no other row has.",
    "alone": "Without evidence: every row shares its quasi-identifiers with at least k rows.",
    "categories": "Every published category is one of a record, or above one in the taxonomy.",
    "oldest_first": (
        "Clusters were decided in the order of their oldest records, which shows that none waited too long."
    ),
    "delay": "No record waited for more than stream.delta later records.",
    "references": "References name existing records that were not released, each once.",
    "reasons": "References hold topic, partition, offset and one of four reasons, and nothing else.",
    "population": "The clock released records only while privacy.min_population people were held.",
    "complete": "Every usable record was released or is accounted for as not released.",
    "suppressed": "Records were left out only where the policy allows it.",
    "accounts": "The summary adds up and agrees with the files.",
    "policy": "Evidence and summary were written under the policy that is given.",
}
FINDINGS = {
    "identifier_copy": "A published field equals an identifier in many records: who has the one has the other.",
    "identifier_like": "A published field looks like an identifier: its values tell records apart.",
    "known_outside": "A field is published unchanged as confidential, and by its name others know it of a person.",
    "clipped": "Values were outside the declared bounds and count as the bound.",
    "other_person": "By another identifier, clusters have fewer than k people: is the subject really the person?",
    "may_be_person": "By an identifier that many subjects share, clusters have fewer than k people, if it is a person.",
    "near_duplicate_subjects": "Subjects differ only in case, blanks, punctuation or zeros: one person may be several.",
    "other_policy": "Evidence or summary were written under another policy.",
    "byte_order_mark": "The release begins with a byte order mark, as Shoal writes none: a program saved it anew.",
    "line_ends": "Lines of the release end otherwise than Shoal ends them: a program has saved it anew.",
    "other_evidence": "The evidence is that of another run, or of another original.",
    "original_cut": "The original is shorter than when the release was made.",
    "original_moved": "Records of the original have other numbers than when the release was made.",
    "original_changed": "Records of the original have other values than when the release was made.",
    "known_together": "Fields that are published unchanged single people out together.",
    "left_out": "Many records were suppressed or refused, so the release need not show what the original shows.",
    "unique_values": "A field is published unchanged in which hardly two records agree.",
    "order_of_arrival": "A field that is published unchanged rises with the order of arrival.",
    "held": "Records still wait: verify again when they are released.",
    "summary": "The summary states something that the files do not show.",
    "no_agreement": "Release and evidence have nothing in common.",
}
KINDS = {
    "exit code": EXIT_CODES,
    "code of an error": ERRORS,
    "reason": REASONS,
    "check of `shoal verify`": CHECKS,
    "finding of `shoal verify`": FINDINGS,
}
"""The codes by their kind. One code may be of several kinds."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the code."""
    parser.add_argument(
        "codes",
        nargs="*",
        metavar="CODE",
        help="an exit code, the code of an error, a reason or a check; none: list all",
    )


def execute(options: argparse.Namespace) -> int:
    """Print what each code means; ConfigError, with the nearest ones, if there is no such code."""
    known = {code for texts in KINDS.values() for code in texts}
    for code in options.codes:
        if code not in known:
            near = get_close_matches(code, known, n=3)
            hint = f"did you mean {', '.join(near)}?" if near else "`shoal explain` lists all codes"
            number = f"CODE {options.codes.index(code) + 1}: " if len(options.codes) > 1 else ""
            raise ConfigError(f"shoal explain: {number}no code has this name; {hint}")
    for kind, texts in KINDS.items():
        for code, text in texts.items():
            if not options.codes or code in options.codes:
                print(f"{code} ({kind}): {text}")
    return 0
