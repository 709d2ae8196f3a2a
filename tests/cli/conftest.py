"""What every test of the commands shares."""

import sys
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.legend import Legend
from matplotlib.transforms import Bbox

sys.path.append(str(Path(__file__).parent))

from command_line import CommandLine

PIXEL = b'<svg width="1pt" height="1pt" />'


@pytest.fixture(autouse=True)
def inside_empty_folder(tmp_path, monkeypatch):
    """Run every command in a fresh folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True, scope="module")
def figures_are_one_pixel():
    """Make figures without drawing or laying them out, half of the time of a command; tests of reports and plots do."""

    def save(self, file, **options):
        file.write(PIXEL)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", save)
        patch.setattr(Figure, "findobj", lambda *_: [])  # which makes every tick of every axis
        patch.setattr(Axes, "get_tightbbox", lambda self, *_, **__: self.bbox)
        patch.setattr(Legend, "get_window_extent", lambda self, *_, **__: Bbox.unit())
        patch.setattr(ConstrainedLayoutEngine, "execute", lambda *_: None)
        yield


@pytest.fixture(autouse=True)
def commands_may_be_slow(monkeypatch):
    """Say nothing of long stages, so that no test depends on the speed of the machine."""
    monkeypatch.setattr("pyro_hoim.cli.output.PERIOD", 3600.0)


@pytest.fixture(autouse=True)
def p_values_are_of_one_round(monkeypatch):
    """Draw no more tables where few are as extreme, which takes a second a fit; tests of goodness of fit draw them."""
    monkeypatch.setattr("pyro_hoim.log_linear.goodness.p_values._FINER", 1)


@pytest.fixture
def shell(capsys):
    """Runs commands and reads what they print."""
    return CommandLine(capsys)
