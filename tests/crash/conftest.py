"""What the tests of interrupted runs share with those of the commands."""

import pytest
from command_line import CommandLine

from support.figures import no_figures


@pytest.fixture
def shell(tmp_path, monkeypatch, capsys):
    """Runs commands in a fresh folder and reads what they print; figures are one pixel, long stages are not told of."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pyro_hoim.cli.output.PERIOD", 3600.0)
    with no_figures():
        yield CommandLine(capsys)
