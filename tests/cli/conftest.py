"""What every test of the commands shares."""

import pytest
from command_line import CommandLine

from support.few_tables import few_tables
from support.figures import no_figures


@pytest.fixture(autouse=True)
def inside_empty_folder(tmp_path, monkeypatch):
    """Run every command in a fresh folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True, scope="module")
def words_alone():
    """Draw no figures, and few tables; tests of reports, plots and goodness of fit do."""
    with no_figures(), few_tables():
        yield


@pytest.fixture(autouse=True)
def commands_may_be_slow(monkeypatch):
    """Say nothing of long stages, so that no test depends on the speed of the machine."""
    monkeypatch.setattr("pyro_hoim.cli.output.PERIOD", 3600.0)


@pytest.fixture
def shell(capsys):
    """Runs commands and reads what they print."""
    return CommandLine(capsys)
