"""A run is never silent for long, and says nothing more where a bar moves."""

import sys
import time

from tqdm import tqdm

from pyro_hoim.cli.output import Progress


def lines(capsys):
    return [line.split("] ")[1] for line in capsys.readouterr().err.splitlines() if "] " in line]


def test_a_long_stage_is_said_again(capsys):
    with Progress(time.perf_counter(), period=0.02) as say:
        say("fitting pairs; a run may be continued")
        time.sleep(0.3)
        found = lines(capsys)
        while found[0] == "still at work":  # of a machine too busy to begin in time
            found.pop(0)
        assert found[0] == "fitting pairs; a run may be continued" and len(found) > 2
        assert set(found[1:]) == {"still fitting pairs"}
        say("writing")
    first = lines(capsys)
    time.sleep(0.05)
    assert "writing" in first
    assert lines(capsys) == []


def test_control_nothing_is_said_of_short_stages_and_beside_bars(capsys):
    with Progress(time.perf_counter(), period=60) as say:
        say.opening = "8 rows"
        assert lines(capsys) == []
        say("one")
        say("two")
    assert lines(capsys) == ["8 rows", "one", "two"]
    with tqdm(total=1, file=sys.stdout, leave=False), Progress(time.perf_counter(), period=0.01):
        time.sleep(0.1)
    assert lines(capsys) == []


def test_every_command_says_that_it_goes_on(shell, monkeypatch):
    shell("fit", "titanic", "--order", "1", "--out", "o")
    with monkeypatch.context() as patch:
        patch.setattr("pyro_hoim.cli.output.PERIOD", 0.001)
        assert "still at work" in shell("score", "o", "titanic").err
    assert shell("score", "o", "titanic").err == ""  # control
