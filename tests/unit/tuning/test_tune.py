"""`shoal tune`: what it measures of a setting, which setting it chooses, and how it ends."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import patch

import pytest
from shoal.cli.command_line import main
from shoal.errors import ConfigError, InputError, ShoalError
from shoal.policy import Policy
from shoal.tuning import Tuned, html_of, parse_grid, parse_targets, pool
from shoal.tuning.measuring import Figures, Spread
from shoal.tuning.pool import Bench, Outcome, Task, Workers, _received, _serve
from shoal.tuning.results import _protects_less, _target, figures_of
from shoal.tuning.settings import Setting, block_of, default_settings, in_words, settings_of
from shoal.tuning.targets import Measured, choose

pytestmark = pytest.mark.unit

POLICY = """
attributes:
  person: {role: identifier, subject: true}
  at: {role: quasi_identifier, scale: time, resolution: h}
  age: {role: quasi_identifier, scale: numeric, bounds: [0, 110], integer: true}
  job: {role: quasi_identifier, scale: nominal}
  ill: {role: confidential, type: string}
privacy: {k: 3}
stream: {delta: 20}
"""
TABLE = POLICY.replace("stream: {delta: 20}\n", "")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with policies of a stream and of a table, and a sample of 240 records, one a minute."""
    draw = random.Random(5)
    rows = ["person,at,age,job,ill"]
    for number in range(240):
        age = draw.randrange(20, 90)
        ill = draw.choice(["flu", "cold", "gout"])
        rows.append(f"p{number},2026-03-01T{number // 60:02}:{number % 60:02}:00Z,{age},job{age // 30},{ill}")
    (tmp_path / "sample.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "stream.yaml").write_text(POLICY)
    (tmp_path / "table.yaml").write_text(TABLE)
    return tmp_path


def tune(folder: Path, *more: str, policy: str = "stream.yaml", workers: int = 1) -> tuple[int, dict[str, Any]]:
    outputs = ["-o", str(folder / "tune.html"), "--json", str(folder / "tune.json"), "--workers", str(workers)]
    code = main(["tune", str(folder / policy), "-i", str(folder / "sample.csv"), *outputs, *more])
    path = folder / "tune.json"
    return code, json.loads(path.read_text()) if path.exists() else {}


def run(command: str, folder: Path, policy: str) -> dict[str, Any]:
    files = ["-i", str(folder / "sample.csv"), "-o", str(folder / "out.csv"), "--summary", str(folder / "summary.json")]
    evidence = ["--evidence", str(folder / "evidence.jsonl")]
    assert main([command, str(folder / policy), *files, *evidence]) == 0
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return summary


def test_figures_are_those_of_pipe_and_batch(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = tune(folder, "--grid", "k=3,6 delta=20,40", workers=2)
    assert code == 0
    assert capsys.readouterr().out.startswith("Recommended: ")
    assert [one["words"] for one in found["settings"]] == ["as the policy", "delta 40", "k 6", "k 6, delta 40"]
    (folder / "other.yaml").write_text(POLICY.replace("k: 3", "k: 6").replace("delta: 20", "delta: 40"))
    for line, policy in ((found["settings"][0], "stream.yaml"), (found["settings"][3], "other.yaml")):
        summary, figures = run("pipe", folder, policy), line["figures"]
        assert figures["loss"] == float(f"{summary['mean_loss']:.3g}")
        assert figures["loss_by_attribute"] == {key: float(f"{one:.3g}") for key, one in summary["loss"].items()}
        assert figures["delay"]["mean"] == float(f"{summary['delay']['mean']:.3g}")
        assert figures["reordering"]["mean"] == float(f"{summary['displacement']['mean']:.3g}")
        assert figures["smallest_cluster"] == summary["subjects"]["min"]
        assert figures["suppressed_share"] == 0
        # One record arrives in each minute.
        assert figures["delay_s"]["mean"] == pytest.approx(60 * figures["delay"]["mean"], rel=0.01)
    assert html_of(found) == (folder / "tune.html").read_text(), "the page shows nothing but the numbers"
    summary, table = run("batch", folder, "stream.yaml"), found["tables"][0]["figures"]
    assert table["loss"] == float(f"{summary['mean_loss']:.3g}")
    assert table["linkage"] == float(f"{summary['dld']:.2g}")
    assert 0.5 < found["recommended"]["loss_of_first_half"] / found["recommended"]["figures"]["loss"] < 2
    assert found["sample"]["event_time"] == "at"
    assert found["sample"]["records"] == found["sample"]["unique"] == 240


def test_linkage_is_that_of_the_published_values(folder: Path) -> None:
    """It is the ``dld`` of the report: the times are published to the hour, and link fewer records than their means."""
    _, found = tune(folder, "--grid", "k=3")
    run("pipe", folder, "stream.yaml")
    files = ["--original", str(folder / "sample.csv"), "--released", str(folder / "out.csv")]
    files += ["--evidence", str(folder / "evidence.jsonl"), "-o", str(folder / "report.html")]
    assert main(["report", str(folder / "stream.yaml"), *files, "--json", str(folder / "report.json")]) == 0
    assert json.loads((folder / "report.json").read_text())["risk"]["dld"] == 0.12
    assert found["policy"]["figures"]["linkage"] == 0.12


def test_a_block_to_copy_gives_what_the_page_says_of_it(folder: Path) -> None:
    (folder / "stream.yaml").write_text(POLICY.replace("}\n  job", ", weight: 0.1}\n  job"))
    code, found = tune(folder, "--grid", "rule=awo,block")
    recommended = found["recommended"]
    assert code == 0
    assert recommended["figures"]["loss"] < found["policy"]["figures"]["loss"]
    tuned = Tuned.load(str(folder / "stream.yaml"))
    assert recommended["block"] == block_of(recommended["setting"])
    weights = {name[7:]: value for name, value in recommended["setting"].items() if name.startswith("weight.")}
    changed = {one.name: one.weight for one in tuned.changed(recommended["setting"]).quasi_identifiers}
    assert weights
    assert changed == tuned.weights() | weights


def test_a_table_has_no_delay_and_its_page_no_stream(folder: Path) -> None:
    code, found = tune(folder, policy="table.yaml")
    assert code == 0
    assert {"k", "l"} >= {name for one in found["settings"] for name in one["setting"]}
    assert found["policy"]["is_table"]
    assert found["recommended"]["figures"]["delay"] is None
    assert not found["tables"]


def test_a_sample_of_too_few_people_is_refused_or_shown_as_suppressed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "sample.csv").write_text("person,at,age,job,ill\np1,2026-03-01T00:00:00Z,30,cook,flu\n")
    assert tune(folder, policy="table.yaml") == (2, {})
    assert "fewer than 3 different subjects" in capsys.readouterr().err
    code, found = tune(folder, "--target", "suppressed<=100%")
    assert code == 0
    assert found["targets"][0]["reached"] == 1
    assert found["policy"]["figures"]["suppressed_share"] == 1
    assert found["policy"]["figures"]["loss"] is None
    assert capsys.readouterr().out == "No setting released a record: give a longer sample, or a smaller k.\n"


def test_a_target_out_of_reach_is_named_with_the_nearest_setting(folder: Path) -> None:
    code, found = tune(folder, "--grid", "k=3,6", "--target", "loss<=0.01%,delay<=1h")
    assert code == 4
    assert not found["recommended"]["protects_less"]
    assert [one["unit"] for one in found["targets"]] == ["share", "s"]
    assert found["out_of_reach"] == ["loss<=0.01%"]
    assert [one["is_held"] for one in found["targets"]] == [False, True]
    assert [one["is_narrow"] for one in found["targets"]] == [False, False]
    assert "Out of reach: loss&lt;=0.01%. Nearest: " in (folder / "tune.html").read_text()


def test_for_targets_that_no_setting_holds_positions_are_tried_with_each_k_and_delta(folder: Path) -> None:
    _, found = tune(folder, "--target", "loss<=0.01%,reordering<=4")
    tried = [one["words"] for one in found["settings"]]
    assert {"k 6, delta 10, target_span 12", "delta 40, target_span 3", "target_span 12"} <= set(tried)
    assert len(tried) == len(set(tried))
    assert tried[0] == "as the policy"


def test_an_interrupt_keeps_what_is_done(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure, count = Bench.run, 0

    def interrupted(bench: Bench, task: Task) -> Outcome:
        nonlocal count
        count += 1
        if count > 2:
            raise KeyboardInterrupt
        return measure(bench, task)

    monkeypatch.setattr(Bench, "run", interrupted)
    code, found = tune(folder, "--grid", "k=3,4,5,6")
    assert code == 130
    assert [one["words"] for one in found["settings"]] == ["as the policy", "k 4"]
    assert "Stopped early" in (folder / "tune.html").read_text()
    (folder / "tune.json").unlink()
    count = 9
    assert tune(folder, "--grid", "k=3,4,5,6") == (130, {}), "nothing is done"


def test_settings_stand_in_their_order_whichever_worker_was_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = ("--grid", "k=3,4")
    _, found = tune(folder, *grid)
    run_in_order = Workers.run

    def reversed_run(pool: Workers, tasks: list[Task]) -> Iterator[tuple[int, Outcome]]:
        yield from list(run_in_order(pool, tasks))[::-1]

    monkeypatch.setattr(Workers, "run", reversed_run)
    _, other = tune(folder, *grid)
    for name in ("settings", "tables", "weights"):
        assert [one["words"] for one in found[name]] == [one["words"] for one in other[name]], name


def test_an_interrupt_before_the_policy_itself_is_measured_is_no_fault_of_the_sample(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def outcomes(*_: object) -> Iterator[tuple[int, Outcome]]:
        yield 1, figures(0.1, 0.2)
        raise KeyboardInterrupt

    monkeypatch.setattr(Workers, "run", outcomes)
    assert tune(folder, "--grid", "k=3,4") == (130, {})


def test_an_output_that_cannot_be_written_is_refused_before_the_work(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Bench, "run", lambda *_: pytest.fail("it was measured"))
    assert tune(folder, "--json", str(folder / "none" / "tune.json")) == (2, {})
    assert "none" in capsys.readouterr().err
    assert not (folder / "tune.html").exists()


def test_settings_that_do_not_fit_are_named(folder: Path) -> None:
    code, found = tune(folder, "--grid", "k=3,50,200 delta=20")
    assert code == 0
    assert [one["setting"] for one in found["not_possible"]] == ["k 50", "k 200"]
    assert "delta" in found["not_possible"][0]["reason"]


def figures(prosecutor: float, loss: float, **more: Any) -> Figures:
    return Figures(records=100, released=100, suppressed=0, loss=loss, losses={}, prosecutor=prosecutor, **more)


def test_the_setting_of_least_risk_that_holds_the_targets_is_chosen() -> None:
    delay = Spread(50.0, 90.0)
    own = Measured({}, figures(0.1, 0.20, delay=delay, guess=0.4))
    safer = Measured({"k": 20}, figures(0.05, 0.28, delay=delay, guess=0.4))
    vague = Measured({"l": 3}, figures(0.1, 0.25, delay=delay, guess=0.3))
    long = Measured({"delta": 400}, figures(0.1, 0.1, delay=Spread(200.0, 380.0), guess=0.4))
    tried = [own, safer, vague, long]
    for text, chosen, missed in (
        ("loss<=30%", safer, []),
        ("loss<=25%,delay<=60", vague, []),
        ("loss<=0.2,delay<=60", own, []),
        ("loss<=10%", long, []),
        ("loss<=15%,delay<=60", own, ["loss<=15%", "delay<=60"]),
        ("loss<=5%,delay<=60", own, ["loss<=5%"]),
    ):
        choice = choose(tried, parse_targets(text))
        assert (choice.chosen, choice.missed) == (chosen, missed), text
    assert choose(tried, []).chosen is own, "the policy has the least loss with its k, delta and l"
    better = Measured({"rule": "block"}, replace(own.figures, loss=0.15))
    assert choose([*tried, better], []).chosen is better
    worse = Measured({"rule": "block"}, replace(own.figures, loss=0.15, suppressed=1))
    assert choose([*tried, worse], []).chosen is own


@pytest.mark.parametrize(
    "text",
    ["", "loss", "loss<=8s", "delay<=8%", "loss<=8%,loss<=9%", "speed<=1", "loss>=8%", "loss<=8", "suppressed<=1"],
)
def test_a_target_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--target"):
        parse_targets(text)


def test_a_grid_is_every_combination_and_the_default_varies_what_the_policy_has(folder: Path) -> None:
    tuned = Tuned.load(str(folder / "stream.yaml"))
    grid = parse_grid("k=3,5 position=0 target_span=20 weight.age=1,2", tuned)
    assert [in_words(one) for one in settings_of(grid, tuned)] == [
        "as the policy",
        "weight.age 2",
        "target_span 20",
        "target_span 20, weight.age 2",
        "k 5",
        "k 5, weight.age 2",
        "k 5, target_span 20",
        "k 5, target_span 20, weight.age 2",
    ]
    names = {name for one in default_settings(tuned, 240) for name in one}
    assert names == {"k", "delta", "rule", "position", "l"}
    assert {one["delta"] for one in default_settings(tuned, 120) if "delta" in one} == {10}
    assert block_of({"k": 5, "position": {"target_span": 20}, "weight.age": 2.0}) == (
        'privacy:\n  k: 5\nsteering:\n  position: {target_span: 20}\nattributes:\n  "age": {weight: 2}\n'
    )
    for text in ("k", "k=x", "rule=fast", "size=3", "weight.ill=2", f"k={','.join(map(str, range(3, 300)))}"):
        with pytest.raises(ConfigError, match="--grid"):
            settings_of(parse_grid(text, tuned), tuned)


def test_max_delay_follows_the_time_of_events(folder: Path) -> None:
    (folder / "stream.yaml").write_text(POLICY.replace("{delta: 20}", "{delta: 100, max_delay_s: 600}"))
    _, found = tune(folder, "--grid", "k=3")
    assert Policy.load(folder / "stream.yaml").require_stream().max_delay_s == 600
    assert found["policy"]["figures"]["delay_s"]["p95"] <= 600


def test_an_error_of_a_worker_reaches_the_user_without_its_text(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Broken(Bench):
        def run(self, task: Task) -> Outcome:
            raise ValueError(f"a value of {task}")

    bench = Broken(Tuned.load(str(folder / "stream.yaml")), "", None, 1)
    ours, theirs = Pipe()
    thread = Thread(target=_serve, args=(theirs, bench))
    with patch("signal.signal"):
        thread.start()
        ours.send(Task({}, is_table=False))
        with pytest.raises(ShoalError, match=r"unexpected ValueError at .*test_tune"):
            _received(ours)
        ours.close()
        thread.join()
    with pytest.raises(InputError, match="ended from outside"):
        _received(closed())
    assert "a value" not in capfd.readouterr().err


def closed() -> Any:
    ours, theirs = Pipe()
    theirs.close()
    return ours


def test_counts_of_few_records_are_not_shown() -> None:
    few = replace(figures(0.1, 0.2), suppressed=2, records=1000, released=998)
    shown = figures_of(few, 10)
    assert (shown["suppressed_share"], shown["released"]) == (0.01, 1000)
    of_total = [figures_of(replace(few, records=total), 10)["suppressed_share"] for total in range(995, 1005)]
    assert of_total == [0.01] * 10, "the number of records does not follow from a share"
    (target,) = parse_targets("suppressed<=1%")
    assert _target(target, Measured({}, few), [], [Measured({}, few)], 10)["reached"] == 0.01
    assert _target(target, Measured({}, few), [], [Measured({}, few)], 10)["least"] == 0.01


def test_a_late_delay_is_not_shown_of_so_few_records_that_fewer_than_k_are_later() -> None:
    few = replace(figures(0.1, 0.2), delay=Spread(4.0, 9.0), released=199)
    assert figures_of(few, 10)["delay"] == {"mean": 4.0, "p95": None}
    assert figures_of(replace(few, released=200), 10)["delay"] == {"mean": 4.0, "p95": 9.0}


def test_a_setting_that_promises_less_says_so_also_where_the_sample_does_not_show_it() -> None:
    own: Setting = {"k": 3, "l": 2, "t": 0.2}
    less: list[Setting] = [{"k": 2}, {"l": 1}, {"l": None}, {"t": 0.5}, {"t": None}, {"k": 6, "t": 0.5}]
    no_less: list[Setting] = [{}, {"k": 6}, {"l": 3}, {"t": 0.1}, {"rule": "awo"}]
    assert [_protects_less(setting, own) for setting in (*less, *no_less)] == [True] * 6 + [False] * 5


@pytest.mark.parametrize(
    ("has_kernels", "settings", "is_compiled"), [(False, 83, False), (False, 84, True), (True, 1, True)]
)
def test_compiled_kernels_are_used_if_the_cache_has_them_or_many_settings_are_tried(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, has_kernels: bool, settings: int, is_compiled: bool
) -> None:
    monkeypatch.setattr(pool, "is_final", lambda: False)
    monkeypatch.setattr(pool, "was_compiled", lambda _: has_kernels)
    bench = Bench(Tuned.load(str(folder / "stream.yaml")), str(folder / "sample.csv"), None, 20_000)
    bench.compile_for(settings)
    assert bench.is_compiled == is_compiled, "240 records are decided for each setting"


def test_the_least_of_all_settings_is_no_more_than_what_found_weights_reached() -> None:
    (target,) = parse_targets("loss<=30%")
    weighted = Measured({"weight.age": 2.0}, figures(0.1, 0.18))
    shown = _target(target, weighted, [], [Measured({}, figures(0.1, 0.2))], 10)
    assert (shown["reached"], shown["least"]) == (0.18, 0.18)
