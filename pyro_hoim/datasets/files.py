"""Public data files: where they are, their checksums, a cache folder, and their one canonical form.

A file of the UCI archive, without header and with quirks of its own, and a clean comma-separated copy have the same
*canonical form*, whose checksum is pinned besides that of the archive's own bytes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..atomic import write_file
from ..data.files.source_file import read_file
from ..errors import HoimError, InputError, check_names, refused, unexpected

_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/"
_CC_BY = "CC BY 4.0 (UCI Machine Learning Repository)"
_LONGEST = 80  # characters of the reason of a failure that a reader is shown
_ELSEWHERE = "set XDG_CACHE_HOME to a folder that can be written"
_MOST_BYTES = 2**26  # of a published file, the largest of which has 4 MB
LOCAL_FOLDER = "PYRO_HOIM_DATA"
"""Environment variable that names a folder of data files."""


@dataclass(frozen=True)
class FileInfo:
    """A public data set.

    Attributes:
        name: key.
        url: address of the file as published; empty where only a copy in a folder is known.
        licence: its terms.
        source: citation.
        num_rows: number of observations.
        sha256: checksum of the canonical form, or of the counts and names of a matrix.
        original_sha256: checksum of the published bytes.
        header: column names of a table, whose canonical file is ``<name>.csv``; the published one has none.
        files: matrix and column names, as a folder may hold a matrix.
    """

    name: str
    url: str
    licence: str
    source: str
    num_rows: int
    sha256: str
    original_sha256: str = ""
    header: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def original_name(self) -> str:
        """File name of the published file."""
        return self.url.rsplit("/", 1)[-1]

    def check(self, origin: object, what: str, expected: str, received: str) -> None:
        """Raise :class:`InputError` unless a checksum is the pinned one."""
        if received != expected:
            wanted = f"data set {self.name!r} with sha256 {expected}{what}"
            hint = "the file differs from the published one, replace it"
            raise unexpected(origin, wanted, hint=hint, received=received, code="damaged-file")


_MUSHROOM_HEADER = (
    "class cap-shape cap-surface cap-color bruises odor gill-attachment gill-spacing gill-size gill-color stalk-shape "
    "stalk-root stalk-surface-above-ring stalk-surface-below-ring stalk-color-above-ring stalk-color-below-ring "
    "veil-type veil-color ring-number ring-type spore-print-color population habitat"
)
_ADULT_HEADER = (
    "age workclass fnlwgt education education-num marital-status occupation relationship race sex capital-gain "
    "capital-loss hours-per-week native-country income"
)
_BREAST_CANCER_HEADER = "class age menopause tumor-size inv-nodes node-caps deg-malig breast breast-quad irradiat"
_ADULT_SOURCE = "B. Becker and R. Kohavi, Adult, UCI Machine Learning Repository (1996)"

_FILES: Mapping[str, FileInfo] = {
    info.name: info
    for info in (
        FileInfo(
            "mushroom",
            _UCI + "mushroom/agaricus-lepiota.data",
            _CC_BY,
            "Mushroom, UCI Machine Learning Repository (1981)",
            8124,
            "7204d38399e2c7c84d85e7a2019081724bb943613e82be5d3523156cfbcf9f64",
            "e65d082030501a3ebcbcd7c9f7c71aa9d28fdfff463bf4cf4716a3fe13ac360e",
            tuple(_MUSHROOM_HEADER.split()),
        ),
        FileInfo(
            "adult",
            _UCI + "adult/adult.data",
            _CC_BY,
            _ADULT_SOURCE,
            32561,
            "f2c62076f19504d99a38b22badf445a7f42530ade6b827acf78dd143fbce38bb",
            "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
            tuple(_ADULT_HEADER.split()),
        ),
        FileInfo(
            "adult_test",
            _UCI + "adult/adult.test",
            _CC_BY,
            _ADULT_SOURCE,
            16281,
            "f6b1801c5d231515ea5ff04d4444997bacd57e04876e94710cb9b9bd5549c033",
            "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
            tuple(_ADULT_HEADER.split()),
        ),
        FileInfo(
            "breast_cancer",
            _UCI + "breast-cancer/breast-cancer.data",
            _CC_BY,
            "M. Zwitter and M. Soklic, Breast Cancer, UCI Machine Learning Repository (1988)",
            286,
            "adfa631c039c1cdbd8252b22a5beb4c37956352834e8bdee222ca1dee67db17b",
            "ca7d3fa97b62ff967b6894ffbb3acaaf4a51062e0149e5950b3ad6f685970b65",
            tuple(_BREAST_CANCER_HEADER.split()),
        ),
    )
}


def dataset_files() -> tuple[FileInfo, ...]:
    """The public data files that :func:`data_file` knows.

    Example:
        >>> [info.name for info in dataset_files()]
        ['mushroom', 'adult', 'adult_test', 'breast_cancer']
    """
    return tuple(_FILES.values())


def cache_folder() -> Path:
    """Folder of downloaded files: ``pyro_hoim`` in the platform's cache folder, or in ``XDG_CACHE_HOME``."""
    import pooch

    return Path(pooch.os_cache("pyro_hoim"))


def canonical_form(raw: bytes, info: FileInfo) -> bytes:
    """Canonical CSV of a published file or of a clean copy: one header, no blanks, no comments, no final full stops.

    The map is idempotent. InputError for bytes that are no text, or a line with the wrong number of cells.
    """
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        received = "bytes that are not UTF-8"
        raise unexpected(f"data set {info.name!r}", "a text file", received=received, code="damaged-file") from None
    rows = [",".join(info.header)]
    # Comments, blanks and full stops at the end of lines are the archive's own.
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("|"):
            continue
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(info.header):
            expected = f"{len(info.header)} cells in line {number}"
            raise unexpected(f"data set {info.name!r}", expected, received=len(cells), code="wrong-shape")
        cells[-1] = cells[-1].removesuffix(".")
        row = ",".join(cells)
        if len(rows) > 1 or row != rows[0]:
            rows.append(row)
    return ("\n".join(rows) + "\n").encode()


def _verified(raw: bytes, info: FileInfo, origin: str) -> bytes:
    """Canonical form of a file, whose checksum must be the pinned one."""
    if hashlib.sha256(raw).hexdigest() == info.sha256:
        return raw  # it is in that form
    try:
        canonical = canonical_form(raw, info)
    except InputError as error:
        raise refused(origin, f"{error}; this is not the published file", code="damaged-file") from None
    info.check(origin, " in canonical form", info.sha256, hashlib.sha256(canonical).hexdigest())
    return canonical


class _Meter:
    """What pooch tells of a download, as to a bar of progress; more than a data set can have ends it."""

    total = 0

    def __init__(self, info: FileInfo) -> None:
        self.info, self.held = info, 0

    def update(self, size: int) -> None:
        """Count some bytes."""
        self.held += size
        if self.held > _MOST_BYTES:
            hint = "the file differs from the published one, look at the address"
            expected, received = f"at most {_MOST_BYTES} bytes", f"{self.held} and more"
            raise unexpected(self.info.url, expected, hint=hint, received=received, code="damaged-file")

    def reset(self) -> None:
        """Begin again, as pooch does at the end to tell the whole size."""
        self.held = 0

    def close(self) -> None:
        """Nothing is open."""


def download(info: FileInfo, local: str, timeout: float) -> Path:
    """A published file in the cache folder, downloaded by pooch unless it is there; its checksum is verified."""
    import pooch
    from requests import RequestException

    # pooch looks into the cache folder first, and verifies the checksum.
    pooch.get_logger().setLevel("WARNING")
    folder, meter = cache_folder(), _Meter(info)
    downloader = pooch.HTTPDownloader(progressbar=meter, timeout=timeout)  # type: ignore[arg-type]
    url, sha256 = info.url, info.original_sha256
    try:
        return Path(pooch.retrieve(url, sha256, info.original_name, folder, downloader=downloader))  # type: ignore[arg-type]
    except RequestException as error:
        hint = f"download it elsewhere and set {LOCAL_FOLDER} to the folder that holds {info.original_name} or {local}"
        reason = str(error) if len(str(error)) <= _LONGEST else "no connection"
        problem = f"{url} could not be downloaded ({reason})"
        raise refused(f"data set {info.name!r}", problem, hint, code="no-file") from None
    except HoimError:
        raise
    except ValueError:
        info.check(url, "", sha256, "another")
        raise
    except OSError as error:
        raise _unwritable(folder, error) from None


def _unwritable(folder: Path, error: OSError) -> InputError:
    problem = f"the cache folder cannot be written ({error.strerror or error})"
    return refused(folder, problem, _ELSEWHERE, code="no-file")


def data_file(name: str, *, timeout: float = 30.0) -> Path:
    """Path of a public data file in canonical form (CSV with a header), downloaded once if need be.

    With the environment variable ``PYRO_HOIM_DATA`` the file is taken from that folder, as ``<name>.csv`` or under its
    published name, and nothing is downloaded. Otherwise it is kept in the cache folder (:func:`cache_folder`). Its
    checksum is verified on every call.

    Args:
        name: one of the names in :func:`dataset_files`.
        timeout: seconds without an answer after which a download is given up.

    Raises:
        UnknownNameError: no such data set; the closest names are listed.
        InputError: the folder of ``PYRO_HOIM_DATA`` does not hold the file, the file differs from the published one,
            it could not be downloaded, or the cache folder cannot be written.

    Example:
        ``pandas.read_csv(data_file("mushroom"))`` has 8,124 rows.
    """
    check_names([name], tuple(_FILES), "data set", noun="data set")
    info = _FILES[name]
    cached = cache_folder() / f"{name}.csv"
    # A folder that was named is the only place that is looked at.
    local = os.environ.get(LOCAL_FOLDER)
    if local:
        for file_name in (f"{name}.csv", info.original_name):
            path = Path(local) / file_name
            if path.is_file():
                raw = read_file(path, "a data file", _MOST_BYTES)
                canonical = _verified(raw, info, str(path))
                return path if canonical == raw else _keep(canonical, cached)
        problem = f"expected {name}.csv or {info.original_name} in the folder {local!r}, found neither"
        hint = f"put the file there or unset {LOCAL_FOLDER} to download it"
        raise refused(LOCAL_FOLDER, problem, hint, code="no-file")
    # Else the cache, which keeps the published file and its canonical form.
    original = download(info, f"{name}.csv", timeout)
    if cached.is_file() and hashlib.sha256(cached.read_bytes()).hexdigest() == info.sha256:
        return cached
    return _keep(canonical_form(original.read_bytes(), info), cached)


def _keep(content: bytes, target: Path) -> Path:
    """Path of a file written to the cache, completely or not at all."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_file(target, content)
    except OSError as error:
        raise _unwritable(target.parent, error) from None
    except InputError as error:
        raise error.replace(hint=_ELSEWHERE) from None
    return target
