"""Six published contingency tables, typed in with their sources.

Counts are listed with the first variable varying fastest, as the tables are usually printed and as R stores them.
Levels keep the published order, so the first-listed level is the reference level of corner coding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import check_names
from ..schema import Domain

if TYPE_CHECKING:
    from ..data.observations import Observations


@dataclass(frozen=True)
class TableInfo:
    """A published table and its provenance.

    Attributes:
        name: key for :func:`load_table`.
        title: what was observed.
        source: publication the counts come from.
        licence: terms of the published counts.
        labels: levels by variable.
        counts: of all cells, first variable fastest.
        note: what a user should know before reading the labels; may be empty.
    """

    name: str
    title: str
    source: str
    licence: str
    labels: Mapping[str, tuple[str, ...]]
    counts: tuple[int, ...]
    note: str = ""


_YES_NO = ("yes", "no")
_Y_N = ("y", "n")
_PUBLISHED = "published table of counts (facts); also distributed with GPL-licensed R packages"
_R_DATASETS = "public data; also distributed with R's package datasets"

_CZECH_AUTOWORKERS = TableInfo(
    name="czech_autoworkers",
    title="Risk factors of coronary thrombosis in men employed in a Czechoslovak car factory",
    source=(
        "D. Edwards and T. Havranek, A fast procedure for model search in multidimensional contingency tables, "
        "Biometrika 72 (1985) 339-351; data of Z. Reinis et al. (1981)"
    ),
    licence=_PUBLISHED,
    labels=dict.fromkeys(("smoke", "mental", "phys", "systol", "protein", "family"), _Y_N),
    counts=(
        *(44, 40, 112, 67, 129, 145, 12, 23, 35, 12, 80, 33, 109, 67, 7, 9),
        *(23, 32, 70, 66, 50, 80, 7, 13, 24, 25, 73, 57, 51, 63, 7, 16),
        *(5, 7, 21, 9, 9, 17, 1, 4, 4, 3, 11, 8, 14, 17, 5, 2),
        *(7, 3, 14, 14, 9, 16, 2, 3, 4, 0, 13, 11, 5, 14, 4, 4),
    ),
    note=(
        "The distributed copies label 1581 of the 1841 men 'y' for a family history of coronary heart disease, which "
        "is implausible: the two levels look interchanged for family and perhaps for other variables (not checked "
        "against the 1985 paper). Independence structure is unaffected, but do not read signs from the labels."
    ),
)

_ROCHDALE = TableInfo(
    name="rochdale",
    title="Women's economic activity and husbands' unemployment in Rochdale households",
    source="J. Whittaker, Graphical Models in Applied Multivariate Statistics, Wiley (1990)",
    licence=_PUBLISHED,
    labels={
        "EconActive": _YES_NO,
        "Age": ("<38", ">38"),
        "HusbandEmployed": _YES_NO,
        "Child": _YES_NO,
        "Education": _YES_NO,
        "HusbandEducation": _YES_NO,
        "Asian": _YES_NO,
        "HouseholdWorking": _YES_NO,
    },
    counts=(
        *(1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        *(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 1, 1, 0, 0, 0, 1),
        *(2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 22, 6, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 1, 26, 7, 0, 0, 1, 1),
        *(0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 10, 2, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 3, 0, 25, 10, 0, 0, 4, 7),
        *(1, 1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2),
        *(0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11, 0, 2, 0, 8, 0, 3, 2, 2, 0, 1, 0, 2, 0, 3),
        *(29, 26, 3, 0, 0, 0, 0, 0, 57, 6, 43, 10, 0, 0, 2, 1, 11, 13, 2, 0, 0, 6, 0, 0, 23, 5, 37, 16, 4, 0, 2, 1),
        *(11, 3, 0, 1, 0, 1, 0, 0, 22, 4, 15, 0, 1, 0, 0, 1, 5, 8, 0, 1, 1, 4, 0, 0, 18, 5, 41, 17, 3, 5, 2, 4),
    ),
    note="Sparse: 165 of the 256 cells are empty.",
)

_UCB_ADMISSIONS = TableInfo(
    name="ucb_admissions",
    title="Graduate admissions to the six largest departments of the University of California, Berkeley, autumn 1973",
    source="P. J. Bickel, E. A. Hammel, J. W. O'Connell, Sex bias in graduate admissions, Science 187 (1975) 398-404",
    licence=_R_DATASETS,
    labels={"Admit": ("Admitted", "Rejected"), "Gender": ("Male", "Female"), "Dept": ("A", "B", "C", "D", "E", "F")},
    counts=(
        *(512, 313, 89, 19, 353, 207, 17, 8, 120, 205, 202, 391),
        *(138, 279, 131, 244, 53, 138, 94, 299, 22, 351, 24, 317),
    ),
)

_TITANIC = TableInfo(
    name="titanic",
    title="Fate of the 2201 people on board the Titanic",
    source="R. J. M. Dawson, The 'unusual episode' data revisited, Journal of Statistics Education 3 (1995)",
    licence=_R_DATASETS,
    labels={
        "Class": ("1st", "2nd", "3rd", "Crew"),
        "Sex": ("Male", "Female"),
        "Age": ("Child", "Adult"),
        "Survived": ("No", "Yes"),
    },
    counts=(
        *(0, 0, 35, 0, 0, 0, 17, 0, 118, 154, 387, 670, 4, 13, 89, 3),
        *(5, 11, 13, 0, 1, 13, 14, 0, 57, 14, 75, 192, 140, 80, 76, 20),
    ),
    note="There were no children in the crew, so models with the Class by Age interaction have no finite estimate.",
)

_HAIR_EYE_COLOR = TableInfo(
    name="hair_eye_color",
    title="Hair and eye colour of statistics students at the University of Delaware",
    source=(
        "R. D. Snee, Graphical display of two-way contingency tables, The American Statistician 28 (1974) 9-12; "
        "division by sex from M. Friendly (1992)"
    ),
    licence=_R_DATASETS,
    labels={
        "Hair": ("Black", "Brown", "Red", "Blond"),
        "Eye": ("Brown", "Blue", "Hazel", "Green"),
        "Sex": ("Male", "Female"),
    },
    counts=(
        *(32, 53, 10, 3, 11, 50, 10, 30, 10, 25, 7, 5, 3, 15, 7, 8),
        *(36, 66, 16, 4, 9, 34, 7, 64, 5, 29, 7, 5, 2, 14, 7, 8),
    ),
    note="The division by sex was made up by Friendly for teaching; the hair by eye margin is Snee's.",
)

_THREE_FEATURES = TableInfo(
    name="three_features",
    title="10,000 draws of three binary features, the example of a pairwise model",
    source=(
        "C. Saffer, Multivariate Models with Higher-Order Interactions: Theory and Algorithms, master's thesis, "
        "Friedrich Schiller University Jena (2019), table 1.2"
    ),
    licence="published table of counts (facts)",
    labels=dict.fromkeys("XYZ", ("0", "1")),
    counts=(983, 11, 4172, 60, 2105, 612, 1849, 208),
    note="Drawn by a computer; the law that it was drawn from is not given.",
)

_TABLES = {
    table.name: table
    for table in (_CZECH_AUTOWORKERS, _ROCHDALE, _UCB_ADMISSIONS, _TITANIC, _HAIR_EYE_COLOR, _THREE_FEATURES)
}


def tables() -> tuple[TableInfo, ...]:
    """All tables.

    Example:
        >>> [info.name for info in tables()][:3]
        ['czech_autoworkers', 'rochdale', 'ucb_admissions']
    """
    return tuple(_TABLES.values())


def table_info(name: str) -> TableInfo:
    """One table with its provenance; UnknownNameError lists the closest names.

    Example:
        >>> table_info("titanic").labels["Class"]
        ('1st', '2nd', '3rd', 'Crew')
    """
    check_names([name], tuple(_TABLES), "table", noun="table")
    return _TABLES[name]


def load_table(name: str) -> Observations:
    """Observations of one table: every cell with its count, zero cells included, in row-major order.

    Example:
        >>> data = load_table("hair_eye_color")
        >>> data.num_rows, data.total_count, data.domain["Hair"].labels
        (32, 592.0, ('Black', 'Brown', 'Red', 'Blond'))
    """
    import numpy as np  # which, as PyTorch, a list of the tables can do without

    from ..data.observations import Observations

    table = table_info(name)
    domain = Domain.from_labels(table.labels)
    return Observations.from_table(domain, np.reshape(table.counts, domain.cardinalities, order="F"))
