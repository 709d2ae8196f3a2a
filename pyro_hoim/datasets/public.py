"""Public data sets that are read from files: Classic3, and three of the UCI repository."""

from __future__ import annotations

import hashlib
import io
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from ..data.columns import ColumnOptions, encode_columns
from ..data.counts import CountTable
from ..data.encoding import encode_column
from ..data.files.table_file import CsvColumns, read_table_file
from ..data.observations import Observations
from ..data.order import relabelled
from ..data.readers import Source
from ..errors import check_names, out_of_range, refused, unexpected
from ..schema import Domain, Variable
from .files import LOCAL_FOLDER, FileInfo, data_file, download

# Classic3, word counts of research abstracts: the matrix published with the papers on root models.

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
    """Provenance of a matrix: ``published`` with the papers on root models, or ``rebuilt`` from the raw collections.

    Example:
        >>> classic3_info().num_rows
        3893
    """
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

    Example:
        ``load_classic3(columns=500).matrix.shape`` is ``(3893, 500)``.
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
        contents = loadmat(io.BytesIO(raw))
    words = [str(cell.item()) for cell in contents["labels"].reshape(-1)]
    return CountTable.from_matrix(contents["Xt"], words, source=info.name)


def matrix_checksum(table: CountTable) -> str:
    """SHA-256 of shape, counts and column names, whatever file they came in."""
    digest = hashlib.sha256()
    matrix = table.matrix
    for numbers in (matrix.shape, matrix.indptr, matrix.indices, matrix.data):
        digest.update(np.ascontiguousarray(numbers, dtype="<i8").tobytes())
    digest.update("\n".join(table.domain.names).encode())
    return digest.hexdigest()


# Loaders of mushroom, adult and breast cancer from the UCI archive, with the published discretisation of adult.

_UNUSED = "(unused)"


def _words(text: str) -> tuple[str, ...]:
    """Words of a list written as one text."""
    return tuple(text.split())


# Cut points of the published discretisation; a value v belongs to the interval with cut[i] < v <= cut[i + 1].
_CUTS: Mapping[str, tuple[float, ...]] = {
    "age": (*(14.5 + 5 * i for i in range(12)), 79.5, 89.5, 99.5),
    "fnlwgt": (*(50_000.0 * i for i in range(9)), 1_500_000.0),
    "capital-gain": (-0.5, 0.5, 1000.5, 3000.5, 10000.5, 30000.5, 100000.5),
    "capital-loss": (-0.5, 1000.5, 1500.5, 2000.5, 2500.5, 5000.5),
    "hours-per-week": (0.5, 10.5, 20.5, 30.5, 35.5, 40.5, 45.5, 50.5, 60.5, 80.5, 100.5),
}
_UNITS = {"age": "years", "capital-gain": "US dollars", "capital-loss": "US dollars", "hours-per-week": "hours"}

_COUNTRY_GROUPS: Mapping[str, tuple[str, ...]] = {
    "usa": ("United-States",),
    "mexico": ("Mexico",),
    "uk": ("England",),
    "canada": ("Canada",),
    "?": ("?",),
    "asia": _words("India South Iran Philippines Cambodia Thailand Laos Taiwan China Japan Vietnam Hong"),
    "europe": _words(
        "Germany Italy Poland Portugal France Yugoslavia Scotland Greece Ireland Hungary Holand-Netherlands"
    ),
    "latAm": _words(
        "Columbia Cuba Dominican-Republic Ecuador El-Salvador Guatemala Haiti Honduras Jamaica Nicaragua "
        "Outlying-US(Guam-USVI-etc) Peru Puerto-Rico Trinadad&Tobago"
    ),
}

_LEVELS: Mapping[str, tuple[str, ...]] = {
    "workclass": _words(
        "? Federal-gov Local-gov Never-worked Private Self-emp-inc Self-emp-not-inc State-gov Without-pay"
    ),
    "education": _words(
        "Preschool 1st-4th 5th-6th 7th-8th 9th 10th 11th 12th HS-grad Some-college Assoc-voc Assoc-acdm Bachelors "
        "Masters Prof-school Doctorate"
    ),
    "marital-status": _words(
        "Divorced Married-AF-spouse Married-civ-spouse Married-spouse-absent Never-married Separated Widowed"
    ),
    "occupation": _words(
        "? Adm-clerical Armed-Forces Craft-repair Exec-managerial Farming-fishing Handlers-cleaners "
        "Machine-op-inspct Other-service Priv-house-serv Prof-specialty Protective-serv Sales Tech-support "
        "Transport-moving"
    ),
    "relationship": _words("Husband Not-in-family Other-relative Own-child Unmarried Wife"),
    "race": _words("Amer-Indian-Eskimo Asian-Pac-Islander Black Other White"),
    "sex": ("Female", "Male"),
    "native-country": tuple(_COUNTRY_GROUPS),
    "income": ("<=50K", ">50K"),
}
_ADULT_NAMES = _words(
    "age workclass fnlwgt education marital-status occupation relationship race sex capital-gain capital-loss "
    "hours-per-week native-country income"
)

_BREAST_CANCER_ORDER: Mapping[str, tuple[str, ...]] = {
    "age": ("20-29", "30-39", "40-49", "50-59", "60-69", "70-79"),
    "tumor-size": ("0-4", *(f"{low}-{low + 4}" for low in range(5, 55, 5))),
    "inv-nodes": ("0-2", "3-5", "6-8", "9-11", "12-14", "15-17", "24-26"),
    "deg-malig": ("1", "2", "3"),
}


def adult_domain(*, unused_levels: bool = False) -> Domain:
    """Domain of the discretised adult data, the same for its two parts.

    Education-num is dropped, because it only numbers the levels of education: these are ordinal, in its order. Age,
    fnlwgt, capital-gain, capital-loss and hours-per-week become ordinal intervals, closed on the right and labelled by
    the whole numbers they hold; native-country is put into eight groups. ``?`` is an ordinary level.

    Args:
        unused_levels: add one level, ``(unused)``, to workclass and to occupation, which gives the 6.5e11 states
            printed in the paper instead of the 5.49e11 of the levels that occur.

    References:
        Paper 1 (refined information, MaHGenTa), table of data sets.

    Example:
        >>> adult_domain()["sex"].labels
        ('Female', 'Male')
    """
    variables: list[Variable] = []
    for name in _ADULT_NAMES:
        if name in _CUTS:
            cuts = _CUTS[name]
            bounds = [(math.floor(low) + 1, math.floor(high)) for low, high in pairwise(cuts)]
            labels = tuple(str(low) if low == high else f"{low}-{high}" for low, high in bounds)
            variables.append(Variable(name, labels, "ordinal", _UNITS.get(name)))
        else:
            extra = (_UNUSED,) if unused_levels and name in ("workclass", "occupation") else ()
            kind = "ordinal" if name == "education" else "nominal"
            variables.append(Variable(name, (*_LEVELS[name], *extra), kind))
    return Domain(variables)


def _interval_codes(table: CsvColumns, name: str) -> np.ndarray:
    """Positions (N,) of the intervals that hold the values of a column of whole numbers."""
    # Whole numbers within the cut points that were published.
    cuts = np.asarray(_CUTS[name])
    try:
        values = np.asarray([int(cell) for cell in table.column(name)])
    except ValueError as error:
        raise out_of_range(f"{table.path}, column {name!r}", f"whole numbers ({error})") from None
    codes = np.searchsorted(cuts, values, side="left") - 1
    outside = np.flatnonzero((codes < 0) | (codes >= len(cuts) - 1))
    if len(outside):
        row = int(outside[0])
        expected = f"a number above {cuts[0]:g} and up to {cuts[-1]:g}"
        raise out_of_range(f"{table.where(row)}, column {name!r}", expected, received=values[row])
    return codes


def _discretise_adult(table: CsvColumns, domain: Domain) -> torch.Tensor:
    """Codes (N, 14) of the columns of an adult file on :func:`adult_domain`."""
    group_of = {country: group for group, countries in _COUNTRY_GROUPS.items() for country in countries}
    codes = np.empty((len(domain), len(table.lines)), dtype=np.int64)
    for i, variable in enumerate(domain):
        if variable.name in _CUTS:
            codes[i] = _interval_codes(table, variable.name)
            continue
        values = table.column(variable.name)
        if variable.name == "native-country":
            values = [group_of.get(country, country) for country in values]
        _, codes[i] = encode_column(variable.name, values, variable=variable, missing_values=(), where=table.where)
    return torch.from_numpy(codes.T.copy())


def load_adult(part: Literal["train", "test"] = "train", *, unused_levels: bool = False) -> Observations:
    """UCI Adult with the published discretisation: 14 variables, 32,561 rows to train on or 16,281 to test on.

    B. Becker and R. Kohavi, Adult, UCI Machine Learning Repository (1996), CC BY 4.0; found, cached and verified by
    :func:`data_file`, with its errors. See :func:`adult_domain` for the levels and ``unused_levels``.

    Example:
        ``load_adult("test").num_rows`` is 16,281.
    """
    names = {"train": "adult", "test": "adult_test"}
    if part not in names:
        raise unexpected("load_adult part", "'train' or 'test'", part, code="unknown-choice")
    domain = adult_domain(unused_levels=unused_levels)
    return Observations(domain, _discretise_adult(read_table_file(data_file(names[part])), domain))


def load_mushroom() -> Observations:
    """UCI Mushroom (1981), CC BY 4.0: 8,124 rows, class and 22 attributes; ``?`` in stalk-root is an ordinary level.

    Found, cached and verified by :func:`data_file`, with its errors. There are 243,799,621,632,000 states.

    Example:
        ``load_mushroom().domain["class"].labels`` is ``("e", "p")``.
    """
    return _levels_of("mushroom")


def _levels_of(name: str) -> Observations:
    """The rows of a file, among whose levels ``?`` is known to be."""
    table = Source.of_csv(read_table_file(data_file(name)))
    domain, codes, counts, *_ = encode_columns(table, None, ColumnOptions(count=None))
    return Observations(domain, codes, counts)


def load_breast_cancer() -> Observations:
    """UCI Breast Cancer (Ljubljana), CC BY 4.0: 286 rows, class and 9 attributes; ``?`` is an ordinary level.

    M. Zwitter and M. Soklic (1988); found, cached and verified by :func:`data_file`, with its errors. Age, tumor-size,
    inv-nodes and deg-malig are ordinal; levels are those that occur.

    Example:
        ``load_breast_cancer().num_rows`` is 286.
    """
    rows = _levels_of("breast_cancer")
    return relabelled(rows, [Variable(name, labels, "ordinal") for name, labels in _BREAST_CANCER_ORDER.items()])
