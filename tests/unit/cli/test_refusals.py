"""What a command can refuse without a record: it reads none, compiles nothing and leaves no file behind."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from support.commands import run_command

pytestmark = pytest.mark.unit

SHOAL = [sys.executable, "-m", "shoal.cli"]
ATTRIBUTES: dict[str, Any] = {
    "who": {"role": "identifier", "subject": True},
    "age": {"role": "quasi_identifier", "bounds": [0, 110]},
    "shop": {"role": "quasi_identifier", "scale": "nominal"},
    "ill": {"role": "confidential", "type": "string"},
}
POLICIES: dict[str, dict[str, Any]] = {
    "stream": {"privacy": {"k": 2}, "stream": {"delta": 4}},
    "ordered": {"privacy": {"k": 2}, "stream": {"delta": 4, "release": "ordered"}},
    "table": {"privacy": {"k": 2}},
    "diverse": {"privacy": {"k": 2, "l": 2}},
    "close": {"privacy": {"k": 2, "t": 0.5}},
    "large": {"privacy": {"k": 500}},
    "worker": {
        "privacy": {"k": 2},
        "stream": {"delta": 4},
        "kafka": {"bootstrap_servers": "127.0.0.1:1", "input": "a", "output": "b", "group": "g"},
    },
}
UNWRITABLE = "absent/x: cannot be written: No such file or directory"
REFUSALS = [
    *(
        (f"{command} -i in.csv {words}", UNWRITABLE)
        for command in ("pipe stream", "pipe stream --follow", "batch table")
        for words in (
            "-o absent/x --format csv",
            *(f"-o out.csv --{name} absent/x" for name in ("summary", "evidence", "quarantine")),
        )
    ),
    ("pipe stream -i absent.csv -o out.csv", "absent.csv: cannot be read: No such file or directory"),
    ("pipe stream -i in.csv -o out.parquet", "use shoal batch"),
    ("pipe stream -i in.csv -o out.txt", "--format"),
    ("pipe stream -i in.csv", "standard output (no -o FILE): has no suffix; add --format csv or --format jsonl"),
    ("pipe stream -i in.csv -o folder --format csv", "folder: is a folder; give a file"),
    ("pipe stream -i in.csv -o ./folder/../in.csv", "in.csv: named twice"),
    ("pipe stream -i in.csv -o out.csv --quarantine ./out.csv", "out.csv: named twice"),
    ("pipe stream --format jsonl --summary -", "standard output: named twice"),
    ("pipe stream -i in.csv -o in.csv", "in.csv: named twice"),
    ("pipe stream -i in.csv -o stream", "stream: named twice"),
    ("pipe stream -i no_ill.csv -o out.csv", "no_ill.csv, line 1: "),
    ("pipe stream -i no_ill.csv -o out.csv --follow", "ill"),
    ("pipe stream -i in.csv.zip", ".zip files are not read; use a pipe: unzip -p in.csv.zip"),
    ("pipe stream -i in.parquet -o out.csv", "Parquet is for finished tables"),
    *(
        (f"{command} -i in.csv {words}", message)
        for command in ("pipe stream", "batch table")
        for words, message in (
            ("-o out.csv --format jsonl", "in.csv: its suffix contradicts --format jsonl; leave out"),
            ("-o out.csv --output-format jsonl", "out.csv: its suffix contradicts --output-format jsonl; leave"),
            ("-o - --format jsonl --output-format csv", "contradicts --format jsonl; leave out the option"),
        )
    ),
    ("pipe stream", "standard input: has no suffix; add --format csv or --format jsonl"),
    ("pipe stream --format xml", "invalid choice"),
    ("pipe table -i in.csv -o out.csv", "stream.delta"),
    ("pipe ordered -i in.csv -o out.csv --follow", "--follow: cannot keep stream.release: ordered"),
    ("pipe absent -i in.csv -o out.csv", "absent: cannot be read"),
    ("batch table -i absent.csv -o out.csv", "absent.csv: cannot be read"),
    ("batch table -i no_ill.csv -o out.csv", "ill"),
    ("batch table -i in.csv -o out.csv --keep-order", "--keep-order: the policy does not allow it"),
    ("batch table -i in.csv -o out.csv --algorithm none", "algorithm: unknown, use one of auto, md, mdav"),
    ("batch table -i in.csv -o out.csv --algorithm optimal", "'optimal' takes one attribute"),
    ("batch table -i in.csv -o out.csv --algorithm strict", "algorithm 'strict': needs privacy.t"),
    ("batch table -i in.csv -o out.csv --algorithm steered", "or --param target_t=T, which is not guaranteed"),
    ("batch close -i in.csv -o out.csv --algorithm steered --param target_t=0.1", "for tables without privacy.t"),
    ("batch table -i in.csv -o out.csv --algorithm steered --param target_t=2", "target_t: must be from 1e-06 to 1"),
    ("batch table -i in.csv -o out.csv --algorithm steered --param target_t=0.1 --param blocks=1", "or steered"),
    ("batch table -i in.csv -o out.csv --algorithm approximate --refine descent", "--refine: cannot follow"),
    ("batch large -i in.csv -o out.csv --refine exact", "refine 'exact' needs k of at most"),
    ("batch diverse -i in.csv -o out.csv --refine exact", "no constraint on clusters besides k"),
    ("batch close -i in.csv -o out.csv --param blocks=1", "blocks: cannot be combined with privacy.l, t"),
    ("batch table -i in.csv -o out.csv --param blocks=1 --evidence e", "--evidence: blocks have no clusters"),
    ("batch table -i in.csv -o out.csv --seed -1", "--seed: must be 0 or more"),
    *(
        (f"batch table -i in.csv -o out.csv {words}", message)
        for words, message in (
            ("--param x=1", "--param: unknown name; auto has no parameter; remove it, or correct the name"),
            ("--param blocks=a", "--param blocks: needs a whole number"),
            ("--param blocks=0", "blocks must be 1 or more"),
            ("--algorithm vmdav --param gamma", "--param: needs NAME=VALUE; vmdav has gamma"),
            ("--algorithm vmdav --param gama=1", "--param: unknown name; vmdav has gamma;"),
            ("--algorithm genetic --param macro=1.5", "--param macro: needs a whole number"),
            ("--algorithm vmdav --param gamma=x", "--param gamma: needs a number"),
            ("--algorithm vmdav --param gamma=nan", "gamma: must be from 0 to 1000000000; the default is 0.2"),
            ("--algorithm genetic --param macro=99999999999999999999", "macro: must be from 2 to 1000000;"),
            ("--algorithm steered --param weight=1e308", "weight: must be from 0 to 1000000000; the default is as"),
            ("--algorithm vmdav --param gamma=1 --param gamma=2", "given twice"),
            ("--refine anneal --param time_s=nan", "time_s above 0"),
            ("--refine exact --param time_s=0", "time_s above 0"),
        )
    ),
    ("verify table --original in.csv --released no_ill.csv --json absent/x", UNWRITABLE),
    ("verify table --original in.csv --released no_ill.csv --json in.csv", "in.csv: named twice"),
    ("verify table --original absent.csv --released in.csv --json v", "absent.csv: cannot be read"),
    ("reference close -i in.csv -o absent/x", UNWRITABLE),
    ("reference close -i in.csv --attribute age", "--attribute age: no confidential attribute"),
    ("check stream -i absent.csv", "absent.csv: cannot be read"),
    ("check stream -i in.csv.zip", ".zip files are not read; use a pipe: unzip -p in.csv.zip"),
    ("progress worker --export absent/x", UNWRITABLE),
    ("progress worker --export worker", "worker: named twice"),
    ("progress worker --import absent", "absent: cannot be read as text"),
    ("run stream", "kafka.bootstrap_servers: missing"),
    ("run stream --from earliest", "kafka.group: missing"),
    ("run worker --from there", "invalid choice"),
    ("run worker --skip", "unrecognized arguments: --skip"),
    ("run worker --http x", "--http (SHOAL_HTTP): give HOST:PORT"),
    ("run worker --http-token-file absent", "--http-token-file (SHOAL_HTTP_TOKEN_FILE): the file cannot be read"),
    ("tune stream -i in.csv -o page.txt", "page.txt: a report is a page; give a name that ends in .html"),
    ("tune stream -i - -o page.html", "give a file"),
    ("tune stream -i in.csv -o page.html --rows 9", "--rows must be 100 or more"),
    ("tune stream -i in.csv -o page.html --target speed<=8", "give targets such as"),
    ("tune stream -i in.csv -o page.html --target delay<=30s", "give it in records"),
    (
        "tune stream -i in.csv -o page.html --grid size=5",
        "a name of: k, l, t, delta, rule, position, target_span, weight",
    ),
    ("tune stream -i absent -o page.html", "absent"),
    ("fly stream", "unknown command"),
    ("chek stream", "shoal: error: unknown command; did you mean check?"),
    ("tun stream", "unknown command; did you mean tune?"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("refusals")
    for name, sections in POLICIES.items():
        (path / name).write_text(json.dumps({"attributes": ATTRIBUTES} | sections))
    (path / "in.csv").write_text("who,age,shop,ill\n" + "".join(f"p{n},{n},s,i{n}\n" for n in range(9)))
    (path / "no_ill.csv").write_text("who,age,shop\np,1,s\n")
    (path / "folder").mkdir()
    return path


@pytest.mark.parametrize(("words", "message"), REFUSALS, ids=[words for words, _ in REFUSALS])
def test_a_refusal_comes_first_and_leaves_nothing_behind(folder: Path, words: str, message: str) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    began_s = time.process_time()
    with (
        patch.object(subprocess, "Popen", side_effect=AssertionError("a child process")),
        patch("shoal.kernels.jit.use_compiled", side_effect=AssertionError("compiled")),
    ):
        done = run_command(*shlex.split(words), folder=folder)
    assert message in " ".join(done.stderr.decode().split())
    assert "Traceback" not in done.stderr.decode()
    assert done.returncode == 2
    assert done.stdout == b"" or words.startswith("check ")
    assert time.process_time() - began_s < 3
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


@pytest.mark.parametrize("words", ["pipe stream -o absent/x --format csv", "batch table --seed -1 --format csv"])
def test_a_refusal_consumes_nothing_of_standard_input(folder: Path, words: str) -> None:
    with (folder / "in.csv").open("rb") as file:
        command = [*SHOAL, *shlex.split(words)]
        assert subprocess.run(command, stdin=file, cwd=folder, capture_output=True, check=False).returncode == 2
        assert file.tell() == 0
