"""Finding, downloading, verifying and caching data files; nothing here uses the network."""

import hashlib
import itertools

import pooch
import pytest
import requests
from requests import Timeout

from pyro_hoim.datasets import FileInfo, data_file, dataset_files
from pyro_hoim.datasets.files import cache_folder, canonical_form
from pyro_hoim.errors import InputError, UnknownNameError
from pyro_hoim.testing import raises

INFO = {info.name: info for info in dataset_files()}
NAMES = list(INFO)
REAL_DOWNLOAD = pooch.HTTPDownloader.__call__


def published_form(clean, name):
    """The published bytes made from a clean copy, by undoing what cleaning did."""
    rows = clean.decode().splitlines()[1:]
    if name in ("mushroom", "breast_cancer"):
        return "".join(f"{row}\n" for row in rows).encode()
    full_stop = "." if name == "adult_test" else ""
    body = "".join(row.replace(",", ", ") + full_stop + "\n" for row in rows) + "\n"
    return (("|1x3 Cross validator\n" if name == "adult_test" else "") + body).encode()


@pytest.mark.parametrize("name", NAMES)
def test_pinned_checksums_of_both_forms(name, shared_data):
    info = INFO[name]
    assert info.url.startswith("https://archive.ics.uci.edu/") and "CC BY" in info.licence
    clean = (shared_data / f"{name}.csv").read_bytes()
    raw = published_form(clean, name)
    assert (hashlib.sha256(clean).hexdigest(), hashlib.sha256(raw).hexdigest()) == (info.sha256, info.original_sha256)
    assert (canonical_form(clean, info), canonical_form(raw, info)) == (clean, clean)
    assert canonical_form(raw.replace(b"\n", b"\r\n"), info) == clean
    assert clean.count(b"\n") == info.num_rows + 1
    # Control: one changed cell is another file.
    assert canonical_form(raw.replace(b"e", b"f", 1), info) != clean


def test_local_clean_copy(isolated, shared_data, monkeypatch):
    monkeypatch.setenv("PYRO_HOIM_DATA", str(shared_data))
    assert data_file("breast_cancer") == shared_data / "breast_cancer.csv"
    assert not cache_folder().exists()


@pytest.mark.parametrize("name", ["breast_cancer", "mushroom"])
def test_local_published_copy(name, isolated, shared_data, monkeypatch):
    clean = (shared_data / f"{name}.csv").read_bytes()
    local = isolated / "local"
    local.mkdir()
    (local / INFO[name].original_name).write_bytes(published_form(clean, name))
    monkeypatch.setenv("PYRO_HOIM_DATA", str(local))
    path = data_file(name)
    assert (path, path.read_bytes()) == (isolated / "cache" / "pyro_hoim" / f"{name}.csv", clean)


def test_local_folder_without_the_file(isolated, monkeypatch):
    monkeypatch.setenv("PYRO_HOIM_DATA", str(isolated))
    with pytest.raises(InputError, match=r"PYRO_HOIM_DATA: expected adult\.csv or adult\.data in the folder"):
        data_file("adult")


@pytest.mark.parametrize("content", [b"class,age\n1,2\n", b"\xff\xfe", b"", None])
def test_local_copy_that_differs(content, isolated, shared_data, monkeypatch):
    if content is None:  # one cell changed
        content = (shared_data / "breast_cancer.csv").read_bytes().replace(b"premeno", b"ge40", 1)
    (isolated / "breast_cancer.csv").write_bytes(content)
    monkeypatch.setenv("PYRO_HOIM_DATA", str(isolated))
    with pytest.raises(InputError, match=r"breast_cancer\.csv: (expected data set .* sha256|.*not the published file)"):
        data_file("breast_cancer")


def test_download_once(isolated, serve, shared_data):
    clean = (shared_data / "breast_cancer.csv").read_bytes()
    requests = serve(published_form(clean, "breast_cancer"))
    path = data_file("breast_cancer", timeout=3.0)
    assert path.read_bytes() == clean
    assert requests == [(INFO["breast_cancer"].url, 3.0)]
    assert data_file("breast_cancer") == path
    assert len(requests) == 1
    for damaged in (path, path.with_name(INFO["breast_cancer"].original_name)):
        damaged.write_bytes(damaged.read_bytes()[:-5])
        assert data_file("breast_cancer").read_bytes() == clean
    assert len(requests) == 2
    assert sorted(p.name for p in path.parent.iterdir()) == ["breast-cancer.data", "breast_cancer.csv"]


def test_download_of_another_file_leaves_nothing(isolated, serve):
    serve(b"<html>moved</html>")
    with pytest.raises(InputError, match=r"https://archive.*received another; the file differs from the published one"):
        data_file("mushroom")
    assert not list(cache_folder().iterdir())


class Answer:
    """What a server sends, in pieces."""

    def __init__(self, pieces, size=0):
        self.pieces, self.headers = pieces, {"content-length": str(size)}

    def raise_for_status(self):
        pass

    def iter_content(self, chunk_size):
        yield from self.pieces


def test_a_download_that_does_not_end_is_ended(isolated, shared_data, monkeypatch):
    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", REAL_DOWNLOAD)
    monkeypatch.setattr("pyro_hoim.datasets.files._MOST_BYTES", 2**15)
    monkeypatch.setattr(requests, "get", lambda *_, **__: Answer(itertools.repeat(b"x" * 1024)))
    with raises("damaged-file", INFO["breast_cancer"].url):
        data_file("breast_cancer")
    assert not list(cache_folder().iterdir())
    clean = (shared_data / "breast_cancer.csv").read_bytes()
    whole = published_form(clean, "breast_cancer")
    pieces = [whole[start : start + 1024] for start in range(0, len(whole), 1024)]
    monkeypatch.setattr(requests, "get", lambda *_, **__: Answer(pieces, len(whole)))
    assert data_file("breast_cancer").read_bytes() == clean


def test_offline_and_timeout(isolated, serve):
    words = r"^data set 'adult_test': https://arch.*\(no route to host\); .* that holds adult\.test or adult_test\.csv$"
    with pytest.raises(InputError, match=words):
        data_file("adult_test")
    assert cache_folder() == isolated / "cache" / "pyro_hoim" and not list(cache_folder().iterdir())
    serve(Timeout("timed out"))
    with pytest.raises(InputError, match=r"could not be downloaded \(timed out\)"):
        data_file("adult")


def test_cache_that_cannot_be_written(isolated, serve):
    serve(b"")
    (isolated / "cache").write_text("a file where the folder should be")
    with pytest.raises(InputError, match=r"the cache folder cannot be written .* set XDG_CACHE_HOME"):
        data_file("breast_cancer")


def test_unknown_data_set():
    with pytest.raises(UnknownNameError, match="unknown data set 'mushrooms'; did you mean 'mushroom'"):
        data_file("mushrooms")


def test_canonical_form_counts_cells():
    info = FileInfo("t", "https://example.org/t.data", "", "", 1, "", header=("a", "b"))
    with pytest.raises(InputError, match="data set 't': expected 2 cells in line 3, received 1"):
        canonical_form(b"a,b\n1,2\n3\n", info)
