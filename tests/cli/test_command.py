"""The command line: what it loads, what it says, and how it ends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from tailrace.cli.command import load, main, started
from tailrace.planner.calibrate import cache_path
from tailrace.planner.detect import detect
from tailrace.topology import Topology


def test_a_topology_is_loaded_by_module_and_name() -> None:
    assert load("tailrace.apps.word_count:topology").name == "word count"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nonsense", "'nonsense' does not name a topology; write it as module:name"),
        ("tailrace.apps.word_count:nothing", "module 'tailrace.apps.word_count' has no 'nothing'"),
        ("tailrace.apps.word_count:VOCABULARY", "is a tuple; expected a Topology"),
        ("no_such_module:topology", "No module named 'no_such_module'"),
    ],
)
def test_what_cannot_be_loaded_is_said_in_one_line(
    name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", name]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Writes a module of the user's, which commands find; gives its file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(text: str) -> str:
        file = tmp_path / "users_own.py"
        file.write_text(text)
        return str(file)

    yield write
    sys.modules.pop("users_own", None)


@pytest.mark.parametrize("kind", ["RuntimeError", "TypeError", "ValueError", "ModuleNotFoundError"])
@pytest.mark.parametrize("command", ["run", "explain"])
def test_what_the_users_function_raises_is_told_with_its_own_traceback(
    command: str,
    kind: str,
    user_module: Callable[[str], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = user_module(f"def build():\n    inner()\n\ndef inner():\n    raise {kind}('a bug')\n")
    assert main([command, "users_own:build"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"tailrace: users_own:build() raised {kind}"
    assert [line for line in lines if line.startswith("  File")] == [
        f'  File "{file}", line 2, in build',
        f'  File "{file}", line 5, in inner',
    ]
    assert lines[-1] == f"{kind}: a bug"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("1 / 0\n", "ZeroDivisionError"),
        ("import not_there\n", "ModuleNotFoundError"),
        ("def build(:\n", "SyntaxError"),
    ],
)
def test_a_module_that_raises_is_told_with_its_own_traceback(
    text: str,
    kind: str,
    user_module: Callable[[str], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = user_module(text)
    assert main(["explain", "users_own:build"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"tailrace: importing users_own raised {kind}"
    (place,) = [line for line in lines if line.startswith("  File")]
    assert place.startswith(f'  File "{file}", line 1')
    assert lines[-1].startswith(f"{kind}: ")


def test_a_function_that_needs_arguments_is_refused(
    user_module: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    user_module("def build(x, y=1, *rest, z, **more):\n    pass\n")
    assert main(["run", "users_own:build"]) == 1
    error = capsys.readouterr().err
    assert error == ("tailrace: users_own:build must take no required arguments; it has 'x', 'z'\n")


@pytest.mark.parametrize("command", [["run", "no:matter"], ["explain", "no:matter"], ["bench"]])
@pytest.mark.parametrize("workers", [0, -1])
def test_fewer_workers_than_one_are_refused_before_anything_starts(
    command: list[str], workers: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, f"--workers={workers}"]) == 1
    said = capsys.readouterr().err
    assert said == f"tailrace: --workers is {workers}; it must be at least 1\n"


def test_one_worker_is_not_many() -> None:
    assert started(1, 1.53) == "1 worker runs after 1.5 s"
    assert started(2, 1.53) == "2 workers run after 1.5 s"


@pytest.mark.parametrize(("sink", "in_place"), [("tr.sinks.console()", False), ("str", True)])
def test_run_shows_its_view_in_place_only_if_no_sink_prints(
    sink: str,
    in_place: bool,
    user_module: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    user_module(
        f"import tailrace as tr\n\nbuild = tr.Topology('t')\nbuild.source([1]).sink({sink})\n"
    )
    job = MagicMock(is_active=False, resumed_epoch=0)
    job.exception.return_value = None
    watch = MagicMock()
    monkeypatch.setattr("tailrace.cli.command._spark", lambda options: None)
    monkeypatch.setattr("tailrace.cli.command.summary", lambda job: "")
    monkeypatch.setattr("tailrace.cli.view.watch", watch)
    monkeypatch.setattr(Topology, "start", lambda *_, **options: job)
    assert main(["run", "users_own:build"]) == 0
    watch.assert_called_once_with(job, None, in_place=in_place)


def test_run_plans_for_a_rate(
    user_module: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    user_module("import tailrace as tr\n\nbuild = tr.Topology('t')\nbuild.source([1]).sink(str)\n")
    job = MagicMock(is_active=False, resumed_epoch=0)
    job.exception.return_value = None
    start = MagicMock(return_value=job)
    monkeypatch.setattr("tailrace.cli.command._spark", lambda options: None)
    monkeypatch.setattr("tailrace.cli.command.summary", lambda job: "")
    monkeypatch.setattr("tailrace.cli.view.watch", MagicMock())
    monkeypatch.setattr(Topology, "start", start)
    assert main(["run", "users_own:build", "--rate", "5e3"]) == 0
    assert start.call_args.kwargs["rate"] == 5000.0


@pytest.mark.parametrize(
    ("given", "started_with", "said"),
    [
        ([], (None, 1.0, None), ""),
        (["--checkpoint", "kept"], ("kept", 1.0, None), "going on from epoch 12 in kept\n"),
        (
            ["--checkpoint", "kept", "--checkpoint-every", "0.25", "--restore", "saved"],
            ("kept", 0.25, "saved"),
            "going on from epoch 12 in saved\n",
        ),
        (["--restore", "saved"], (None, 1.0, "saved"), "going on from epoch 12 in saved\n"),
    ],
)
def test_run_keeps_state_where_it_is_told_to_and_says_what_it_goes_on_from(
    given: list[str],
    started_with: tuple[str | None, float, str | None],
    said: str,
    user_module: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    user_module("import tailrace as tr\n\nbuild = tr.Topology('t')\nbuild.source([1]).sink(str)\n")
    job = MagicMock(is_active=False, resumed_epoch=12 if given else 0)
    job.exception.return_value = None
    start = MagicMock(return_value=job)
    monkeypatch.setattr("tailrace.cli.command._spark", lambda options: None)
    monkeypatch.setattr("tailrace.cli.command.summary", lambda job: "")
    monkeypatch.setattr("tailrace.cli.view.watch", MagicMock())
    monkeypatch.setattr(Topology, "start", start)
    assert main(["run", "users_own:build", *given]) == 0
    options = start.call_args.kwargs
    assert (options["checkpoint"], options["checkpoint_s"], options["restore"]) == started_with
    assert capsys.readouterr().err == said


def test_an_interval_without_a_folder_is_refused_before_anything_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", "users_own:build", "--checkpoint-every", "2"]) == 1
    assert capsys.readouterr().err == (
        "tailrace: --checkpoint-every needs --checkpoint FOLDER, where state is kept\n"
    )


@pytest.fixture
def known_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that nothing is measured but operators: this machine, whose transport costs nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache_path().parent.mkdir(parents=True)
    replace(detect(), yardstick_ns=300.0).save(cache_path())


@pytest.mark.usefixtures("known_machine")
def test_explain_says_what_runs_where_and_what_to_expect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    html = tmp_path / "plan.html"
    command = ["explain", "tailrace.apps.word_count:topology", "--workers", "2"]
    assert main([*command, "--html", str(html)]) == 0
    said = capsys.readouterr()
    assert said.err == "tailrace: measuring the operators of 'word count', up to 5 s ...\n"
    lines = said.out.splitlines()
    assert lines[0] == "word count: plan of 'spread', 5 instances on 2 workers of 1 node"
    assert lines[1] == "  why         copies over the workers in turn"
    assert lines[2].startswith("  expected    ")
    assert lines[3].startswith("  limited by  ")
    first, second = (lines.index(line) for line in lines if line.startswith("  worker "))
    assert any("sentences  " in line for line in lines[first:second])
    assert any("count + sink (1 of 2)" in line for line in lines[second:])
    assert "<svg" in html.read_text()


@pytest.mark.usefixtures("known_machine")
def test_explain_asks_the_scheduler_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["explain", "tailrace.apps.word_count:topology", "--scheduler"]
    assert main([*command, "consolidate"]) == 0
    assert "word count: plan of 'consolidate', 5 instances" in capsys.readouterr().out
    assert main([*command, "the best"]) == 1
    assert "no scheduler 'the best'; there are ['auto', 'consolidate'," in capsys.readouterr().err


@pytest.mark.usefixtures("known_machine")
def test_an_operator_that_fails_while_it_is_measured_is_told_as_run_does_it(
    user_module: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = user_module(
        "import tailrace as tr\n\n"
        "def half(x):\n    return 6 / x\n\n"
        "build = tr.Topology('halves')\n"
        "build.source([3, 2, 0]).map(half, name='half').sink(print)\n"
    )
    assert main(["explain", "users_own:build"]) == 1
    measuring, *lines = capsys.readouterr().err.splitlines()
    assert measuring.startswith("tailrace: measuring the operators")
    assert lines[:2] == [
        "tailrace: operator 'half' failed on 0: ZeroDivisionError('division by zero')",
        "This was while the operators were measured on a sample.",
    ]
    assert f'  File "{file}", line 4, in half' in lines
    assert lines[-1] == "ZeroDivisionError: division by zero"


@pytest.mark.usefixtures("known_machine")
def test_explain_for_a_rate_says_how_little_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["explain", "tailrace.apps.word_count:topology", "--workers", "2"]
    assert main([*command, "--rate", "1000"]) == 0
    out = capsys.readouterr().out
    assert "plan of 'auto'" in out
    assert "1,000 records/s need 1 worker on 1 node" in " ".join(out.split())
    assert main([*command, "--rate", "0"]) == 1
    assert "rate is 0.0; it must be above 0, in records per second" in capsys.readouterr().err
