"""What the survey says about costs (its sections III to V), counted as it counts, and in processor time of Shoal's."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
from shoal import microaggregate

from papers.common import Table, claim, clustered_draw, grid, progress, scattered_draw

__all__ = ["count_lines", "md_operations", "mdav_operations", "timed_lines", "vmdav_operations"]

SIZES, RECORDS, MANY = (3, 5, 10), (1_000, 4_000), 10_000
TIMED = (2_500, 10_000)
METHODS = ("md", "mdav", "vmdav")
NAMES = {"md": "MD", "mdav": "MDAV", "vmdav": "V-MDAV"}
K, RUNS = 3, 3


def md_operations(n: int, k: int) -> int:
    """Return the operations of MD: an iteration looks at all pairs of the records left, and k - 1 times at each."""
    return sum(r * (r - 1) // 2 + 2 * (k - 1) * r for r in range(n, 2 * k - 1, -2 * k))


def mdav_operations(n: int, k: int) -> int:
    """Return the operations of MDAV: an iteration searches the farthest twice, and k - 1 times near each seed."""
    return sum(2 * r + 2 * (k - 1) * r for r in range(n, 2 * k - 1, -2 * k))


def vmdav_operations(values: Table, k: int, gamma: float = 0.2) -> int:
    """Return the operations of V-MDAV after its distance matrix, by the sizes of its clusters in order of creation.

    One search for the farthest, k - 1 passes; for each record that is tried for an extension, one pass for the nearest
    and one for what is nearest to that.
    """
    left, found = len(values), 0
    for size in np.bincount(microaggregate(values, k, "vmdav", parameters={"gamma": gamma})).tolist():
        tried = min(size - k + 1, k - 1)
        found += left * k + sum(2 * max(left - k - extra, 0) for extra in range(tried))
        left -= size
    return found


def exponent(first: float, last: float, n: tuple[int, int] = RECORDS) -> float:
    """Return by which power of the number of records a count or a time grows."""
    return math.log(last / first) / math.log(n[1] / n[0])


def count_lines() -> list[str]:
    """Return the lines about operations as the paper counts them."""
    progress("survey, operations")
    counts: dict[str, Callable[[int, int], int]] = {
        "MD": md_operations,
        "MDAV": mdav_operations,
        "V-MDAV, scattered": lambda n, k: vmdav_operations(scattered_draw(n), k),
        "V-MDAV, clustered": lambda n, k: vmdav_operations(clustered_draw(n), k),
    }
    found = {name: {k: (count(RECORDS[0], k), count(RECORDS[1], k)) for k in SIZES} for name, count in counts.items()}
    rows = [(name, *(f"{own[k][0]:,} ({exponent(*own[k]):.2f})" for k in SIZES)) for name, own in found.items()]
    md, mdav = found["MD"], found["MDAV"]
    n = RECORDS[1]
    pairs = {k: md[k][1] / (n // (2 * k) * (n * (n - 2) / 8 + (k - 1) * n)) for k in SIZES}
    passes = {k: mdav[k][1] / (n // (2 * k) * (n - 1 + (k - 1) * n)) for k in SIZES}
    ratios = [found[name][k][1] / mdav[k][1] for name in list(found)[2:] for k in SIZES]
    whole = [(found[name][k][1] + n * (n - 1) // 2) / mdav[k][1] for name in list(found)[2:] for k in SIZES]
    claims = [
        claim(
            "MD takes n (n - 2) / 8 + (k - 1) n operations an iteration",
            all(abs(ratio - 1) < 0.1 for ratio in pairs.values()),
            f"{max(pairs.values()):.2f} times as many: the mean square of the records left is n² / 3, not (n / 2)²",
        ),
        claim(
            "MD is O(n³ / k)",
            all(abs(exponent(*md[k]) - 3) < 0.1 for k in SIZES),
            f"n^{exponent(*md[3]):.2f}; from k = 5 to 10 × {md[10][1] / md[5][1]:.2f}",
        ),
        claim(
            "MDAV takes n - 1 + (k - 1) n operations an iteration",
            all(abs(ratio - 1) < 0.1 for ratio in passes.values()),
            f"{min(passes.values()):.2f} to {max(passes.values()):.2f} times as many",
        ),
        claim(
            "MDAV is O(n²)",
            all(abs(exponent(*mdav[k]) - 2) < 0.1 for k in SIZES),
            f"n^{exponent(*mdav[3]):.2f}; from k = 5 to 10 × {mdav[10][1] / mdav[5][1]:.2f}",
        ),
        claim(
            "V-MDAV costs about as much as MDAV",
            max(whole) < 3,
            f"{min(ratios):.1f} to {max(ratios):.1f} times as much; with its matrix of n (n - 1) / 2 distances "
            f"{min(whole):.1f} to {max(whole):.1f} times",
        ),
        claim(
            f"MD is too costly for {MANY:,} records, MDAV is not",
            md_operations(MANY, K) > 100 * mdav_operations(MANY, K),
            f"{md_operations(MANY, K) / mdav_operations(MANY, K):,.0f} times the operations at k = {K}",
        ),
    ]
    return [
        "**Costs** (its sections III to V). Operations as it counts them: an operation is a distance, or a look at a",
        "record that is left while the k - 1 nearest are chosen; the distance matrix of V-MDAV is not counted. At",
        f"{RECORDS[0]:,} records; in brackets the power of n by which they grow up to {RECORDS[1]:,}:",
        "",
        *grid(("method", *(f"k = {k}" for k in SIZES)), rows),
        *grid(("The paper says", "here", "found"), claims),
    ]


def timed_lines() -> list[str]:
    """Return the lines about processor time of Shoal's forms, which keep trees in place of distance matrices."""
    rows, names = [], {method: [_seconds(method, n) for n in TIMED] for method in METHODS}
    for method, seconds in names.items():
        rows.append(
            (
                NAMES[method],
                *(f"{s:.3f}" for s in seconds),
                f"{exponent(seconds[0], seconds[-1], (TIMED[0], TIMED[-1])):.2f}",
                f"{seconds[1] / names['mdav'][1]:.1f}",
            )
        )
    return [
        "Costs in processor seconds of Shoal's forms, which search trees and give the same clusters, on tables like",
        f"*Scattered*, k = {K}, least of {RUNS} runs; the power of n by which they grow; seconds beside those of MDAV:",
        "",
        *grid(("method", *(f"{n:,} records" for n in TIMED), "power", "of MDAV"), rows),
        f"So {MANY:,} records are not too many for any of the three.",
        "",
    ]


def _seconds(method: str, n: int) -> float:
    progress(f"survey, seconds, {NAMES[method]}, {n:,}")
    values, least = scattered_draw(n), math.inf
    microaggregate(values[:500], K, method)
    for _ in range(RUNS):
        began = time.process_time()
        microaggregate(values, K, method)
        least = min(least, time.process_time() - began)
    return least
