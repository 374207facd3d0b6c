"""A peer that cannot be installed is named with the reason, and the next Python is tried first."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from peer_systems import install


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[str]]:
    """Answers of the next attempts, in turn; the list that comes back notes the Pythons tried."""
    monkeypatch.setattr(install, "ENVIRONMENTS", tmp_path)
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")

    def answer(*answers: str) -> list[str]:
        tried: list[str] = []

        def attempt(name: str, python: str, requirements: Sequence[str]) -> str:
            (tmp_path / name).mkdir()
            tried.append(python)
            return answers[len(tried) - 1]

        monkeypatch.setattr(install, "_attempt", attempt)
        return tried

    return answer


def test_what_was_never_installed_says_how_to(attempts: Callable[..., list[str]]) -> None:
    assert install.why_missing("flink") == "not installed; run: make bench-peers"


def test_another_python_is_tried_when_one_cannot(attempts: Callable[..., list[str]]) -> None:
    tried = attempts("no wheel", "")
    assert install.install("flink", ["a==1"]) is None
    assert len(tried) == 2
    assert install.why_missing("flink") is None


def test_the_last_problem_is_the_reason(attempts: Callable[..., list[str]]) -> None:
    attempts("no wheel", "no python", "no luck")
    assert install.install("flink", ["a==1"]) == "no luck"
    assert install.why_missing("flink") == "could not be installed: no luck"


def test_what_is_installed_stays_until_its_requirements_change(
    attempts: Callable[..., list[str]],
) -> None:
    attempts("")
    install.install("flink", ["a==1"])
    assert attempts() == []
    assert install.install("flink", ["a==1"]) is None
    tried = attempts("")
    install.install("flink", ["a==2"])
    assert len(tried) == 1
