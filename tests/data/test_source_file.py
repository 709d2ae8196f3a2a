"""What is no ordinary file, and what is too large: refused in one line, in bounded time and memory."""

import errno
import os
import socket
import sys
import threading

import pytest

from pyro_hoim.data import Observations, read_table_file
from pyro_hoim.data.counts import read_matrix
from pyro_hoim.data.files import source_file
from pyro_hoim.data.files.source_file import read_file
from pyro_hoim.errors import IntractableError
from pyro_hoim.testing import raises

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes and devices of Unix")
READERS = [read_table_file, read_matrix, Observations.from_csv]
ROWS = b"a,b\n" + b"0,1\n1,0\n" * 40_000


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    """Pipes that say nothing are given up soon."""
    monkeypatch.setattr(source_file, "_PATIENCE", 0.2)
    monkeypatch.setattr(source_file, "_WAIT", 0.05)


@pytest.mark.parametrize("read", READERS)
def test_what_is_no_file_is_refused(read, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as held:
        held.bind("s")
        for path in ("/dev/zero", "/dev/null", "/dev/urandom", "/dev/full", "s", ".", "/proc", "-", "/dev/fd/999"):
            with raises("no-file", path):
                read(path)


@pytest.mark.parametrize("read", READERS)
def test_paths_that_lead_nowhere(read, tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "dangling").symlink_to(tmp_path / "none")
    (tmp_path / "two\nlines").write_bytes(b"")
    for name, code in {
        "loop": "damaged-file",
        "dangling": "no-file",
        "n" * 5000: "damaged-file",
        "zero\0byte": "damaged-file",
        "none\udcff": "no-file",
        "loop/below": "damaged-file",
    }.items():
        with raises(code, str(tmp_path / name)):
            read(tmp_path / name)
    with pytest.raises(ValueError, match="two"):
        read(tmp_path / "two\nlines")


def test_a_pipe_is_read_and_one_without_a_writer_is_given_up(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with raises("empty", str(pipe)):
        read_table_file(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(ROWS,))
    writer.start()
    assert len(read_table_file(pipe).lines) == 80_000
    writer.join()
    end = os.open(pipe, os.O_RDWR)  # a writer that says nothing
    try:
        with raises("no-file", str(pipe)):
            read_table_file(pipe)
    finally:
        os.close(end)


def test_sizes_are_judged_before_and_while_reading(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_bytes(b"x")
    os.truncate(path, 2**40)  # a TiB that takes no place on the disk
    with raises("over-budget", str(path)):
        read_file(path, "a table")
    path.write_bytes(ROWS)
    assert read_file(path, "a table", len(ROWS)) == ROWS
    with raises("over-budget", str(path)):
        read_file(path, "a table", len(ROWS) - 1)
    # A file that grows while it is read, and one of /proc, which says that it is empty.
    told, read = os.fstat, os.read
    monkeypatch.setattr(os, "fstat", lambda descriptor: os.stat_result([0] * 10))
    with raises("over-budget", str(path)):
        read_file(path, "a table", len(ROWS) - 1)
    monkeypatch.setattr(os, "fstat", told)
    assert read_file("/proc/self/status", "a table").startswith(b"Name:")

    def failing(descriptor, size):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "read", failing)
    with raises("damaged-file", str(path)):
        read_file(path, "a table")
    monkeypatch.setattr(os, "read", lambda descriptor, size: read(descriptor, 7))  # short pieces are joined
    assert read_file(path, "a table") == ROWS


def test_the_error_says_the_budget(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(ROWS)
    with pytest.raises(IntractableError, match=r"holds 320,004 bytes, more than the budget of 1,000; give fewer rows"):
        read_file(path, "a table", 1000)
