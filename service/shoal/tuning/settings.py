"""Settings that `shoal tune` tries: keys of a policy with the values that they take in place of its own."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

from shoal.errors import ConfigError, PolicyError
from shoal.policy import RULES, Policy
from shoal.policy.document import read_document

Value: TypeAlias = int | float | str | Mapping[str, float] | None
Setting: TypeAlias = dict[str, Value]
"""Names of `PATHS`, or ``weight.ATTRIBUTE``, with their values; what is not named is as in the policy."""
PATHS = {
    "k": ("privacy", "k"),
    "l": ("privacy", "l"),
    "t": ("privacy", "t"),
    "delta": ("stream", "delta"),
    "rule": ("stream", "rule"),
    "position": ("steering", "position"),
}
OF_STREAMS = ("delta", "rule", "position")
WEIGHT, SPAN = "weight.", "target_span"
MOST_SETTINGS = 200
_LEAST_STRETCHES = 4
"""A sample must be this many times as long as delta: its last records are decided early, because it ends."""


@dataclass(frozen=True)
class Tuned:
    """The policy that is tuned: its content as plain values, its file, and what it resolves to."""

    content: Mapping[str, Any]
    path: str
    policy: Policy

    @classmethod
    def load(cls, path: str) -> Tuned:
        """Read a policy; errors as of `Policy.load`."""
        policy = Policy.load(path)
        return cls(read_document(Path(path))[0], path, policy)

    @property
    def own(self) -> Setting:
        """The values of the policy itself, without its weights."""
        found: Setting = {name: (self.content.get(path[0]) or {}).get(path[1]) for name, path in PATHS.items()}
        if self.policy.stream is None:
            return {name: value for name, value in found.items() if name not in OF_STREAMS}
        return found | {"rule": found["rule"] or "auto", "position": found["position"] or 0}

    def weights(self) -> dict[str, float]:
        """Return the weight of each quasi-identifier."""
        return {one.name: one.weight for one in self.policy.quasi_identifiers}

    def changed(self, setting: Setting) -> Policy:
        """Return the policy with other values; PolicyError if they do not fit it."""
        content = copy.deepcopy(dict(self.content))
        for name, value in setting.items():
            *outer, last = ("attributes", name[len(WEIGHT) :], "weight") if name.startswith(WEIGHT) else PATHS[name]
            section = content
            for key in outer:
                if section.get(key) is None:
                    section[key] = {}
                section = section[key]
            section.pop(last, None)
            if value is not None:
                section[last] = value
        return Policy.from_mapping(content, self.path)


def parse_grid(text: str, tuned: Tuned) -> dict[str, list[Value]]:
    """Return the values of ``k=5,10 delta=100,500 weight.age=1,2``; ConfigError names what is wrong."""
    names = [name for name in PATHS if tuned.policy.stream is not None or name not in OF_STREAMS]
    attributes = [WEIGHT + name for name in tuned.weights()]
    grid: dict[str, list[Value]] = {}
    for word in text.split():
        name, is_pair, values = word.partition("=")
        key = "position" if name == SPAN else name
        if not is_pair or key not in [*names, *attributes]:
            listed = ", ".join([*names, *([SPAN] if "position" in names else []), *attributes])
            raise ConfigError(f"--grid: give NAME=VALUE,VALUE with a name of: {listed}")
        grid.setdefault(key, []).extend(_value(name, one) for one in values.split(","))
    if not grid:
        raise ConfigError("--grid: give NAME=VALUE,VALUE, as k=5,10")
    return grid


def _value(name: str, text: str) -> Value:
    if name == "rule":
        if text not in {*RULES, "auto"}:
            raise ConfigError(f"--grid: rule is one of auto, {', '.join(RULES)}")
        return text
    if name in {"l", "t"} and text == "none":
        return None
    try:
        number = int(text) if name in {"k", "delta", "l"} else float(text)
    except ValueError:
        kind = "whole numbers" if name in {"k", "delta", "l"} else "numbers"
        raise ConfigError(f"--grid: {name} takes {kind}, with commas between them") from None
    return {SPAN: number} if name == SPAN else number


def settings_of(grid: Mapping[str, Sequence[Value]], tuned: Tuned) -> list[Setting]:
    """Return the policy's own setting and every combination of the grid; ConfigError if there are too many."""
    count = 1
    for values in grid.values():
        count *= len(values)
    if count > MOST_SETTINGS:
        raise ConfigError(f"--grid: {count:,} combinations; at most {MOST_SETTINGS} are tried, so give fewer values")
    combined = (dict(zip(grid, values, strict=True)) for values in product(*grid.values()))
    return distinct([{}, *combined], tuned)


def default_settings(tuned: Tuned, records: int) -> list[Setting]:
    """Return the policy's own setting, k by delta around it, and every other key by itself."""
    return distinct([{}, *_default_settings(tuned, records)], tuned)


def _default_settings(tuned: Tuned, records: int) -> Iterator[Setting]:
    policy, stream = tuned.policy, tuned.policy.stream
    sizes = sorted({max(2, policy.k // 2), policy.k, 2 * policy.k})
    if stream is None:
        yield from _each("k", sizes)
    else:
        multiples = (stream.delta // 2, stream.delta, 2 * stream.delta, 4 * stream.delta)
        deltas = [delta for delta in multiples if delta == stream.delta or 1 <= delta <= records // _LEAST_STRETCHES]
        for k, delta in product(sizes, deltas):
            if delta >= k - 1:
                yield {"k": k, "delta": delta}
        yield from _each("rule", RULES)
        if not stream.is_ordered:
            yield from _each("position", [{SPAN: span} for span in (policy.k, 4 * policy.k)])
    l, t = tuned.own["l"], tuned.own["t"]  # noqa: E741 - of l-diversity
    if policy.confidential and (l is None or isinstance(l, int)):
        yield from _each("l", (2, 3) if l is None else (l - 1, l + 1))
    if isinstance(t, int | float):
        yield from _each("t", [float(f"{min(1.0, factor * t):.2g}") for factor in (0.5, 1.5)])


def _each(name: str, values: Sequence[Value]) -> Iterator[Setting]:
    return ({name: value} for value in values)


def distinct(settings: Sequence[Setting], tuned: Tuned) -> list[Setting]:
    """Return settings without values that are those of the policy, each setting once."""
    own: Setting = {**tuned.own, **{WEIGHT + name: weight for name, weight in tuned.weights().items()}}
    found: dict[str, Setting] = {}
    for setting in settings:
        changes = {name: value for name, value in setting.items() if value != own[name]}
        found.setdefault(json.dumps(changes, sort_keys=True), changes)
    return list(found.values())


def usable(settings: Sequence[Setting], tuned: Tuned) -> tuple[list[Setting], list[dict[str, str]]]:
    """Return the settings that fit the policy, and why others do not."""
    found, faults = [], []
    for setting in settings:
        try:
            tuned.changed(setting)
        except PolicyError as error:
            faults.append({"setting": in_words(setting), "reason": "; ".join(map(str, error.faults))})
        else:
            found.append(setting)
    return found, faults


def in_words(setting: Setting) -> str:
    """Return the changes of a setting in words.

    >>> in_words({"k": 5, "position": {"target_span": 20}, "weight.age": 2.0}), in_words({})
    ('k 5, target_span 20, weight.age 2', 'as the policy')
    """
    return ", ".join(
        f"{SPAN if isinstance(value, Mapping) else name} {shown(value)}" for name, value in setting.items()
    ) or ("as the policy")


def shown(value: Value) -> str:
    """Return a value of a setting for people."""
    if isinstance(value, Mapping):
        return shown(value.get(SPAN)) if SPAN in value else " ".join(f"{key} {one}" for key, one in value.items())
    return f"{value:g}" if isinstance(value, float) else "none" if value is None else str(value)


def block_of(setting: Setting) -> str:
    """Return the keys of a setting as YAML, to copy into the policy."""
    sections: dict[str, list[str]] = {}
    for name, value in setting.items():
        if name.startswith(WEIGHT):
            quoted = json.dumps(name[len(WEIGHT) :], ensure_ascii=False)
            sections.setdefault("attributes", []).append(f"  {quoted}: {{weight: {shown(value)}}}")
        else:
            section, key = PATHS[name]
            text = f"{{{SPAN}: {shown(value)}}}" if isinstance(value, Mapping) and SPAN in value else _as_yaml(value)
            sections.setdefault(section, []).append(f"  {key}: {text}")
    return "".join(f"{name}:\n" + "".join(f"{line}\n" for line in lines) for name, lines in sections.items())


def _as_yaml(value: Value) -> str:
    return "null" if value is None else shown(value) if isinstance(value, float) else json.dumps(value)
