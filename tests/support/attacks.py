"""The known attacks on an anonymized stream. Their numbers R1 to R42 are defined here.

``outside`` says what Shoal does not guarantee, and in which point of SECURITY.md; ``missing`` names what cannot be
attacked because it does not exist yet. The results of tests are not in this file: they come from `attack_results`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attack:
    """One way to learn more from a release than k allows."""

    what: str
    outside: str = ""
    missing: str = ""


ATTACKS = {
    "R1": Attack("The order of records inside a cluster shows their order of arrival"),
    "R2": Attack(
        "A cluster is released when its oldest record is due, so the time of release shows a time of arrival",
        outside="a time of arrival may identify the cluster, never the record (point 8)",
    ),
    "R3": Attack("If records are released in the order of arrival, the rank of a record identifies it"),
    "R4": Attack("A crash in the middle of an ordered release splits clusters"),
    "R5": Attack("Key, headers, timestamp, field order, number format or extra fields of the input are published"),
    "R6": Attack(
        "Record batches and transaction markers, read at the level of the protocol, show where clusters end",
        outside="bounds of clusters are visible anyway: their members share a centroid (points 1, 9)",
    ),
    "R7": Attack(
        "The partition is chosen by a hash of the key, so it reduces the number of candidates",
        outside="k holds within each partition; the number of the partition is public (point 2)",
    ),
    "R8": Attack(
        "The group's metadata shows which offsets were released by which commit",
        outside="without a key the metadata must be protected like the input (point 9)",
    ),
    "R9": Attack("The group's metadata depends on the content of a record"),
    "R10": Attack(
        "The same records are released twice, in different clusters, which can be intersected",
        outside="a second deployment with another group and output cannot be detected (point 6)",
    ),
    "R11": Attack("A reader that ignores transactions sees clusters of aborted ones"),
    "R12": Attack("After a crash, a clock causes another decision than before"),
    "R13": Attack(
        "An attacker that knows the k - 1 other members of a cluster computes the last one from the mean",
        outside="if k - 1 members are known, the last one is known: the resolution limits the precision only (point 7)",
    ),
    "R14": Attack("Squared errors, minima or maxima of one cluster, scraped or published, show more than its mean"),
    "R15": Attack("The last bits of a floating-point mean show the order of summation"),
    "R16": Attack(
        "One very large value dominates the mean of its cluster",
        outside="a value within its bounds may be worked out from the mean (point 7)",
    ),
    "R17": Attack(
        "A median or mode publishes the value of a real person",
        outside="a mode, a median, a rounded time and a coarse mean may be the value of only one member (point 7)",
    ),
    "R18": Attack(
        "A missing value that is published as missing identifies its record within the cluster",
        outside="null shows that at least half of the people of the cluster have no value (point 7)",
    ),
    "R19": Attack(
        "All members of a cluster have the same confidential value",
        outside="k-anonymity alone does not protect confidential values: `l`, `max_value_share` and `t` do (point 3)",
    ),
    "R20": Attack(
        "A cluster that grew to contain a second confidential value shows which record was added",
        outside="with `l` and `t` the position of a member in its cluster may show its confidential value (point 3)",
    ),
    "R21": Attack(
        "A record suppressed because no second confidential value was near must have the first one",
        outside="in a stream with `l`, `t` or `max_value_share` a suppression may show the value (point 3)",
    ),
    "R22": Attack(
        "An attacker knows the value of a field that is published unchanged",
        outside="such a field is a quasi-identifier and must be declared as one (point 4)",
    ),
    "R23": Attack(
        "A confidential value is unique, or grows with the position, and so identifies its record",
        outside="a confidential value that an attacker knows is a quasi-identifier (point 4)",
    ),
    "R24": Attack("One person has most of the records of a cluster of k people"),
    "R25": Attack(
        "A constant or slowly changing value of one person is followed over that person's clusters",
        outside="k-anonymity does not compose over releases (point 5)",
    ),
    "R26": Attack(
        "One person whose identifier is written in several ways counts as several people",
        outside="people are distinguished as the policy says: `normalize` (point 1)",
    ),
    "R27": Attack("Two clusters below k with equal centroids are taken for one valid cluster"),
    "R28": Attack("A later record joins a cluster that is already released, and is alone in its transaction"),
    "R29": Attack(
        "An attacker sends records that are similar to one record and fill its cluster",
        outside="no bound: subjects must be authenticated and writers trusted (point 7)",
    ),
    "R30": Attack(
        "An attacker sends so many records that few members of each cluster are other people",
        outside="with an untargeted share f of false records k has the effect of 1 + (k - 1)(1 - f) (point 7)",
    ),
    "R31": Attack(
        "In a quiet partition one record arrives, an attacker adds k - 1, and waits for a flush by the clock",
        outside="subjects must be authenticated and writers trusted (point 7)",
    ),
    "R32": Attack(
        "A suppressed record shows that few people were near it",
        outside="the quarantine entry, and a live count that is scraped often, show it to its readers (points 8, 9)",
    ),
    "R33": Attack(
        "An extreme value or a text with markup corrupts a scale, a report or a page",
        outside="records of an attacker can make an attribute count for less: writers must be trusted (point 7)",
    ),
    "R34": Attack("Counts that are scraped often show single clusters"),
    "R35": Attack("The reason why a record is not published shows its value"),
    "R36": Attack("An error, a log line or a traceback contains a value"),
    "R37": Attack("A tuning report shows records of the sample"),
    "R38": Attack("A web page in a browser inside the network reads the status page under another host name"),
    "R39": Attack(
        "Exact sums of two runs that differ by one record, or a message of `shoal verify`, show that record",
        outside="the summary of `shoal pipe` has exact sums; two runs are two releases (point 6)",
    ),
    "R40": Attack(
        "A model of confidential values on quasi-identifiers, trained on the release alone, links a row of a cluster",
        outside="a confidential value that goes with quasi-identifiers links above 1/k, with `l` too (point 3)",
    ),
    "R41": Attack(
        "An attacker who knows the quasi-identifiers of all members of a cluster assigns its rows to them",
        outside="the same, with all members known (points 3, 7)",
    ),
    "R42": Attack(
        "A published node of a taxonomy is the lowest common one, so at least two of its children have a member",
        outside="often all members but one are under one child; a larger k makes that rarer (point 7)",
    ),
}
