"""What the tests of interrupted runs share with those of the commands."""

import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure

sys.path.append(str(Path(__file__).parents[1] / "cli"))

from command_line import CommandLine


@pytest.fixture
def shell(tmp_path, monkeypatch, capsys):
    """Runs commands in a fresh folder and reads what they print; figures are one pixel, long stages are not told of."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pyro_hoim.cli.output.PERIOD", 3600.0)
    monkeypatch.setattr(Figure, "savefig", lambda self, file, **_: file.write(b'<svg width="1pt" height="1pt" />'))
    return CommandLine(capsys)
