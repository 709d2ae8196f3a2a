"""What every test of the commands shares."""

import struct
import sys
import zlib
from pathlib import Path

import pytest
from matplotlib.figure import Figure

sys.path.append(str(Path(__file__).parent))

from command_line import CommandLine


def _chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


PIXEL = b"\x89PNG\r\n\x1a\n" + b"".join(
    (
        _chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)),
        _chunk(b"IDAT", zlib.compress(b"\x00\x00")),
        _chunk(b"IEND", b""),
    )
)


@pytest.fixture(autouse=True)
def inside_empty_folder(tmp_path, monkeypatch):
    """Run every command in a fresh folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True, scope="module")
def figures_are_one_pixel():
    """Make figures without drawing them, two fifths of the time of a command; the tests of reports draw them."""

    def save(self, file, **options):
        file.write(PIXEL)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", save)
        yield


@pytest.fixture
def shell(capsys):
    """Runs commands and reads what they print."""
    return CommandLine(capsys)
