"""What every test of the commands shares."""

import pytest
from command_line import CommandLine

from support.figures import no_figures


@pytest.fixture(autouse=True)
def inside_empty_folder(tmp_path, monkeypatch):
    """Run every command in a fresh folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True, scope="module")
def words_alone():
    """Draw no figures; tests of reports and plots do.

    Draw no more tables where few are as extreme, which takes a second a fit, and those by fewer moves; tests of
    goodness of fit draw them as users do.
    """
    with no_figures(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("pyro_hoim.log_linear.goodness.p_values._FINER", 1)
        patch.setattr("pyro_hoim.log_linear.goodness.fibre._STEPS_PER_CELL", 1)
        yield


@pytest.fixture(autouse=True)
def commands_may_be_slow(monkeypatch):
    """Say nothing of long stages, so that no test depends on the speed of the machine."""
    monkeypatch.setattr("pyro_hoim.cli.output.PERIOD", 3600.0)


@pytest.fixture
def shell(capsys):
    """Runs commands and reads what they print."""
    return CommandLine(capsys)
