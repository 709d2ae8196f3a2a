"""Whatever comes from outside is refused in one line or read right, within bounds of memory and time."""

from pathlib import Path

import harness
import pytest
from harness import Outcome, Reader, readers, run, table, told

FEW, MANY = 12, 100_000
SEED = 20_261_124
TABLE = Path(__file__).parents[2] / ".hypothesis" / "fuzz.md"


def test_every_reader_refuses_or_is_right():
    chosen = [(module, reader, max(2, round(FEW * reader.share))) for module, reader in readers()]
    found = run(chosen, SEED)
    failures = [line for _, reader, _ in chosen for line in told(reader, found[reader.name], SEED)]
    assert failures == [], "\n".join(failures)
    assert {name: outcome.cases for name, outcome in found.items()} == {r.name: number for _, r, number in chosen}
    assert sum(outcome.right for outcome in found.values()) > len(found)  # and not everything is refused


@pytest.mark.slow
def test_a_hundred_thousand_cases():
    lines: list[str] = []
    failures = table(MANY, SEED, tell=lines.append)
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    assert failures == [], "\n".join(failures)


def test_control_careless_readers_are_found(monkeypatch):
    """Each fails in its own way, the end of a process is survived, and the readers between them are judged as well."""
    monkeypatch.setattr(harness, "SILENCE", 2)
    monkeypatch.setattr(harness, "SECONDS", 0.5)
    problems = {
        "raises": "KeyError: 'x' [",
        "allocates": "more than 1024 MiB",
        "allocates and refuses": "after the memory was used up",
        "loops": "seconds of processor time",
        "sleeps": "the process ended",
        "ends": "the process ended",
        "is wrong": "AssertionError: 2 + 2",
        "tells much": "the error is no line",
    }
    found = run([("careless_readers", Reader(name, print, print), 2) for name in [*problems, "refuses"]], SEED)
    assert found.pop("refuses") == Outcome(refused=1, right=1)
    assert {name: (o.refused, o.right, len(o.failed)) for name, o in found.items()} == dict.fromkeys(found, (0, 1, 1))
    for name, words in problems.items():
        (failure,) = found[name].failed
        assert words in failure["problem"] and failure["number"] == 1


@pytest.mark.parametrize("name", ["CSV, strict", "--bins"])
def test_control_cases_are_the_same_from_any_number_on(name):
    ((_, reader),) = readers([name])
    every = [repr(case) for _, case in reader.cases(3, 0, 60)][55:57]
    assert every == [repr(case) for _, case in reader.cases(3, 55, 57)] and every[0] != every[1]
