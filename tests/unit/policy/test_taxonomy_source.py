"""Taxonomies: files and trees in the policy, their faults with lines, and their part in the fingerprint."""

from __future__ import annotations

from pathlib import Path

import pytest
from shoal.errors import PolicyError
from shoal.policy import Policy
from support.policy_files import faults, load

pytestmark = pytest.mark.unit

TEXT = """\
subject: every_record
attributes:
  job:
    role: quasi_identifier
    scale: nominal
    taxonomy: {taxonomy}
privacy: {{k: 2}}
"""
FILE = "job;field;all\nnurse;Health;Any\ndoctor;Health;Any\njudge;Law;Any\n"
TREE = "{Any: {Health: [nurse, doctor], Law: [judge]}}"
PATHS = {("nurse", "Health"), ("doctor", "Health"), ("judge", "Law")}


def of_file(folder: Path, content: str | bytes) -> Policy:
    (folder / "job.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    return load(TEXT.format(taxonomy="job.csv"), folder)


def faults_of_file(folder: Path, content: str | bytes) -> list[str]:
    (folder / "job.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    found = faults(TEXT.format(taxonomy="job.csv"), folder)
    assert list(found) == ["attributes.job.taxonomy"]
    assert found["attributes.job.taxonomy"][0] == 6
    assert "canary" not in found["attributes.job.taxonomy"][1]
    return [found["attributes.job.taxonomy"][1]]


@pytest.mark.parametrize(
    "content",
    [
        FILE,
        FILE.replace(";", ","),
        "\ufeff" + FILE.replace("\n", "\r\n"),
        FILE.replace(";", " ; ") + "\n\n",
        FILE.replace("nurse", '"nurse"'),
    ],
)
def test_a_file_is_read_with_either_delimiter(content: str, tmp_path: Path) -> None:
    taxonomy = of_file(tmp_path, content).attributes[0].taxonomy
    assert taxonomy is not None
    assert set(taxonomy.paths) == PATHS
    assert taxonomy.root == "Any"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "job.csv: must have a header and one row per leaf"),
        ("job;field\n", "job.csv: must have a header and one row per leaf"),
        ("canary;Health;Any\ndoctor;Health;Any\njudge;Law;Any\n", "job.csv line 1: repeats a name of the rows below"),
        (FILE + "canary;Law\n", "job.csv line 5: has 2 cells, but the header has 3"),
        (FILE + "canary;Law;Any;\n", "job.csv line 5: has 4 cells, but the header has 3"),
        (FILE + "canary;;Any\n", "job.csv line 5: a name is empty"),
        (FILE + "\nnurse;Health;Any\n", "job.csv line 6: the leaf occurs twice, also in line 2"),
        (FILE + "canary;Health;Other\n", "job.csv line 5: the name on level 1 is below two different names, also in"),
        (FILE + '"canary;Health;Any\n', "a quotation mark is missing"),
        (b"job;field\n\xff;Health\n", "job.csv line 2: not UTF-8"),
        (FILE.replace(";", "\t"), "job.csv: separates cells by tabs"),
        (FILE.replace(";", "|"), "job.csv: separates cells by |; separate them by ; or ,"),
        (FILE.replace(";", "|").replace("nurse", "canary, senior"), "job.csv: separates cells by |"),
        ("job\nnurse\n\ncanary\n", "job.csv: has one column; give the leaf and its groups, or leave taxonomy out"),
        ("A00;A\nB00;B\nC00;C\n", "job.csv line 1: its first name has the form of the leaves below"),
        (
            FILE + "Law;Health;Any\n",
            "job.csv line 5: the name of the leaf is that of another group, on level 1, also in",
        ),
        (
            FILE + "Any;Health;Any\n",
            "job.csv line 5: the name of the leaf is that of another group, on level 2, also in",
        ),
        ("a;b;c\nx;G;H\ny;H;J\n", "job.csv line 3: the name on level 1 is that of another group, on level 2, also in"),
        ("a;b\nx;G\n*;H\n", "job.csv line 3: * is the name of the root here"),
        ("a;" * 40 + "a\n" + "".join(f"b{n};" for n in range(40)) + "b\n", "more than 32 levels"),
        (b"job\n" + b"x" * (33 << 20), "job.csv: is larger than 32 MiB"),
    ],
)
def test_a_faulty_file_is_reported_with_its_own_line(content: str | bytes, words: str, tmp_path: Path) -> None:
    assert words in faults_of_file(tmp_path, content)[0]


@pytest.mark.parametrize(
    ("name", "words"),
    [("absent.csv", "no such file"), (".", "is no file"), ('"a\\0b"', "no such file"), ('""', "is no file")],
)
def test_a_path_without_a_file_is_reported(name: str, words: str, tmp_path: Path) -> None:
    found = faults(TEXT.format(taxonomy=name), tmp_path)
    assert words in found["attributes.job.taxonomy"][1]


@pytest.mark.parametrize(
    ("content", "root"),
    [
        ("a;b;c\nx;x;x\ny;G;H\n", "*"),
        ("a;b;c;d\nx;*;*;*\ny;G;*;*\nz;G;*;*\n", "*"),
        ("a;b;c\nI10;I10;I\nI11.0;I11;I\nI11.9;I11;I\nA;A;A\n", "*"),
        ("a;b\nx|y;G\nz;H\n", "*"),
        ("icd10;group\nI10;I\nJ10;J\n", "*"),
    ],
)
def test_a_name_may_be_repeated_directly_above_its_node(content: str, root: str, tmp_path: Path) -> None:
    taxonomy = of_file(tmp_path, content).attributes[0].taxonomy
    assert taxonomy is not None
    assert taxonomy.root == root
    assert len(taxonomy.paths) == content.count("\n") - 1


@pytest.mark.parametrize(
    ("tree", "paths", "root"),
    [
        (TREE, PATHS, "Any"),
        ("{Health: [nurse, doctor], Law: {judge: }}", PATHS, "*"),
        ("{Health: [nurse, doctor], Law: judge}", PATHS, "*"),
        ("[{Health: [nurse, doctor]}, {Law: [judge]}]", PATHS, "*"),
        ("[Bern, Basel]", {("Bern",), ("Basel",)}, "*"),
        ("[250, true, ' x ']", {("250",), ("true",), ("x",)}, "*"),
        ("{A: {B: {C: [d]}}, x: , E: [f]}", {("d", "C", "B", "A"), ("x", "x", "x", "x"), ("f", "f", "f", "E")}, "*"),
    ],
)
def test_a_tree_in_the_policy_has_leaves_of_one_depth(
    tree: str, paths: set[tuple[str, ...]], root: str, tmp_path: Path
) -> None:
    taxonomy = load(TEXT.format(taxonomy=tree), tmp_path).attributes[0].taxonomy
    assert taxonomy is not None
    assert (set(taxonomy.paths), taxonomy.root) == (paths, root)


@pytest.mark.parametrize(
    ("tree", "line", "words"),
    [
        ("{}", 6, "at least one value"),
        ("\n      Health: [nurse, doctor]\n      Law:\n      - nurse", 9, "the leaf occurs twice"),
        ("\n      A: {C: [x]}\n      B: {C: [y]}", 8, "level 1 is below two different names"),
        ("\n      A: [x, '']", 7, "a name is empty"),
        (f"\n      A: [x, {'y' * 999}]", 7, "more than 1,000 bytes"),
        ("\n      A: [x, 1.5]", 7, "neither a text nor an integer"),
        ("\n      A: [x, null]", 7, "neither a text nor an integer"),
        ('\n      A: [x, "\\ud800"]', 7, "lone surrogate"),
        ("[icd.csv]", 6, "give one file as a text: taxonomy: FILE"),
        ("{file: codes/icd.CSV}", 6, "give one file as a text: taxonomy: FILE"),
        ("[a, '*']", 6, "* is the name of the root here"),
        ("\n      A: [x]\n      B: [A]", 8, "the name of the leaf is that of another group, on level 1"),
        ("[" * 1 + "{a: " * 40 + "x" + "}" * 40 + "]", 6, "more than 32 levels"),
    ],
)
def test_a_faulty_tree_is_reported_with_its_line(tree: str, line: int, words: str, tmp_path: Path) -> None:
    found = faults(TEXT.format(taxonomy=tree), tmp_path)
    assert list(found) == ["attributes.job.taxonomy"]
    assert found["attributes.job.taxonomy"][0] == line
    assert words in found["attributes.job.taxonomy"][1]


def test_a_taxonomy_is_part_of_the_fingerprint_by_its_content(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    known = of_file(tmp_path, FILE).fingerprint
    assert of_file(there, FILE).fingerprint == known, "the same content in another folder"
    header, *rows = FILE.splitlines(keepends=True)
    assert of_file(there, "a;b;c\n" + "".join(reversed(rows))).fingerprint == known, "rows have no order"
    assert load(TEXT.format(taxonomy=TREE), tmp_path).fingerprint == known, "the same tree in the policy"
    assert of_file(there, FILE.replace("judge", "lawyer")).fingerprint != known
    assert of_file(there, FILE.replace("Any", "All")).fingerprint != known
    assert of_file(there, header + "".join(rows[1:])).fingerprint != known


@pytest.mark.parametrize("absent", [Path("a/absent.csv"), "a/absent.csv"])
def test_a_missing_file_in_place_of_that_of_the_policy_is_named_as_given(absent: str | Path, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(TEXT.format(taxonomy="job.csv"))
    with pytest.raises(PolicyError) as caught:
        Policy.load(tmp_path / "policy.yaml", {"job": absent})
    assert [(fault.line, fault.message) for fault in caught.value.faults] == [(None, "a/absent.csv: no such file")]


@pytest.mark.parametrize(
    ("taxonomy", "name", "words"),
    [("[a, b]", "jobs", "name one of those that have one: attributes.job"), ("", "job", "no attribute has one")],
)
def test_a_file_for_an_attribute_without_taxonomy_is_answered_with_those_that_have_one(
    taxonomy: str, name: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "policy.yaml").write_text(TEXT.format(taxonomy=taxonomy))
    with pytest.raises(PolicyError) as caught:
        Policy.load(tmp_path / "policy.yaml", {name: "job.csv"})
    assert [fault.message for fault in caught.value.faults] == [
        f"missing, so no other file can be given for it; {words}"
    ]
