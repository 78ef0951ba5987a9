"""The partitioner that is chosen when nobody chooses."""

from __future__ import annotations

from shoal.engine.static.hilbert import hilbert
from shoal.engine.static.mdav import mdav
from shoal.engine.static.optimal import optimal
from shoal.engine.static.vmdav import vmdav
from shoal.kernel.arrays import Float64Matrix, Int32Vector

__all__ = ["starts"]

FEW = 20_000
"""Records of which several partitions are made; the best is kept."""


def starts(values: Float64Matrix, k: int, *, refined: bool) -> list[Int32Vector]:
    """Return the partitions that ``auto`` chooses from, by the loss each has after refinement.

    Parameters
    ----------
    values : ndarray of float64, shape (n, d), C-contiguous
        Coordinates; finite; not modified.
    k : int
        Smallest cluster, 2 <= k <= n.
    refined : bool
        Whether they will be refined: a run along Hilbert's curve is the worst partition to keep, and with many
        records the best and quickest to begin with.

    Returns
    -------
    list of ndarray of int32, shape (n,)
        One or several.

    Notes
    -----
    One attribute: the best partition there is. Up to 20,000 records: MDAV, V-MDAV and, to be refined, Hilbert's curve.
    More: Hilbert's curve to be refined, MDAV otherwise.
    """
    if values.shape[1] == 1:
        return [optimal(values, k)]
    if len(values) <= FEW:
        return [mdav(values, k), vmdav(values, k), *([hilbert(values, k)] if refined else [])]
    return [hilbert(values, k) if refined else mdav(values, k)]
