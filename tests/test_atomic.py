"""Files are written whole or not at all, and what the system refuses is one error of the library."""

import errno
import os
import resource
import stat
import threading
from pathlib import Path
from unittest.mock import Mock

import pytest

from pyro_hoim import atomic
from pyro_hoim.atomic import draft_of, new_file, write_file
from pyro_hoim.errors import InputError, ModelFileError


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def files():
    """Names of everything in the folder, hidden ones too."""
    return sorted(os.listdir())


def test_a_file_is_written_with_exactly_its_text():
    write_file("a.csv", "ä,b\n1,2\n")
    write_file("b.bin", b"\r\n\0")
    assert (Path("a.csv").read_bytes(), Path("b.bin").read_bytes()) == ("ä,b\n1,2\n".encode(), b"\r\n\0")
    assert files() == ["a.csv", "b.bin"]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, ZeroDivisionError, MemoryError])
@pytest.mark.parametrize("before", [None, "old"])
def test_what_was_there_stays_after_any_exception(kind, before):
    if before is not None:
        Path("a").write_text(before)

    def write():
        with new_file("a") as file:
            file.write(b"half")
            raise kind

    with pytest.raises(kind):
        write()
    assert files() == ([] if before is None else ["a"])
    assert before is None or Path("a").read_text() == before


@pytest.mark.parametrize("call", ["open", "fsync", "close"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO])
def test_a_refusal_of_the_system_is_one_error_and_leaves_nothing(monkeypatch, call, code):
    Path("a").write_text("old")

    with monkeypatch.context() as patch:
        patch.setattr(atomic.os, call, Mock(side_effect=OSError(code, os.strerror(code))))
        with pytest.raises(InputError) as caught:
            write_file("a", "new")
    assert os.strerror(code) in str(caught.value) and caught.value.argument == "a" and caught.value.code == "no-file"
    assert ("free space" in str(caught.value)) == (code in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
    assert Path("a").read_text() == "old"


def test_what_a_library_adds_to_the_reason_is_left_out():
    error = atomic.unwritable("a.nc", OSError(errno.EFBIG, "Write failed\n(time = Tue Nov 24, buf = 0x55)"))
    assert str(error) == "a.nc: cannot be written (File too large); free space there, or choose another folder"


def test_a_limit_on_the_size_of_files_is_refused():
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(InputError, match="File too large"):
            write_file("a", b"x" * 5000)
        write_file("b", b"x" * 500)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert files() == ["b"]


@pytest.mark.parametrize(
    ("path", "says"),
    [("missing/a", "the folder missing does not exist"), (".", "is a folder"), ("file/a", "Not a directory")],
)
def test_a_place_that_cannot_hold_a_file_is_named(path, says):
    Path("file").touch()
    with pytest.raises(ModelFileError, match=says):
        write_file(path, "text", ModelFileError)
    assert files() == ["file"]


def test_permissions_are_those_of_the_file_before_or_of_the_umask():
    former = os.umask(0o027)
    try:
        write_file("new", "")
        Path("old").touch()
        Path("old").chmod(0o604)
        write_file("old", "text")
    finally:
        os.umask(former)
    assert (stat.S_IMODE(Path("new").stat().st_mode), stat.S_IMODE(Path("old").stat().st_mode)) == (0o640, 0o604)


def test_a_file_that_may_not_be_written_is_refused_for_every_user(monkeypatch):
    Path("a").write_text("old")
    monkeypatch.setattr(atomic.os, "access", lambda *_: False)
    with pytest.raises(InputError, match="Permission denied"):
        write_file("a", "new")
    assert files() == ["a"] and Path("a").read_text() == "old"


def test_a_symbolic_link_stays_one():
    Path("folder").mkdir()
    Path("folder/real").write_text("old")
    Path("link").symlink_to("folder/real")
    Path("ahead").symlink_to("folder/later")
    write_file("link", "new")
    write_file("ahead", "first")
    assert Path("link").is_symlink() and Path("folder/real").read_text() == "new"
    assert Path("ahead").is_symlink() and Path("folder/later").read_text() == "first"
    assert sorted(os.listdir("folder")) == ["later", "real"]


def test_devices_and_pipes_are_written_and_stay():
    write_file("/dev/null", "text")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    with pytest.raises(InputError, match=r"/dev/full: cannot be written \(No space left on device\)"):
        write_file("/dev/full", "text")
    os.mkfifo("pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(Path("pipe").read_bytes()))
    reader.start()
    write_file("pipe", "through")
    reader.join(10)
    assert read == [b"through"] and stat.S_ISFIFO(Path("pipe").stat().st_mode)


def test_a_name_as_long_as_the_system_allows_can_be_written():
    name = "a" * 255
    write_file(name, "text")
    assert files() == [name]


def test_only_the_finished_draft_is_seen():
    with draft_of("a") as place:
        place.write_text("text")
        assert not Path("a").exists() and place.parent == Path.cwd()
    assert files() == ["a"]


def test_links_to_nowhere_and_zero_characters_are_named():
    Path("link").symlink_to("missing/a")
    with pytest.raises(InputError, match=r"link: the folder .*missing does not exist; create it first"):
        write_file("link", "x")
    with pytest.raises(InputError, match=r"cannot be written .*choose another folder"):
        write_file("a\0b", "x")
    assert files() == ["link"]
