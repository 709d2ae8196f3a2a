"""Structural zeros as a command takes them: levels of columns that are impossible together."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...errors import check_names, unexpected
from ...schema import Domain
from ..family import Option

STRUCTURAL_ZEROS = Option(
    "structural_zeros",
    'Levels that are impossible together, e.g. "sex=male,pregnant=yes". A column may be named again for more of its'
    " levels. May be given several times.",
    multiple=True,
    metavar="COL=LEVEL,...",
)


def parse_zeros(texts: Sequence[str], domain: Domain) -> list[dict[str, list[str]]]:
    """The combinations that texts ``COL=LEVEL,...`` name; a label may hold a comma, and a name an equals sign."""
    # Parts begin with a column.
    columns = "|".join(map(re.escape, sorted(domain.names, key=len, reverse=True)))
    between, begin = re.compile(rf",(?=\s*(?:{columns})\s*=)"), re.compile(rf"\s*({columns})\s*=")
    combinations = list[dict[str, list[str]]]()
    for text in texts:
        levels: dict[str, list[str]] = {}
        for part in between.split(text):
            match = begin.match(part)
            name, level = (match[1], part[match.end() :]) if match else map(str.strip, part.partition("=")[::2])
            check_names([name], domain.names, "structural_zeros")
            level = level if level in domain[name].labels else level.strip()
            if level not in domain[name].labels:
                _check_level(domain, text, name, level)
            levels.setdefault(name, []).append(level)
        combinations.append(levels)
    return combinations


def _check_level(domain: Domain, text: str, name: str, level: str) -> None:
    """Say of what is no level of a column that others stand in it, which lack theirs or are unknown."""
    others = [part.partition("=") for part in re.split(r"[,\s]+(?=[^,\s=]+\s*=)", level)[1:]]
    check_names([other.strip() for other, _, _ in others], domain.names, "structural_zeros")
    if others:
        raise unexpected("structural_zeros", "COL=LEVEL,...", text, "put a comma between the columns")
    _, comma, end = level.rpartition(",")
    lacking = end.strip() if comma else name
    if lacking in domain and (comma or not level):
        raise unexpected("structural_zeros", "COL=LEVEL,...", text, f"column {lacking!r} lacks its level")
    if level[:1] == level[-1:] == '"':
        raise unexpected("structural_zeros", f"a level of {name!r}", level, "write it without quotation marks")
