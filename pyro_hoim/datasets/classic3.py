"""Classic3, word counts of research abstracts: the matrix published with the papers on root models."""

from __future__ import annotations

import hashlib
import io
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from ..data.counts import CountTable
from ..errors import check_names, refused
from .files import LOCAL_FOLDER, FileInfo, download

__all__ = ["classic3_info", "load_classic3", "matrix_checksum"]


_COMMIT = "212e9199b280f2294ae688c38ec74ba59dd0cace"
_SMART = "SMART collections CISI, CRANFIELD and MEDLINE, Cornell University"
_MATRICES: Mapping[str, FileInfo] = {
    "published": FileInfo(
        "classic3",
        f"https://raw.githubusercontent.com/davidinouye/sqr-graphical-models/{_COMMIT}/data/classic3.mat",
        "not stated for the data; the repository's code is under the MIT licence",
        "D. I. Inouye, P. Ravikumar and I. S. Dhillon, Square root graphical models, ICML 2016 (data of the code "
        f"release); {_SMART}",
        3893,
        "8a26cc71070d75b214278338fbb6f07f679b054f3f8ee5e25dab4fe25f5f0a5a",
        "15c5e0b46bb64f8c09cd019f56ad45ce4cc7777b3444b362e03f6ac4c9d97465",
        files=("classic3_sqr_top1000.npz", "classic3_sqr_top1000_vocab.txt"),
    ),
    "rebuilt": FileInfo(
        "classic3_counts",
        "",
        "free for research, no explicit licence",
        _SMART,
        3891,
        "f0906a551add768408772ca239e3fc28f7a1df1aad06fbf78cdb9cb82b47dc86",
        files=("classic3_counts.npz", "classic3_vocab.txt"),
    ),
}


def classic3_info(which: Literal["published", "rebuilt"] = "published") -> FileInfo:
    """Provenance of a matrix: ``published`` with the papers on root models, or ``rebuilt`` from the raw collections."""
    check_names([which], tuple(_MATRICES), "classic3 which", noun="matrix")
    return _MATRICES[which]


def load_classic3(
    which: Literal["published", "rebuilt"] = "published",
    *,
    columns: Sequence[str] | int | None = None,
    timeout: float = 30.0,
) -> CountTable:
    """Counts of words (columns) in abstracts (rows) of library science, aeronautics and medicine.

    ``published`` is the matrix of the papers: 1,000 words by falling total count, 3,893 abstracts, of which rows 1930
    and 2454 are empty (and row 3232 on these words); their experiment takes the first 500 columns. It is downloaded
    once and verified on every call, or taken from the folder that ``PYRO_HOIM_DATA`` names, as published
    (``classic3.mat``) or as sparse matrix with a vocabulary. ``rebuilt`` holds every word of at least five abstracts,
    made anew from the raw collections; it is read from such a folder only.

    Args:
        which: the matrix.
        columns: words to keep, or how many from the left; default all.
        timeout: seconds without an answer after which a download is given up.

    Raises:
        UnknownNameError: an unknown matrix or word.
        InputError: the file is absent, differs from the pinned one, or could not be downloaded.

    References:
        Paper 2 (generalized root models), section 5.
    """
    info = classic3_info(which)
    local = os.environ.get(LOCAL_FOLDER)
    if local:
        table = _from_folder(Path(local), info)
    elif info.url:
        table = _from_original(download(info, info.files[0], timeout).read_bytes(), info)
    else:
        hint = f"set {LOCAL_FOLDER} to the folder that holds {info.files[0]} and {info.files[1]}"
        raise refused(f"data set {info.name!r}", "has no published address", hint, code="no-file")
    return table if columns is None else table.columns(columns)


def _from_folder(folder: Path, info: FileInfo) -> CountTable:
    original, (matrix, vocab) = folder / info.original_name, (folder / name for name in info.files)
    if matrix.is_file():
        table = CountTable.from_npz(matrix, vocab)
        info.check(matrix, " of its counts and names", info.sha256, matrix_checksum(table))
        return table
    if info.url and original.is_file():
        raw = original.read_bytes()
        info.check(original, "", info.original_sha256, hashlib.sha256(raw).hexdigest())
        return _from_original(raw, info)
    expected = " or ".join(name for name in (info.original_name, info.files[0]) if name)
    problem = f"expected {expected} in the folder {str(folder)!r}, found no such file"
    raise refused(LOCAL_FOLDER, problem, f"put it there or unset {LOCAL_FOLDER}", code="no-file")


def _from_original(raw: bytes, info: FileInfo) -> CountTable:
    """Table in the published MATLAB file."""
    from scipy.io import loadmat

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The default value for `spmatrix`", DeprecationWarning)  # either will do
        held = loadmat(io.BytesIO(raw))
    words = [str(cell.item()) for cell in held["labels"].reshape(-1)]
    return CountTable.from_matrix(held["Xt"], words, source=info.name)


def matrix_checksum(table: CountTable) -> str:
    """SHA-256 of shape, counts and column names, whatever file they came in."""
    found = hashlib.sha256()
    matrix = table.matrix
    for numbers in (matrix.shape, matrix.indptr, matrix.indices, matrix.data):
        found.update(np.ascontiguousarray(numbers, dtype="<i8").tobytes())
    found.update("\n".join(table.domain.names).encode())
    return found.hexdigest()
