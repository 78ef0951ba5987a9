"""`microaggregate`: partition a table by one of `ALGORITHMS`, refine the partition, and check its guarantee."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shoal.arrays import LARGEST, Float64Matrix, Int32Vector
from shoal.errors import AnonymityViolation, ParameterError
from shoal.kernels.cache import mark_compiled
from shoal.kernels.jit import compile_if_large, is_compiled
from shoal.kernels.pieces import Progress, telling
from shoal.protection.diversity import DISTINCT, ENTROPY, RECURSIVE, LDiversity, ValueReference
from shoal.tables.arguments import (
    Diversity,
    Reference,
    confidential_attributes,
    default_value_share,
    is_integer,
    is_number,
    parse_diversity,
    protection_faults,
)
from shoal.tables.constraints import ClusterConstraints, ConfidentialAttribute, merge_until_feasible, violating_clusters
from shoal.tables.exact import check_exact
from shoal.tables.hilbert import hilbert, optimal
from shoal.tables.literature.approximate import approximate
from shoal.tables.literature.genetic import genetic
from shoal.tables.literature.md import md
from shoal.tables.mdav import mdav, vmdav
from shoal.tables.measures import loss_of
from shoal.tables.refinement import NO_CONSTRAINTS, REFINEMENTS, BudgetUsed, RefinedPartition
from shoal.tables.refinement import refine as refine_partitions
from shoal.tables.repair import NEAR_CLUSTERS, repair_by_swaps
from shoal.tables.t_closeness import TClosePartition, steered, strict

Parameter: TypeAlias = float | str

Algorithm: TypeAlias = Callable[..., Int32Vector]
"""Takes values, k and its own parameters as keywords (among them ``seed`` if it draws), and returns labels."""

ALGORITHMS: dict[str, Algorithm] = {
    "md": md,
    "mdav": mdav,
    "vmdav": vmdav,
    "hilbert": hilbert,
    "optimal": optimal,
    "genetic": genetic,
    "approximate": approximate,
}

T_CLOSE_ALGORITHMS: dict[str, Callable[..., TClosePartition]] = {"steered": steered, "strict": strict}
"""Take values, k, one confidential attribute, t and their own parameters as keywords."""

PARAMETER_RANGES: dict[str, dict[str, tuple[float, float]]] = {
    "vmdav": {"gamma": (0, 1e9)},
    "genetic": {"macro": (2, 10**6), "steps": (1, 2), "generations": (0, 10**9)},
    "approximate": {"bins": (2, 10**6)},
    "steered": {"weight": (0, 1e9), "target_t": (1e-6, 1)},
}
"""Smallest and largest value of each numeric parameter; the default is always valid."""


AUTO = "auto"


def default_refinement(algorithm: object) -> str:
    """Return how the partition of an algorithm is refined where nothing is said: a named one runs as it is."""
    return "descent" if isinstance(algorithm, str) and algorithm == AUTO else "none"


LARGEST_EXPONENT = 400
"""Squares are computed without underflow or overflow if the widest range lies between two to minus this and to this."""


def parameters_of(name: str) -> dict[str, Parameter]:
    """Return the parameters of an algorithm with their defaults, without the seed.

    Raises
    ------
    ParameterError
        If there is no such algorithm.
    """
    own = inspect.signature(_algorithm(name)).parameters.values()
    return {p.name: p.default for p in own if p.kind is p.KEYWORD_ONLY and p.name != "seed"}


def check_parameters(name: str, given: Mapping[str, Parameter]) -> None:
    """Check the parameters of an algorithm.

    Raises
    ------
    ParameterError
        With all faults: an unknown name, a wrong type, a value outside its range; or if there is no such algorithm.
    """
    known, ranges = parameters_of(name), PARAMETER_RANGES.get(name, {})
    faults = [_fault(key, value, known, ranges.get(key)) for key, value in given.items()]
    if any(faults):
        raise ParameterError(f"algorithm '{name}': " + "; ".join(filter(None, faults)))


def check_t(name: str, given: Mapping[str, Parameter], t: float | None, attributes: int) -> None:
    """Check that an algorithm for t-closeness has one t: that which is guaranteed, or that which `steered` aims at.

    Raises
    ------
    ParameterError
        If it has none or both, or if `steered` aims at one with another number of confidential ``attributes`` than one.
    """
    has_target = name == "steered" and "target_t" in given
    if has_target and t is not None:
        raise ParameterError(f"algorithm '{name}': target_t is for tables without privacy.t; remove one of the two")
    if has_target and attributes != 1:
        raise ParameterError(
            f"algorithm '{name}': target_t steers by one confidential attribute, and there are {attributes}; with "
            "privacy.l or privacy.max_value_share, protect: true marks one"
        )
    if name in T_CLOSE_ALGORITHMS and t is None and not has_target:
        more = ", or --param target_t=T, which is not guaranteed" if name == "steered" else ""
        raise ParameterError(f"algorithm '{name}': needs privacy.t{more}")


def microaggregate(
    values: ArrayLike,
    k: int = 10,
    algorithm: str = "auto",
    refine: str | None = None,
    seed: int = 0,
    *,
    parameters: Mapping[str, Parameter] | None = None,
    budget_used: BudgetUsed | None = None,
    constraints: ClusterConstraints = NO_CONSTRAINTS,
    confidential: ArrayLike | None = None,
    l: Diversity | None = None,  # noqa: E741 - the letter of the literature
    max_value_share: float | None = None,
    t: float | None = None,
    reference: Reference | Sequence[Reference] | None = None,
    progress: Progress | None = None,
) -> Int32Vector:
    """Partition a table into clusters of at least k records that lie close together.

    Parameters
    ----------
    values : array_like of float64, shape (n, d)
        Coordinates, scaled by the caller: integers or floats, finite, at most 1e150 in absolute value; not modified.
    k : int
        Smallest cluster, 2 <= k <= n.
    algorithm : str
        ``auto``, or a name of `shoal.tables.ALGORITHMS`. With t-closeness also ``strict`` or ``steered``:
        they are run once per confidential attribute, and the partition that loses least is kept. With the parameter
        ``target_t``, ``steered`` needs no ``t``: its clusters aim at this distance, and none is guaranteed.
    refine : str, optional
        How the partition is changed to lose less: ``none``, ``descent``, ``anneal`` or ``exact``. The last needs the
        extra ``exact``, k of 2 or 3 and at most 6,000 records; with one attribute it needs none of these. By default
        ``descent`` after ``auto``, and ``none`` after a named algorithm.
    seed : int
        Seed of all random choices, 0 or more; the same seed gives the same labels.
    parameters : mapping of str to number or str, optional
        Parameters of the algorithm (`parameters_of`).
    budget_used : callable, optional
        Share of its budget that ``anneal`` or ``exact`` has used, given the number of changes tried so far; 1 ends it.
        It may count changes, read a clock, or show progress. By default the budget is 10,000 changes per record.
    constraints : ClusterConstraints
        What every cluster must satisfy besides its size. By default nothing: k counts records.
    confidential : array_like of str, number or None, shape (n,) or (n, q), optional
        Values of the q confidential attributes that ``l``, ``max_value_share`` and ``t`` apply to; required with one of
        these. Numbers are compared by value, texts without surrounding whitespace, and a text that is a number as that
        number. None and NaN are one value: missing.
    l : int or mapping, optional
        l-diversity of each cluster: a number of different values, ``{"entropy": l}`` or ``{"recursive": [c, l]}``.
    max_value_share : float, optional
        Largest share of the people of a cluster who have one value. By default 0.5 with a number of different values,
        else no limit.
    t : float, optional
        Largest earth mover's distance of a cluster from the reference (t-closeness).
    reference : mapping or sequence of mappings, optional
        Share of each value, for each attribute; by default the table. If all its values are numbers or missing, the
        distance is the ordered one, else the equal one.
    progress : callable, optional
        Called between the pieces of long work, often many times a second, with the name of a step and the share of it
        that is done, from 0 to 1. The number of steps is not known before. What it raises ends the call.

    Returns
    -------
    ndarray of int32, shape (n,)
        Cluster of each record, from 0.

    Raises
    ------
    ParameterError
        If an argument is outside its domain or of another type; the message names it.
    AnonymityViolation
        If a cluster is smaller than k or violates a constraint, as when the whole table violates it. Nothing is
        returned then.

    Notes
    -----
    Guarantee: every label occurs at least k times and every cluster satisfies the constraints; both are checked on the
    result. Clusters of an algorithm that violate a constraint are merged with their nearest, and refinement makes no
    change that violates one.
    Ctrl-C raises KeyboardInterrupt within about two seconds. Only a step of the solver of ``exact``, or a macrogroup of
    ``genetic``, is not interrupted.
    The loss is the sum of squared distances to the centroids of the clusters; `refined` returns it as well.
    """
    table = _checked_values(values)
    refine = default_refinement(algorithm) if refine is None else refine
    faults = _argument_faults(len(table), k, algorithm, refine, seed, parameters, budget_used, constraints, progress)
    is_protected = any(one is not None for one in (l, max_value_share, t, reference))
    if is_protected or confidential is not None:
        faults += protection_faults(l, max_value_share, t, reference, None)
    if is_protected and confidential is None:
        faults.append("confidential: missing, l, max_value_share, t and reference apply to it")
    if faults:
        raise ParameterError("; ".join(faults))
    if confidential is not None:
        constraints = replace(
            constraints,
            confidential=confidential_attributes(
                confidential,
                len(table),
                reference,
                constraints.subjects,
                has_bins=t is not None or algorithm in T_CLOSE_ALGORITHMS,
            ),
            t=t,
            l=parse_diversity(l),
            max_value_share=default_value_share(l, max_value_share),
        )
    with telling(progress):
        return refined(
            table, k, algorithm, refine, seed, parameters=parameters, budget_used=budget_used, constraints=constraints
        ).labels


def refined(
    values: ArrayLike,
    k: int = 10,
    algorithm: str = "mdav",
    refine: str = "none",
    seed: int = 0,
    *,
    parameters: Mapping[str, Parameter] | None = None,
    budget_used: BudgetUsed | None = None,
    constraints: ClusterConstraints = NO_CONSTRAINTS,
) -> RefinedPartition:
    """Partition a table as `microaggregate` does, and return the loss and the proven bound beside the labels."""
    table = _checked_values(values)
    if faults := _argument_faults(len(table), k, algorithm, refine, seed, parameters, budget_used, constraints):
        raise ParameterError("; ".join(faults))
    k, seed = int(k), int(seed)
    is_slow, form = algorithm in SLOW_ALGORITHMS or refine in SLOW_REFINEMENTS, f"table-{algorithm}-{refine}"
    compile_if_large(*table.shape, is_slow=is_slow, form=form)
    if refine == "exact":
        check_exact(len(table), table.shape[1], k, is_unconstrained=constraints.are_none)
    exponent = math.frexp(float(np.ptp(table, axis=0).max()))[1]  # scales the widest range to 0.5 to 1
    is_scaled = abs(exponent) > LARGEST_EXPONENT
    if is_scaled:
        table = np.ldexp(table - table.min(axis=0), -exponent)
    is_refined, refining = refine != "none", constraints
    if algorithm == AUTO and not parameters:
        partitions = _candidate_partitions(table, k, constraints, is_refined=is_refined)
    else:
        check_t(algorithm, parameters or {}, constraints.t, len(constraints.confidential))
        check_parameters(algorithm, parameters or {})
        chosen = _algorithm(algorithm)
        seeded = {"seed": seed} if "seed" in inspect.signature(chosen).parameters else {}
        run = partial(chosen, **(parameters or {}), **seeded)
        if algorithm in T_CLOSE_ALGORITHMS:
            best = _t_close_partitions(table, k, run, constraints)[0]
            partitions, refining = [best.labels], replace(constraints, buckets=best.buckets)
        else:
            partitions = _feasible_partitions(table, run(table, k), k, constraints, is_refined=is_refined)
    found = refine_partitions(table, partitions, k, refine, seed, budget_used, refining)
    if violating_clusters(found.labels, k, constraints).any():
        raise AnonymityViolation("a cluster is smaller than k or violates a constraint; nothing is released")
    _note_compiled(form)
    return _scaled(found, exponent) if is_scaled else found


_noted: set[str] = set()
"""Forms of tables whose compiled kernels this process has noted."""


def _note_compiled(form: str) -> None:
    """Note, once in a process, that the kernels that tables of this form need are in the cache, if they are."""
    if is_compiled() and form not in _noted:
        _noted.add(form)
        mark_compiled(form)


SLOW_ALGORITHMS, SLOW_REFINEMENTS = {"approximate", "genetic"}, {"anneal", "exact"}
"""What takes longer as plain Python than the compiled form takes to load, even for few records."""

SEVERAL_UP_TO = 20_000  # records up to which several partitions are made, of which the best is kept


def _candidate_partitions(
    values: Float64Matrix, k: int, constraints: ClusterConstraints, *, is_refined: bool
) -> list[Int32Vector]:
    """Return the partitions of which ``auto`` keeps the one that loses least after refinement; all are feasible.

    One attribute: the optimal partition. Up to 20,000 records: MDAV, V-MDAV and, if refined, the Hilbert curve. More:
    the Hilbert curve if refined, else MDAV. (Runs along the curve lose most without refinement; with it, and many
    records, they are the best and fastest start.) With t-closeness also `strict` partitions, one per confidential
    attribute, refined by swaps within their buckets: the smaller t, the better they are as a start.
    """
    made = [optimal(values, k)] if values.shape[1] == 1 else []
    if made and constraints.t is None and not constraints.limit_values:
        pass  # no partition loses less
    elif len(values) <= SEVERAL_UP_TO:
        made += [mdav(values, k), vmdav(values, k), *([hilbert(values, k)] if is_refined else [])]
    else:
        made.append(hilbert(values, k) if is_refined else mdav(values, k))
    found = []
    for labels in made:
        found += _feasible_partitions(values, labels, k, constraints, is_refined=is_refined)
    if constraints.t is None:
        return found
    t_close = _t_close_partitions(values, k, strict, constraints)
    how = "descent" if is_refined else "none"
    for labels, buckets in t_close if len(values) <= SEVERAL_UP_TO else t_close[:1]:
        within = replace(constraints, buckets=buckets)
        found.append(refine_partitions(values, [labels], k, how, constraints=within).labels)
    return found


def _feasible_partitions(
    values: Float64Matrix, labels: Int32Vector, k: int, constraints: ClusterConstraints, *, is_refined: bool = False
) -> list[Int32Vector]:
    """Return partitions of which every cluster satisfies the constraints, if the table as one cluster does.

    Clusters that violate a constraint are merged; for l-diversity and shares of values they first exchange records with
    the nearest clusters, or with more. The partition that loses least is returned, or all if they will be refined.
    """
    if constraints.are_none:
        return [labels]
    starts = [labels]
    if constraints.limit_values:
        starts += [repair_by_swaps(values, labels, k, constraints, near) for near in (NEAR_CLUSTERS[:1], NEAR_CLUSTERS)]
    merged = [merge_until_feasible(values, start, k, constraints) for start in starts]
    return merged if is_refined else [min(merged, key=lambda labels: loss_of(values, labels))]


def _t_close_partitions(
    values: Float64Matrix, k: int, algorithm: Callable[..., TClosePartition], constraints: ClusterConstraints
) -> list[TClosePartition]:
    """Return the partition by an algorithm for each confidential attribute, merged until feasible, least loss first."""
    found = []
    for attribute in constraints.confidential:
        reference = attribute.compared_with(constraints.subjects)
        made = algorithm(values, k, attribute._replace(reference=reference), constraints.t)
        labels = _feasible_partitions(values, made.labels, k, constraints)[0]
        found.append(made._replace(labels=labels))
    return sorted(found, key=lambda made: loss_of(values, made.labels))


def _algorithm(name: str) -> Callable[..., Any]:
    found = ALGORITHMS.get(name) or T_CLOSE_ALGORITHMS.get(name)
    if found is None:
        raise ParameterError(f"algorithm: unknown, use one of auto, {', '.join([*ALGORITHMS, *T_CLOSE_ALGORITHMS])}")
    return found


def _fault(key: str, value: Parameter, known: Mapping[str, Parameter], limits: tuple[float, float] | None) -> str:
    """Return what is wrong with one parameter; empty if nothing is."""
    if key not in known:
        return f"no parameter '{key}', there is {', '.join(known) or 'none'}"
    wanted = type(known[key])
    if not isinstance(value, (int, float) if wanted is float else wanted) or isinstance(value, bool):
        return f"{key}: needs a value of type {wanted.__name__}"
    if limits is None or isinstance(value, str) or value == known[key] or limits[0] <= value <= limits[1]:
        return ""
    default = "as large as needed" if known[key] == math.inf else str(known[key])
    return f"{key}: must be from {limits[0]:.10g} to {limits[1]:.10g}; the default is {default}"


def _scaled(found: RefinedPartition, exponent: int) -> RefinedPartition:
    """Return the result of a table divided by two to the exponent in the unit of the values; a loss stays above 0."""
    try:
        loss, bound = math.ldexp(found.loss, 2 * exponent), math.ldexp(found.bound, 2 * exponent)
    except OverflowError:
        raise ParameterError("values: their squares exceed float64; scale them") from None
    if loss == 0.0 < found.loss:
        loss = math.ulp(0.0)
        bound = loss if found.bound == found.loss else 0.0
    return found._replace(loss=loss, bound=bound)


def _checked_values(values: ArrayLike) -> Float64Matrix:
    """Return the coordinates (n, d) as the kernels take them: C-contiguous; they may share memory with ``values``."""
    try:
        given = np.asarray(values)
    except (TypeError, ValueError):
        raise ParameterError("values: need shape (n, d), rows must have the same length") from None
    if given.ndim != 2 or 0 in given.shape:  # noqa: PLR2004 - records and attributes
        raise ParameterError("values: need shape (n, d), at least one record and one attribute")
    if given.dtype.kind not in "biuf":
        raise ParameterError("values: need integers or floats, no text, objects or complex numbers; convert them first")
    if np.ma.is_masked(values):
        raise ParameterError("values: must not be masked; fill or remove what is missing")
    with np.errstate(over="ignore"):  # a number too large for float64 becomes infinite and is refused here
        table: Float64Matrix = np.ascontiguousarray(given, dtype=np.float64)
        if not (np.abs(table) <= LARGEST).all():
            raise ParameterError(
                f"values: need finite numbers of at most {LARGEST:g}; scale them, fill or remove what is missing"
            )
    return table


def _argument_faults(
    n: int,
    k: object,
    algorithm: object,
    refine: object,
    seed: object,
    parameters: object,
    budget_used: object,
    constraints: object,
    progress: object = None,
) -> list[str]:
    """Return what is wrong with the arguments of `microaggregate` for n records, as messages."""
    checks = [
        (is_integer(k), "k: must be a whole number"),
        (not is_integer(k) or 2 <= k <= n, "k: needs 2 <= k <= number of records"),  # noqa: PLR2004
        (isinstance(algorithm, str), "algorithm: must be a name"),
        (isinstance(refine, str) and refine in REFINEMENTS, f"refine: unknown, use one of {', '.join(REFINEMENTS)}"),
        (is_integer(seed) and seed >= 0, "seed: must be a whole number, 0 or more"),
        (parameters is None or isinstance(parameters, Mapping), "parameters: must be a mapping of names to values"),
        (budget_used is None or callable(budget_used), "budget_used: must be a function of the number of changes"),
        (isinstance(constraints, ClusterConstraints), "constraints: must be ClusterConstraints"),
        (progress is None or callable(progress), "progress: must be a function of a step and a share"),
    ]
    faults = [message for is_fine, message in checks if not is_fine]
    return faults + (_constraint_faults(constraints, n) if isinstance(constraints, ClusterConstraints) else [])


def _constraint_faults(constraints: ClusterConstraints, n: int) -> list[str]:
    """Return what is wrong with the constraints on clusters of n records, as messages."""
    confidential: object = constraints.confidential
    t, l, share = constraints.t, constraints.l, constraints.max_value_share  # noqa: E741 - the letter of the literature
    are_attributes = isinstance(confidential, tuple) and all(_is_attribute(attribute, n) for attribute in confidential)
    codes = f"must be an array of integers from 0, shape ({n},)"
    with_codes = f"with integers from 0 as bins and values, shape ({n},), and bins of their reference"
    checks = [
        (constraints.subjects is None or _are_codes(constraints.subjects, n), f"subjects {codes}"),
        (constraints.buckets is None or _are_codes(constraints.buckets, n), f"buckets {codes}"),
        (_is_share(constraints.max_share), "max_share must be above 0 and at most 1"),
        (are_attributes, f"confidential needs attributes {with_codes}"),
        (t is None or (is_number(t) and t >= 0), "t must be a number, 0 or more"),
        (
            l is None or _is_l_diversity(l),
            "l must be LDiversity of 2 or more values, or more than 1 by entropy, with c above 0",
        ),
        (share is None or _is_share(share), "max_value_share must be above 0 and at most 1"),
        *(
            (one is None or bool(confidential), f"{name} needs a confidential attribute")
            for name, one in (("t", t), ("l", l), ("max_value_share", share))
        ),
    ]
    return [f"constraints: {message}" for is_fine, message in checks if not is_fine]


def _is_share(given: object) -> bool:
    return is_number(given) and 0 < given <= 1


def _is_l_diversity(given: object) -> bool:
    if not isinstance(given, LDiversity) or not is_number(given.l) or not is_number(given.c):
        return False
    if given.kind == ENTROPY:
        return 1 < given.l < math.inf
    is_whole = float(given.l).is_integer() and given.l >= 2  # noqa: PLR2004 - one value is no diversity
    return (given.kind == DISTINCT and is_whole) or (given.kind == RECURSIVE and is_whole and 0 < given.c < math.inf)


def _is_attribute(attribute: object, n: int) -> bool:
    if not isinstance(attribute, ConfidentialAttribute) or not _are_codes(attribute.bins, n):
        return False
    reference: object = attribute.reference
    if reference is not None and not (
        isinstance(reference, ValueReference) and int(attribute.bins.max()) < len(reference.weights)
    ):
        return False
    return attribute.values is None or _are_codes(attribute.values, n)


def _are_codes(codes: object, n: int) -> TypeGuard[NDArray[np.integer]]:
    """Whether a value of any type is an array of n integers from 0."""
    return (
        isinstance(codes, np.ndarray) and codes.shape == (n,) and codes.dtype.kind in "iu" and bool((codes >= 0).all())
    )
