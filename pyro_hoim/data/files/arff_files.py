"""Weka's ARFF: attributes and their declared levels above rows of cells, dense or sparse."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from ...errors import refused
from .source_file import check_cells
from .survey_files import Typed

_ARFF = re.compile(r"(?:\s*%[^\r\n]*[\r\n]+)*\s*@relation\s", re.I)
_DATA = re.compile(r"^[ \t]*@data\b[^\r\n]*", re.I | re.M)
_ATTRIBUTE = re.compile(r"""([ \t]*@attribute)\s+('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s{]+)\s*(.*)""", re.I)
_WEIGHTS = re.compile(r"^[^{%\r\n][^\r\n]*,\s*\{[^{}\r\n]*\}[ \t]*$", re.M)
_OTHER_TYPES = {"date": "STRING", "integer": "NUMERIC"}  # of Weka, which takes 3.5 for an integer


def is_arff(head: str) -> bool:
    """Whether a text begins as ARFF."""
    return _ARFF.match(head) is not None


def arff_file(path: Any, text: str) -> Typed:
    """The columns of a text; nominal attributes have the levels that they declare, in no order."""
    import arff

    # How many cells there may be, before any is read.
    data = _DATA.search(text)
    head, rows = (text, "") if data is None else (text[: data.start()], text[data.end() :])
    lines = [_attribute(line) for line in head.splitlines()]
    check_cells(path, rows.count("\n") + rows.count("\r") + 1, sum("@attribute" in line.lower() for line in lines))
    if weights := _WEIGHTS.search(rows):
        problem = f"has weights of rows in braces ({weights[0][-20:].strip()})"
        raise refused(path, problem, "make them an attribute, such as weight, and name it as weights", "damaged-file")
    try:
        read = arff.loads("\n".join([*lines, "@DATA"]) + rows)
    except arff.ArffException as error:
        problem = f"damaged .arff file ({' '.join(str(error).split())[:120]})"
        raise refused(path, problem, "save it again, or as CSV", code="damaged-file") from None
    # Levels are those that an attribute lists.
    columns = [*zip(*read["data"], strict=True)] or [()] * len(read["attributes"])
    typed = dict[str, Any]()
    categorical = list[str]()
    for (name, kind), cells in zip(read["attributes"], columns, strict=True):
        if isinstance(kind, list):
            typed[name] = pd.Series(pd.Categorical(cells, categories=kind))
            categorical.append(name)
        else:
            typed[name] = pd.Series(cells, dtype=object if kind == "STRING" else float)
    return typed, categorical, ()


def _attribute(line: str) -> str:
    """A line of the header, with a blank between its parts and a type that the parser knows."""
    match = _ATTRIBUTE.match(line)
    if match is None:
        return line
    word, name, kind = match.groups()
    return f"{word.strip()} {name} {_OTHER_TYPES.get(kind.split()[0].lower() if kind else '', kind)}"
