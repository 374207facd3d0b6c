"""`tailrace state`: epochs, keys and values, and what is damaged."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import pytest
from pyarrow import parquet

from tailrace.checkpoint.folder import folder_at
from tailrace.checkpoint.manifest import Manifest, OperatorNote, chained, data_name
from tailrace.checkpoint.sections import FORGOTTEN, EpochFile, encode_block, encode_shared
from tailrace.checkpoint.store import Store
from tailrace.cli.command import main

NOTES = {
    "numbers": OperatorNote("source", 1),
    "count": OperatorNote("scan", 2, state_version=3),
    "sink": OperatorNote("sink", 1),
}


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Two epochs of a count in two instances."""
    store = Store(folder_at(tmp_path / "state"))
    last: Manifest | None = None
    for epoch in (1, 2):
        file = EpochFile(data_name(epoch, 1, 0, 0))
        if epoch == 1:
            pairs = [(f"word {number}", number) for number in range(30)]
            file.add("count", 0, "full", [encode_block(pairs)], 30)
            file.add("count", 1, "full", [encode_block([(("a", 1), {"n": 1})])], 1)
            file.add_shared("count", 1, encode_shared({"watermark": 7}))
        else:
            changes = [("word 1", 100), ("word 2", FORGOTTEN), (3, {4})]
            file.add("count", 0, "delta", [encode_block(changes)], 3, keys=30)
        sections = chained(last, file.write(store.folder))
        last = Manifest(
            epoch, 1, 0, "4f2a", "words", 1_700_000_000.0, operators=NOTES, sections=sections
        )
        store.commit(last)
    return store.folder.url


def said(capsys: pytest.CaptureFixture[str], *command: str, code: int = 0) -> list[str]:
    assert main(["state", *command]) == code
    return capsys.readouterr().out.splitlines()


def test_ls_shows_epochs_with_their_sizes_and_keys(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first, head, *epochs = said(capsys, "ls", folder)
    assert first == "'words', job 4f2a, generation 1"
    assert head.split() == ["epoch", "written", "size", "added", "keys"]
    line = re.compile(r" +(\d) +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +(\d+) B +(\d+) B  count (\d+)")
    found = [match.groups() for match in map(line.fullmatch, epochs) if match is not None]
    sizes = [len(one.read_bytes()) for one in sorted(Path(folder, "data").iterdir())]
    assert [[int(part) for part in one] for one in found] == [
        [1, sizes[0], sizes[0], 31],
        [2, sum(sizes), sizes[1], 31],
    ]


def test_ls_says_what_is_damaged(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = Path(folder, data_name(2, 1, 0, 0))
    content = bytearray(data.read_bytes())
    content[20] ^= 1
    data.write_bytes(content)
    lines = said(capsys, "ls", folder)
    assert lines[2].endswith("count 31")
    assert lines[3].startswith(f"       2  passed over: '{data_name(2, 1, 0, 0)}' in ")
    for name in Path(folder, "epochs").iterdir():
        name.write_bytes(b"{")
    lines = said(capsys, "ls", folder, code=1)
    assert len([line for line in lines if "passed over" in line]) == 2


@pytest.mark.parametrize("command", [["ls"], ["show"], ["export"]])
def test_a_folder_without_a_checkpoint_is_told(
    tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = [str(tmp_path / "out.ndjson")] if command == ["export"] else []
    assert main(["state", *command, str(tmp_path / "nothing"), *file]) == 1
    error = capsys.readouterr().err
    assert re.fullmatch(r"tailrace: there is no (checkpoint|epoch to be read) in '.*'\n", error)


def test_show_shows_operators_keys_and_values(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = said(capsys, "show", folder, "--limit", "4")
    assert re.fullmatch(
        r"'words', job 4f2a: epoch 2, [\d -]{11}[\d:]{8}, generation 1, attempt 0", lines[0]
    )
    assert lines[1:] == [
        "",
        "numbers: source, parallelism 1, 0 keys",
        "",
        "count: scan, parallelism 2, 31 keys, state_version 3",
        "  word 0 = 0",
        "  word 1 = 100",
        "  word 3 = 3",
        "  word 4 = 4",
        '  shared by instance 1: {"watermark": 7}',
        "  and 27 more; --limit shows more of them, export all",
        "",
        "sink: sink, parallelism 1, 0 keys",
    ]


def test_show_one_operator_of_an_older_epoch(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["show", folder, "--operator", "count", "--epoch", "1", "--limit", "99"]
    lines = said(capsys, *command)
    assert "  word 2 = 2" in lines
    assert '  ["a", 1] = {"n": 1}' in lines
    assert len(lines) == 3 + 31 + 1


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("word 1", "count (instance 0): word 1 = 100"),
        ("3", "count (instance 0): 3 = {4}"),
        ("('a', 1)", 'count (instance 1): ["a", 1] = {"n": 1}'),
        ('["a", 1]', 'count (instance 1): ["a", 1] = {"n": 1}'),
    ],
)
def test_show_one_key(folder: str, key: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "show", folder, "--key", key) == [line]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--key", "word 2"], "epoch 2 has no key 'word 2' in numbers, count, sink"),
        (
            ["--operator", "sum"],
            "epoch 2 has no operator 'sum'; it has ['numbers', 'count', 'sink']",
        ),
        (["--epoch", "9"], "there is no epoch 9 in '"),
        (["--limit", "-1"], "--limit is -1; it must be at least 0"),
    ],
)
def test_show_says_what_is_not_there(
    folder: str, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["state", "show", folder, *options]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"tailrace: {message}")
    assert error.count("\n") == 1


def test_show_goes_back_to_the_last_good_epoch_and_says_so(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(folder, data_name(2, 1, 0, 0)).unlink()
    assert main(["state", "show", folder, "--key", "word 2"]) == 0
    out, error = capsys.readouterr()
    assert out == "count (instance 0): word 2 = 2\n"
    assert error.startswith(f"epoch 2 is passed over: '{data_name(2, 1, 0, 0)}' is missing in ")


def test_export_to_ndjson(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "state.ndjson"
    assert main(["state", "export", folder, str(out)]) == 0
    lines = out.read_text().splitlines()
    assert len(lines) == 32
    found = [json.loads(line) for line in lines]
    whose = {"operator": "count", "epoch": 2}
    assert {**whose, "index": 0, "kind": "keyed", "key": "word 1", "value": 100} in found
    assert {**whose, "index": 0, "kind": "keyed", "key": 3, "value": "{4}"} in found
    assert {**whose, "index": 1, "kind": "keyed", "key": ["a", 1], "value": {"n": 1}} in found
    assert {**whose, "index": 1, "kind": "shared", "value": {"watermark": 7}} in found
    capsys.readouterr()
    assert said(capsys, "export", folder, "-") == lines
    assert main(["state", "export", folder, str(out)]) == 1
    assert "is there already" in capsys.readouterr().err
    assert out.read_text().splitlines() == lines


def test_export_to_parquet(folder: str, tmp_path: Path) -> None:
    out = tmp_path / "state.parquet"
    assert main(["state", "export", folder, str(out), "--operator", "count"]) == 0
    found = parquet.read_table(out).to_pylist()
    assert len(found) == 32
    assert {row["epoch"] for row in found} == {2}
    (one,) = [row for row in found if row["key"] == '["a", 1]']
    assert (one["operator"], one["index"], one["kind"]) == ("count", 1, "keyed")
    assert pickle.loads(one["key_pickle"]) == ("a", 1)
    assert pickle.loads(one["value_pickle"]) == {"n": 1}
    (shared,) = [row for row in found if row["kind"] == "shared"]
    assert (shared["key"], shared["key_pickle"], shared["value"]) == (
        None,
        None,
        '{"watermark": 7}',
    )


def test_export_knows_files_by_their_ending(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["state", "export", folder, str(tmp_path / "state.csv")]) == 1
    assert "ends in '.csv'; expected .ndjson, .jsonl or .parquet" in capsys.readouterr().err


def test_an_export_that_fails_leaves_nothing(folder: str, tmp_path: Path) -> None:
    for data in Path(folder, "data").iterdir():
        data.write_bytes(bytes(len(data.read_bytes())))
    out = tmp_path / "out"
    out.mkdir()
    for ending in ("ndjson", "parquet"):
        assert main(["state", "export", folder, str(out / f"x.{ending}"), "--epoch", "2"]) == 1
    assert list(out.iterdir()) == []
