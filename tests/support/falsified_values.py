"""Falsified releases: what a policy limits of confidential values, l, the largest share of a value, and t."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from support.base_releases import Base
from support.named_falsifications import Falsification, editor, limited, maker, with_records
from support.release_files import ReleaseFiles
from support.scaled_bases import scaled_base
from support.value_limits import REFERENCES

Change = Callable[[ReleaseFiles], object]
_STREAM, _TABLE = "stream of scales", "table of scales"


def _base(name: str, limit: str, values: Sequence[Any] | None = None, cluster: int = 4) -> Base:
    """Return a sound base; ``values``: what the members of one cluster have in their originals, in turn."""
    base = scaled_base(name, limit)
    if values is None:
        return base
    changes = {index: {"ill": values[turn % len(values)]} for turn, index in enumerate(base.clusters[cluster])}
    return with_records(base, changes)


def of_one_person(name: str, limit: str, other: Any, *values: Any) -> Callable[[], ReleaseFiles]:
    """Return a release with a cluster that exceeds a limit by people, and not by records.

    Half of its records are those of one person, who has these values; all other people have the other value.
    """

    def make() -> ReleaseFiles:
        base = scaled_base(name, limit)
        members = max((own for own in base.clusters if len(own) % 2 == 0), key=len)
        half = len(members) // 2
        of_one = {index: {"ill": values[turn % len(values)], "patient": "one"} for turn, index in enumerate(members)}
        alone = {index: {"ill": other, "patient": f"other {index}"} for index in members[half:]}
        return ReleaseFiles.of(with_records(base, of_one | alone))

    return make


def made(name: str, limit: str, *values: Any) -> Callable[[], ReleaseFiles]:
    """Return a release in which the members of one cluster have these values, in turn."""
    return lambda: ReleaseFiles.of(_base(name, limit, values))


@maker
def changed(name: str, limit: str, change: Change) -> ReleaseFiles:
    """Return a sound release of which one file is changed."""
    release = limited(ReleaseFiles.of(_base(name, limit)))
    change(release)
    return release


@editor
def under_weaker(
    release: ReleaseFiles, /, *, names_policy: bool, privacy: dict[str, Any] | None = None, **attribute: Any
) -> None:
    """Let the judge have a stricter policy than the run; ``names_policy``: whether the evidence tells of the other."""
    fingerprint = release.policy.fingerprint
    release.document["privacy"] |= privacy or {}
    release.document["attributes"]["ill"] |= attribute
    if names_policy:
        release.evidence = [json.dumps(json.loads(line) | {"policy": fingerprint}) for line in release.evidence or []]


@editor
def stating(release: ReleaseFiles, /, **fields: Any) -> None:
    """State other figures in the summary."""
    if isinstance(release.summary, dict):
        release.summary |= fields


@maker
def without_evidence(make: Callable[[], ReleaseFiles]) -> ReleaseFiles:
    """Return the same release, of which the judge does not get the evidence."""
    release = make()
    release.evidence = None
    return release


@maker
def dropped(limit: str) -> ReleaseFiles:
    """Return a release in which all values differ, and of which three of four clusters are dropped.

    The others are listed as suppressed. No cluster of such records exceeds a limit, so none was suppressed for that.
    """

    base = scaled_base(_STREAM, limit)
    changes = {index: {"ill": f"v{index}"} for members in base.clusters for index in members}
    release = ReleaseFiles.of(with_records(base, changes))
    release.clusters = release.clusters[::4]
    release.recompose()
    return release


_FLAT = {"any": ["I21", "I50", "J18", "J45"]}
_OTHER_TREE = {"any": {"heart": ["I21", "J18"], "lung": ["I50", "J45"]}}
_OTHER_ILLS = str(REFERENCES / "other_ills.csv")


def _falsifications(*entries: tuple[str, str, Callable[[], ReleaseFiles], str]) -> list[Falsification]:
    return [Falsification(name, base, check, make) for base, name, make, check in entries]


FALSIFICATIONS: list[Falsification] = [
    *_falsifications(
        *(
            (base, "l: a cluster of one value", made(base, "l", "flu"), "diversity")
            for base in (_STREAM, _TABLE, "stream of scales, ordered")
        ),
        (_STREAM, "l: a cluster of two values", made(_STREAM, "l", "flu", "cold"), "diversity"),
        (_STREAM, "l: blanks around a value", made(_STREAM, "l", "flu", " flu", "flu\t", "flu\u00a0"), "diversity"),
        (_STREAM, 'l: 1, "1" and 1.0', made(_STREAM, "l", 1, "1", "1.0", " 1", "10e-1"), "diversity"),
        (_STREAM, "l: a number in three spellings", made(_STREAM, "l", "0.5", "5e-1", "0.50"), "diversity"),
        (_STREAM, "l: null, an empty text and ?", made(_STREAM, "l", None, "", "?", " "), "diversity"),
        (_STREAM, "l: missing counted twice", made(_STREAM, "l", None, "?", "flu"), "diversity"),
        (_STREAM, "l: composed and decomposed letters", made(_STREAM, "l", "é", "e\u0301", " é"), "diversity"),
        (_STREAM, "l: true as a truth value and as a text", made(_STREAM, "l", True, "true", "true "), "diversity"),
        (_STREAM, "l: one cluster, without evidence", without_evidence(made(_STREAM, "l", "flu")), "diversity"),
        (_STREAM, "entropy of two values", made(_STREAM, "entropy", "flu", "cold"), "diversity"),
        (_STREAM, "recursive: one value too frequent", made(_STREAM, "recursive", "flu", "flu", "cold"), "diversity"),
        (_STREAM, "share: one value above it", made(_STREAM, "share", "flu", "flu ", "cold"), "value_share"),
        (_STREAM, "default share beside l", made(_STREAM, "l and a share", "1", 1, "1.0", "flu"), "value_share"),
        (_STREAM, "t, equal: a cluster of one value", made(_STREAM, "t, equal", "gout"), "closeness"),
        (_STREAM, "t, equal: a value not listed", made(_STREAM, "t, equal", "rare", "rarer", "flu"), "closeness"),
        (_STREAM, "t, equal: missing as three values", made(_STREAM, "t, equal", None, "", "?"), "closeness"),
        (_STREAM, "t, numbers: only large ones", made(_STREAM, "t, numbers", 6, "6.0", 5), "closeness"),
        (_STREAM, "t, numbers: beyond the listed", made(_STREAM, "t, numbers", 10**9, "1e300"), "closeness"),
        (_STREAM, "t, numbers: a text", made(_STREAM, "t, numbers", 1, "much", 4), "existing"),
        (_STREAM, "t, ranks: only high ones", made(_STREAM, "t, ranks", "high", "top "), "closeness"),
        (_STREAM, "t, ranks: no rank", made(_STREAM, "t, ranks", "low", "tip", "mid"), "existing"),
        (_STREAM, "t, tree: one branch alone", made(_STREAM, "t, tree", "J18", "J45"), "closeness"),
        (_STREAM, "t, tree: a leaf that it lacks", made(_STREAM, "t, tree", "Z99"), "closeness"),
        (_TABLE, "t, own values: a cluster of one value", made(_TABLE, "t, own values", "Z99"), "closeness"),
        *(
            (base, f"{limit}: half of the records are one person's", of_one_person(base, limit, other, *values), check)
            for base in (_STREAM, _TABLE)
            for limit, check, other, *values in (
                ("l", "diversity", "flu", "cold", "gout"),
                ("l and a share", "value_share", "flu", "cold", "gout", 1),
                ("entropy", "diversity", "flu", "cold", "gout", 1, True, None),
                ("recursive", "diversity", "flu", "cold", "gout", 1),
            )
        ),
        (
            _TABLE,
            "t, equal: half of the records are one person's",
            of_one_person(_TABLE, "t, equal", "flu", "cold", "gout", 1, None),
            "closeness",
        ),
        (_STREAM, "l: three of four clusters dropped, all values differ", dropped("l"), "suppressed"),
        (_STREAM, "share: three of four clusters dropped, all values differ", dropped("share"), "suppressed"),
    ),
    *_falsifications(
        *(
            (
                _STREAM,
                name,
                changed(_STREAM, limit, under_weaker(names_policy=names_policy, privacy=privacy, **attribute)),
                check,
            )
            for name, limit, names_policy, privacy, attribute, check in (
                ("made under a smaller l, as the evidence says", "l", True, {"l": 4}, {}, "policy"),
                ("made under a smaller l", "l", False, {"l": 6}, {}, "diversity"),
                ("made under a larger t", "t, equal", False, {"t": 0.05}, {}, "closeness"),
                ("made with another reference", "t, equal", True, {}, {"reference": _OTHER_ILLS}, "policy"),
                ("another reference, not named", "t, equal", False, {}, {"reference": _OTHER_ILLS}, "closeness"),
                ("made with another taxonomy", "t, tree", True, {}, {"taxonomy": _OTHER_TREE}, "policy"),
                ("another taxonomy, not named", "t, tree", False, {}, {"taxonomy": _FLAT}, "closeness"),
            )
        ),
        (
            "topic of scales",
            "made under a smaller l",
            changed("topic of scales", "l", under_weaker(names_policy=False, privacy={"l": 6})),
            "diversity",
        ),
        *(
            (_STREAM, f"summary: {name}", changed(_STREAM, limit, stating(**fields)), "accounts")
            for name, limit, fields in (
                ("too large an l", "l", {"l": {"min": 6}}),
                ("too small a share", "share", {"value_share": {"max": 0.1}}),
                ("too small a distance", "t, equal", {"emd": {"ill": {"max": 0.01}}}),
                ("too small a mean distance", "t, tree", {"emd": {"ill": {"mean": 0.01}}}),
            )
        ),
    ),
]
