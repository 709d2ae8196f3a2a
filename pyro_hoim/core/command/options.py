"""Options that several families take, as records, and words that they are written in; braces hold names of options."""

import re
from collections.abc import Sequence
from typing import Any

from ...budgets import LARGEST_SEED, MAX_SWEEPS
from ...errors import check_names, conflict, unexpected
from ...schema import Domain
from ..family import Asked, Option

ORDER = Option(
    "order",
    "Fit all interactions of up to K variables [default: 2 where that takes a minute at most, else what plan advises]. "
    "Several values of K are compared. With {model} grm, K is the largest set that may be learned [default: 3].",
    kind="whole",
    multiple=True,
    metavar="K",
)
MAX_ORDER = Option(
    "max_order",
    "Variables of the largest interaction that may be learned.  [default: 3; of {numbers} families 2]",
    kind="whole",
    multiple=True,
    metavar="K",
)
PENALTY = Option(
    "penalty",
    "Of a log-linear model, for a table with two levels a column: fit all interactions of up to {order} variables by "
    "pseudo-likelihood within norm balls. A bounds the l1 norm of a sparse part, and B the overlapped Schatten 1 norm "
    "of a low-rank one. They are radii, in nats of corner coding, not strengths of a penalty. Of a dependency network: "
    "the price of a leaf, which is mdl, aic, or ebic. The last adds the price of choosing among the columns.  "
    "[default: mdl]",
    metavar="l1:A|low-rank:B|sparse-low-rank:A,B|mdl|aic|ebic",
)
JOBS = Option(
    "jobs",
    "How many chains are drawn at a time with {posterior}, each in a process, or how many columns a dependency network"
    " or grm learns at a time.  [default: one per core]",
    kind="whole",
    low=1,
    high=256,
    metavar="N",
)
LABELLED = (
    Option(
        "target",
        "Also report how well this column is predicted from the others. May be given several times.",
        multiple=True,
        metavar="COL",
    ),
    Option(
        "missing",
        "drop leaves out rows with missing cells. marginalise sums over them (a dependency network sends such a row to"
        " all answers of a question, in proportion). LABEL means that cells with this label are missing, too. May be "
        "given several times. Empty cells are always missing.",
        multiple=True,
        metavar="drop|marginalise|LABEL",
    ),
    Option(
        "levels",
        'Levels of columns, including those that no row has: JSON {{"column": ["level", ...]}}, or a CSV file '
        "column,level.",
        kind="path",
        metavar="FILE",
    ),
    Option(
        "levels_from",
        "Add the labels of these rows, which are not fitted, to the levels of the columns.",
        kind="path",
        metavar="FILE.csv",
    ),
)
"""Options of ``fit`` of families whose columns have levels."""

LABEL = Option(
    "missing", "Cells with this label are missing, as empty cells are.", multiple=True, metavar="LABEL", of_files=True
)
PREDICT_METHOD = Option(
    "method",
    "How to sum over other cells that are missing. exact sums exactly or refuses. gibbs averages over Markov chains. "
    "auto is exact if a row takes about a tenth of a second at most, and otherwise takes gibbs and says so.",
    choices=("auto", "exact", "gibbs"),
    default="auto",
)
PREDICT_SEED = Option("seed", "Seed of gibbs.", kind="whole", low=0, high=LARGEST_SEED, default=0)

LOG_Z_OPTIONS = (
    Option(
        "method",
        "How to find log Z. auto is exact if possible, and otherwise takes the estimate in the model file, if any. "
        "exact is exact or refuses. bounds, of a log-linear model, bounds log Z on both sides by mini-buckets, and "
        "estimates it between these by draws. ais makes a new estimate with an error bar by annealed importance "
        "sampling, at any size; only what is impossible has to be within reach of exact sums by itself.",
        choices=("auto", "exact", "bounds", "ais"),
        default="auto",
    ),
    Option("num_chains", "Chains of ais.  [default: 512; of a grm 256]", kind="whole", low=1, metavar="N"),
    Option(
        "num_temperatures",
        "Temperatures of ais.  [default: 1000; of a grm 200]",
        kind="whole",
        low=1,
        high=10**7,
        metavar="K",
    ),
    Option("temperatures", "adaptive chooses temperatures of ais in steps of equal difficulty.", choices=("adaptive",)),
    Option("seed", "Seed of ais or bounds.  [default: 0]", kind="whole", low=0, high=LARGEST_SEED),
    Option("device", "Where the chains of ais run, as PyTorch names it: cuda, cuda:1.  [default: cpu]", metavar="NAME"),
)
BOUNDS_OPTIONS = (
    Option(
        "max_cells",
        "Cells of the largest table of exact sums, or of a mini-bucket of bounds: the larger, the tighter.  "
        "[default: 67108864; of bounds 65536]",
        kind="whole",
        low=1,
        high=2**40,
        metavar="N",
    ),
    Option(
        "memory_limit",
        "Memory that exact sums or bounds may take, in bytes or such as 500MiB or 8GiB.  [default: 4GiB]",
        metavar="SIZE",
    ),
    Option(
        "time_limit",
        "Time, such as 90s, 5m or 2h, after which bounds are what they are then; one pass is made in any case. A third "
        "is for each bound, the rest for draws.",
        metavar="TIME",
    ),
)
"""Options on log Z of a family that has bounds of it."""
DRAW_METHOD = Option(
    "method",
    "exact makes perfect draws or refuses. gibbs uses Markov chains, which are approximate. auto is exact if possible,"
    " and otherwise takes gibbs and says so.",
    choices=("auto", "exact", "gibbs"),
    default="auto",
)
BURN_IN = Option(
    "burn_in", "Sweeps of gibbs before a row.  [default: 200]", kind="whole", low=0, high=MAX_SWEEPS, metavar="N"
)
COMPLETE = (
    Option(
        "complete",
        "Fill the missing cells of the rows of this CSV file instead, each row N times, given its known cells.",
        kind="path",
        metavar="FILE",
        of_files=True,
    ),
    LABEL,
)
"""Options of ``sample`` of a family that fills missing cells."""
STRUCTURAL_ZEROS = Option(
    "structural_zeros",
    'Levels that are impossible together, e.g. "sex=male,pregnant=yes". A column may be named again for more of its'
    " levels. May be given several times.",
    multiple=True,
    metavar="COL=LEVEL,...",
)


def only(asked: Asked, name: str) -> Any:
    """The one value of an option that may be given several times, None for none; more are refused."""
    values = asked[name]
    if len(values) > 1:
        raise conflict(name, "several are compared for given interactions of a log-linear model only", "give it once")
    return values[0] if values else None


def seconds(text: str | None, argument: str = "time_limit") -> float | None:
    """A time such as ``90``, ``90s``, ``5m`` or ``1.5h`` in seconds."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smh]?)", text.strip())
    number = 0.0 if match is None else float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]
    if not number:
        raise unexpected(argument, "a time above 0 such as 90s, 5m or 2h", text)
    return number


def num_bytes(text: str | None, argument: str = "memory_limit") -> int | None:
    """A size such as ``1000000``, ``500MiB`` or ``1.5GiB`` in bytes."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)(|B|KiB|MiB|GiB|TiB)", text.strip())
    units = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
    number = 0 if match is None else int(float(match[1]) * units[match[2]])
    if not number:
        raise unexpected(argument, "a size above 0 such as 500MiB or 8GiB, or a number of bytes", text)
    return number


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
