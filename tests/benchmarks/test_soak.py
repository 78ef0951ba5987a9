"""A short soak by the code of `make soak`, and what its report says of samples made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from soak import limits_of, memory_trends, page
from soak_judge import Findings
from soak_run import Sample, Soak, SoakOptions, soak

SOUND = Findings(
    records=1000,
    released=980,
    suppressed=10,
    quarantined=10,
    twice=0,
    lost=0,
    clusters=98,
    under_k=0,
    judged=4,
    verified=4,
)


def soak_of(
    memory_mb: list[float],
    findings: Findings = SOUND,
    *,
    in_use_mb: float = 0.0,
    lag: float = 0.0,
    delay_s: float = 0.3,
) -> Soak:
    """Return a soak of one worker with a sample a minute; ``in_use_mb`` is by how much memory in use grows in each."""
    samples = [
        Sample(60.0 * number, (one,), (50.0 + in_use_mb * number,), lag, 0, delay_s, delay_s, 1.0)
        for number, one in enumerate(memory_mb)
    ]
    return Soak(SoakOptions(len(memory_mb), 1), 200.0, 100.0, samples, 6.0, findings)


def broken(found: Soak) -> list[str]:
    return [limit.name for limit in limits_of(found) if not limit.is_kept]


@pytest.mark.unit
@pytest.mark.parametrize(
    ("memory_mb", "in_use_mb", "slopes", "name"),
    [
        ([100.0, 120.0, 140.0, *[150.0] * 9], 0.0, None, None),
        ([100.0 + number for number in range(12)], 0.0, (1.0, 0.0), "resident memory"),
        ([150.0] * 12, 0.5, (0.0, 0.5), "memory in use"),
    ],
)
def test_memory_that_grows_steadily_and_not_only_at_first_is_beyond_noise(
    memory_mb: list[float], in_use_mb: float, slopes: tuple[float, float] | None, name: str | None
) -> None:
    found = soak_of(memory_mb, in_use_mb=in_use_mb)
    assert broken(found) == ([] if name is None else [f"slope of the {name} of worker 1, MB a minute"])
    if slopes is not None:
        of_both = (memory_trends(found.samples)[0], memory_trends(found.samples, "in_use_mb")[0])
        assert [one.slope for one in of_both] == pytest.approx(slopes)


@pytest.mark.unit
def test_the_report_has_the_bounds_and_the_account_and_says_if_options_changed_the_run() -> None:
    sound = soak_of([100.0] * 12)
    text = "\n".join(page(sound))
    for words in (
        "200 records a second",
        "| longest delay, s | 0.3 | 12 | kept |",
        "1,000 records: 980 released in 98 clusters,",
        "| longest lag, records | 0 | 1,000 | kept |",
        "`shoal verify` judged 4 of 4 partitions, each whole.",
        "91 µs a record",
    ):
        assert words in text
    assert "broken" not in text
    for options, at_rate, is_told in (
        ((30.0, 1, 400.0), 400.0, True),
        ((25.0, 1), 500.0, True),
        ((30.0, 1), 500.0, False),
    ):
        told = "\n".join(page(Soak(SoakOptions(*options), 1000.0, at_rate, sound.samples, 6.0, SOUND)))
        assert ("This is not the run of `make soak` alone" in told) == is_told
    bad = SOUND._replace(twice=1, lost=2, under_k=3, verified=3)
    assert broken(soak_of([100.0] * 12, bad, lag=1001.0, delay_s=12.5)) == [
        "longest lag, records",
        "longest delay, s",
        "records released twice",
        "records lost",
        "clusters under k",
        "partitions that shoal verify accepts",
    ]


@pytest.mark.nightly
@pytest.mark.timeout(1200)
async def test_two_minutes_at_half_of_the_highest_rate(bootstrap: str, tmp_path: Path) -> None:
    found = await soak(bootstrap, tmp_path, SoakOptions(minutes=2.0, workers=2))
    print("\n".join(page(found)))
    assert found.findings is not None
    assert found.findings.is_sound
    assert found.findings.released > 0.95 * found.findings.records
    assert broken(found) == []
