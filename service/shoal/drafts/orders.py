"""Words that have an order, in English, German, French and Spanish, and texts that begin with numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_LINES = """
very low|sehr niedrig|très faible|muy bajo, low|niedrig|gering|faible|bajo, medium|mid|middle|mittel|moyen|medio,
  high|hoch|élevé|alto, very high|sehr hoch|très élevé|muy alto
none|keine|aucun|ninguno, mild|leicht|léger|leve, moderate|mäßig|modéré|moderado, severe|schwer|sévère|grave
never|nie|jamais|nunca, rarely|seldom|selten|rarement|raramente, occas|occasionally,
  sometimes|manchmal|parfois|a veces, often|regul|regularly|oft|souvent|a menudo,
  heavy|always|immer|toujours|siempre
very poor|sehr schlecht, poor|bad|schlecht|mauvais|malo, fair|average|mittelmäßig|regular, good|gut|bon|bueno,
  very good|sehr gut|très bon|muy bueno, excellent|ausgezeichnet|excelente
strongly disagree, disagree, neutral|undecided, agree, strongly agree
none|no degree|ohne, primary|elementary|grundschule|primaire|primaria, middle school|hauptschule,
  secondary|high school|hs-grad|realschule|secondaire|secundaria, abitur|baccalauréat|bachillerato,
  some college|some-college, associate, tertiary|bachelor|bachelors|licence|grado, master|masters|maîtrise,
  doctorate|phd|doktor|doctorat|doctorado
xxs, xs, s, m, l, xl, xxl, xxxl
tiny, small|klein|petit|pequeño, medium|midsize|mittel|moyen|mediano, large|big|groß|grand|grande, huge
infant, child|kind|enfant|niño, teenager|adolescent|jugendlicher, adult|adults|erwachsener|adulte|adulto,
  senior|elderly
asstprof, assocprof, prof
i, ii, iii, iv, v, vi, vii, viii, ix, x
monday|mon|montag|mo|lundi|lunes, tuesday|tue|dienstag|di|mardi|martes, wednesday|wed|mittwoch|mi|mercredi|miércoles,
  thursday|thu|donnerstag|do|jeudi|jueves, friday|fri|freitag|fr|vendredi|viernes,
  saturday|sat|samstag|sa|samedi|sábado, sunday|sun|sonntag|so|dimanche|domingo
january|jan|januar|janvier|enero, february|feb|februar|février|febrero, march|mar|märz|mrz|mars|marzo,
  april|apr|avril|abril, may|mai|mayo, june|jun|juni|juin|junio, july|jul|juli|juillet|julio,
  august|aug|août|agosto, september|sep|septembre|septiembre, october|oct|oktober|okt|octobre|octubre,
  november|nov|novembre|noviembre, december|dec|dezember|dez|décembre|diciembre
"""
ORDERS: Final = tuple(
    tuple(tuple(place.split("|")) for place in line.split(", "))
    for line in _LINES.strip().replace(",\n  ", ", ").splitlines()
)
"""Families of words, lowest first; words between bars have one place."""
_MOST_WORDS = 50
_LEADING = re.compile(r"\s*([<>≤≥]?)\s*([0-9]+(?:[.,][0-9]+)?)(?![0-9])(.*)", re.DOTALL)
_SIGNS = {"<": -1, "≤": -1, ">": 1, "≥": 1}


def find_order(texts: Sequence[str]) -> list[str]:
    """Return words by their order, lowest first; nothing if it is not known of all.

    >>> find_order(["High", "low", "medium"]), find_order(["18-24", "65+", "25-64"]), find_order(["a", "b"])
    (['low', 'medium', 'High'], ['18-24', '25-64', '65+'], [])
    """
    if not 2 <= len(texts) <= _MOST_WORDS:  # noqa: PLR2004
        return []
    for order in ORDERS:
        ranks = {word: rank for rank, words in enumerate(order) for word in words}
        found = [ranks.get(" ".join(text.casefold().split()).rstrip("."), -1) for text in texts]
        if -1 not in found and len(set(found)) == len(texts):
            return [text for _, text in sorted(zip(found, texts, strict=True))]
    return _by_numbers(texts)


def _by_numbers(texts: Sequence[str]) -> list[str]:
    """Order texts such as ``<18``, ``18-24`` and ``1st class`` by the numbers that they begin with."""
    found = [_LEADING.fullmatch(text) for text in texts]
    matches = [match for match in found if match is not None]
    if len(matches) < len(texts) or not any(match[1] or match[3].strip() for match in matches):
        return []
    keys = [(float(match[2].replace(",", ".")), _SIGNS.get(match[1], 0)) for match in matches]
    endings = {re.sub(r"[0-9.,]+", "0", match[3]).strip() for match in matches}
    is_range = any(re.search(r"[-–+]|to|bis", match[3]) for match in matches)
    if len(set(keys)) < len(texts) or (len(endings) > 3 and not is_range):  # noqa: PLR2004
        return []
    return [text for _, text in sorted(zip(keys, texts, strict=True))]
