"""What every test of the commands shares."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from command_line import CommandLine

from support.figures import figures_of_one_pixel


@pytest.fixture(autouse=True)
def inside_empty_folder(tmp_path, monkeypatch):
    """Run every command in a fresh folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True, scope="module")
def words_alone():
    """Draw no figures; tests of reports and plots do."""
    with figures_of_one_pixel():
        yield


@pytest.fixture(autouse=True)
def commands_may_be_slow(monkeypatch):
    """Say nothing of long stages, so that no test depends on the speed of the machine."""
    monkeypatch.setattr("pyro_hoim.cli.output.PERIOD", 3600.0)


@pytest.fixture(autouse=True)
def p_values_are_of_few_moves(monkeypatch):
    """Draw no more tables where few are as extreme, and by fewer moves; tests of goodness of fit do as users do."""
    monkeypatch.setattr("pyro_hoim.log_linear.goodness.p_values._FINER", 1)
    monkeypatch.setattr("pyro_hoim.log_linear.goodness.fibre._STEPS_PER_CELL", 1)


@pytest.fixture
def shell(capsys):
    """Runs commands and reads what they print."""
    return CommandLine(capsys)
