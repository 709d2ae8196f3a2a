"""What the tests of interrupted runs share with those of the commands."""

import pytest
from command_line import CommandLine


@pytest.fixture
def shell(tmp_path, monkeypatch, capsys, words_alone):
    """Runs commands in a fresh folder and reads what they print; figures are left out, long stages are not told of."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pyro_hoim.cli.output.PERIOD", 3600.0)
    return CommandLine(capsys)
