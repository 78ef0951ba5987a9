"""The attacks on an anonymised stream that we know of. Their numbers are ours; nothing else hangs on them.

``outside`` says what of an attack is not promised, and by which line of SECURITY.md; ``missing`` what cannot be
attacked because it does not exist yet. What tests have found is not written here: it comes from the ledger.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ATTACKS", "Attack"]


@dataclass(frozen=True, slots=True)
class Attack:
    """One way to learn more from a release than k allows."""

    what: str
    outside: str = ""
    missing: str = ""


ATTACKS = {
    "R1": Attack("The order of records inside a cluster tells who came when"),
    "R2": Attack(
        "A cluster leaves when its oldest record must, so the time of release tells a time of arrival",
        outside="time of arrival may tell the cluster, never the record (line 8)",
    ),
    "R3": Attack("If records leave in the order they came, a place in that order is a name"),
    "R4": Attack("A crash in the middle of an ordered release breaks up clusters"),
    "R5": Attack("Key, headers, timestamp, field order, spelling of numbers or extra fields come through"),
    "R6": Attack(
        "Record batches and transaction markers, as a client below the protocol sees them, tell where clusters end",
        outside="cluster borders are visible anyway: their members share a centroid (lines 1, 9)",
    ),
    "R7": Attack(
        "The partition's number is a hash of the key, so it shrinks the crowd",
        outside="k holds within each partition; the number of the partition is public (line 2)",
    ),
    "R8": Attack(
        "The group's metadata tells which offsets have left with which commit",
        outside="without a key for it, metadata is inside the trust boundary (line 9)",
    ),
    "R9": Attack("The group's metadata holds something that depends on what a record says"),
    "R10": Attack(
        "The same records are released twice, in different clusters, which can be intersected",
        outside="a second deployment that shares neither group nor output cannot be seen (line 6)",
    ),
    "R11": Attack("A reader that ignores transactions sees clusters of aborted ones"),
    "R12": Attack("A clock decides otherwise the second time, after a crash"),
    "R13": Attack(
        "Who knows the k - 1 others of a cluster computes the last one from the mean",
        outside="a record whose k - 1 companions are known is known; the grid blurs it, without a bound (line 7)",
    ),
    "R14": Attack("Squared errors, minima or maxima of one cluster, scraped or published, tell what its mean does not"),
    "R15": Attack("The last bits of a floating-point mean tell in which order it was added up"),
    "R16": Attack(
        "One huge value shows through the mean of its cluster",
        outside="unless `dominance` is set (line 7)",
    ),
    "R17": Attack("A median or mode publishes the value of a real person"),
    "R18": Attack("A missing value that stays missing marks its record within the cluster"),
    "R19": Attack(
        "All members of a cluster share the confidential value",
        outside="k-anonymity says nothing about confidential values (line 3)",
    ),
    "R20": Attack(
        "A cluster that grew to get a second confidential value tells who was added",
        outside="`t` of tables: the place of a member in its cluster may tell its confidential value (line 3)",
        missing="`l`, and `t` of streams, are refused",
    ),
    "R21": Attack(
        "Who is suppressed for want of a second confidential value had the first one",
        missing="`l`, and `t` of streams, are refused; reasons do not tell in any case",
    ),
    "R22": Attack(
        "A field that is published unchanged is known to somebody",
        outside="such a field is a quasi-identifier and must be declared as one (line 4)",
    ),
    "R23": Attack(
        "A confidential value is unique, or grows with the position, and so is a key",
        outside="a confidential value that somebody knows is a quasi-identifier (line 4)",
    ),
    "R24": Attack("One person owns most of a cluster of k people"),
    "R25": Attack(
        "A stable value of one person is intersected over the clusters he is in",
        outside="k-anonymity does not compose over releases (line 5)",
    ),
    "R26": Attack(
        "One person under several spellings counts as several",
        outside="people are told apart as the policy says: `normalize` (line 1)",
    ),
    "R27": Attack("Two clusters below k with equal centroids pass for one"),
    "R28": Attack("A later record joins a cluster that has left already, alone in its time"),
    "R29": Attack(
        "Someone surrounds a record with his own, which then are its cluster",
        outside="no bound: subjects must be authenticated and writers trusted (line 7)",
    ),
    "R30": Attack(
        "Someone floods the stream, so that few of each cluster are other people",
        outside="an untargeted share f of false records: k acts like 1 + (k - 1)(1 - f) (line 7)",
    ),
    "R31": Attack(
        "In a quiet partition one record arrives, someone adds k - 1, and waits for the clock to let them go",
        outside="subjects must be authenticated and writers trusted (line 7)",
    ),
    "R32": Attack(
        "That a record was suppressed tells that its person was nearly alone",
        outside="the reference, and a live count that is scraped often, say so to those who may read them (lines 8, 9)",
    ),
    "R33": Attack("An extreme or a text with markup poisons a scale, a report or a page"),
    "R34": Attack("Counts, scraped often, tell of single clusters"),
    "R35": Attack("The reason for not publishing a record tells its value"),
    "R36": Attack("A value stands in an error, a log line or a trace"),
    "R37": Attack("A tuning report shows records of the sample", missing="`shoal tune`"),
    "R38": Attack("A page in the browser of somebody inside reads the live page by another name"),
    "R39": Attack(
        "Exact sums of two runs that differ by one record, or a judge's message, tell that record",
        outside="the summary of `shoal pipe` has exact sums; of two runs that is two releases (line 6)",
    ),
}
