"""Generalized root models as a family of the registry."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pandas as pd
import torch
from typing_extensions import override

from ..core.command.answers import drawn_rows, is_default_log_z, log_z_of, number_text, prediction_answer, score_answer
from ..core.command.options import BURN_IN, DRAW_METHOD, JOBS, LOG_Z_OPTIONS, MAX_ORDER, ORDER, only
from ..core.command.reading import Reading
from ..core.command.rows import ALL_TRAIN, Fractions, held_out_split, parse_columns
from ..core.family import (
    Answer,
    Asked,
    Family,
    Option,
    Plan,
    Question,
    Request,
    Source,
    Stored,
    more_interactions,
    top_interactions,
)
from ..core.partition import LogPartition
from ..core.prediction import Prediction, beside_figures
from ..core.scores import Figures, RowLogLikelihood, Scores, mean_gain
from ..core.words import coefficient, columns_of, listed, option, plural, short_edge
from ..data.columns import columns_of_numbers
from ..data.counts import CountTable
from ..data.files.table_file import CsvColumns, read_table_file
from ..data.readers import Source as Cells
from ..datasets.public import classic3_info, load_classic3
from ..errors import (
    InputError,
    IntractableError,
    check_names,
    conflict,
    none_received,
    out_of_range,
    refused,
    unexpected,
)
from ..results.contrasts import odds_ratios_table
from ..runs.checkpoint import RunOptions
from ..runs.container import GENERALIZED_ROOT
from ..schema import Domain, Variable
from .annealed import RootAnnealed
from .auto import RootAuto
from .dispersion import dispersion_caveats
from .effects import RootEffects, with_errors
from .energy import GeneralizedRootEnergy
from .file import RootFile
from .frames import RootColumns
from .law import GeneralizedRoot
from .mixed_table import AUTO, ONE_FOR_ALL, FamilyWords, MixedSource
from .nodes.columns import Families, NodeFamilies
from .nodes.families import IndicatorFamily, NodeFamily, node_family
from .regress.choice import L1S
from .regress.fit import fit_root_path, fit_roots
from .regress.options import Refit, RootSettings, checked_order
from .regress.result import RootFitResult, RootTerm
from .study.analysis import AUTO_L1, RootAnalysis, analyse_roots, standardise_term, tuple_json
from .study.baselines import kept_independent
from .study.prediction import RootPrediction, predict_roots
from .study.scores import RootModel, draw_roots, exact_log_partition, in_units, sets_by_strength

# The fit of a generalized root model of counts or of real numbers, with its rows.

_MOST_L1 = 1e6


def _several(l1s: Sequence[float]) -> str:
    """Penalties in a sentence, as they are typed."""
    return ",".join(f"{value:g}" for value in l1s)


_LOADERS: dict[str, Callable[[], CountTable]] = {"classic3": load_classic3}

VOCAB = Option(
    "vocab",
    "Column names of a .npz file for a grm, one a line.  [default: the same name with _vocab.txt]",
    kind="path",
    metavar="FILE",
    of_files=True,
)
LEVEL = Option(
    "level",
    "Coverage of the intervals of numbers, of models whose columns have several families, or where it is given.",
    kind="number",
    low=0,
    high=1,
    is_open=True,
    default=0.95,
)
FAMILY_OPTION = Option(
    "family",
    f"Distribution of a column given all others: {', '.join(ONE_FOR_ALL)}, auto, which chooses by the values of "
    "every column and takes text, too, or COL=FAMILY, where a family is binary, category, count, bounded:M (a "
    "count up to M), positive or real, and COL is * for all columns whose values do not say it.  [default: poisson]",
    multiple=True,
    metavar="FAMILY|auto|COL=FAMILY",
)
L1 = Option(
    "l1",
    f"Penalty of every coefficient, nats a row. Several (or auto: {_several(AUTO_L1)}) are compared on the validation "
    "rows, or without any on every fifth of the training rows, left out in turn.  [default: 0.01]",
    multiple=True,
    metavar="LAMBDA|auto",
)
MAXIMUM = Option(
    "maximum", "Largest count of {family} truncated-poisson.", kind="whole", low=1, high=2**53, metavar="R"
)
RATE = Option(
    "false_discovery_rate",
    "Largest share, on average, of absent sets among those that all training rows are said to confirm, or none.",
    default="0.1",
    metavar="RATE|none",
)
ROOT_OPTIONS = (
    FAMILY_OPTION,
    L1,
    VOCAB,
    MAXIMUM,
    Option(
        "symmetrize",
        "How the coefficients of a tuple at its columns become one. 'mean' takes their mean and counts absent ones as "
        "zero, 'and' takes zero if one is absent, and 'or' takes the mean of those present.",
        choices=("mean", "and", "or"),
        default="mean",
    ),
    Option(
        "refit",
        "Which coefficients are fitted again, together, once the columns' regressions are joined. none is the "
        "published way, which can predict worse than independent columns.",
        choices=("none", "singles", "all"),
        default="all",
    ),
    RATE,
    Option("stagewise", "Learn pairs first, then only triples of mutually tied columns.", kind="flag"),
    Option(
        "full",
        "Also use lower roots: square and cube roots of single columns (which let counts spread more than Poisson ones"
        " do), and cube roots of pairs. In gaussian models they hold the mean.  [default: gaussian only]",
        kind="switch",
    ),
    ORDER,
    JOBS,
)
ROOT_LEARN_OPTIONS = (
    replace(FAMILY_OPTION, help=FAMILY_OPTION.help.replace("[default: poisson]", "[default: auto]")),
    replace(L1, help=L1.help.replace("[default: 0.01]", f"[default: {_several(L1S)}]")),
    MAXIMUM,
    RATE,
    MAX_ORDER,
    replace(JOBS, help="How many columns are learned at a time.  [default: one per core]"),
)
_OF_LEARN = {one.name for one in ROOT_LEARN_OPTIONS}


@dataclass(frozen=True)
class _CountSource(Source):
    """A table of counts or real numbers."""

    rows: CountTable

    @classmethod
    def read(
        cls,
        source: str,
        columns: str | None,
        vocab: Path | None,
        family: NodeFamily,
        reading: Reading,
        cells: CsvColumns | None = None,
    ) -> _CountSource:
        """A table by path or name; a file of that name wins, whose ``cells`` may have been read already."""
        path, chosen = Path(source), parse_columns(columns)
        notes: tuple[str, ...] = ()
        # A data set by name, else a matrix of SciPy, else a table of text.
        if not path.exists() and source in _LOADERS:
            reading.check_unused(source)
            if vocab is not None:
                raise conflict("vocab", f"belongs to a .npz file, received the data set {source}")
            rows = _LOADERS[source]()
            rows = _without(rows if chosen is None else rows.columns(chosen), reading.exclude)
            table = cls(source, rows, (f"The public data set {source}. Source: {classic3_info().source}.",))
        elif not path.exists():
            problem = f"no such file, nor one of the data sets of counts {', '.join(_LOADERS)}"
            raise refused(source, problem, code="no-file")
        else:
            if path.suffix == ".npz":
                reading.check_unused(source)
                rows = _without(CountTable.from_npz(path, vocab, kind=family.kind, columns=chosen), reading.exclude)
            elif vocab is not None:
                raise conflict("vocab", f"belongs to a .npz file, received {source}, whose header names its columns")
            else:
                if cells is None:
                    cells = read_table_file(path, sep=reading.sep, encoding=reading.encoding)
                count = None if reading.count_column == "none" else reading.count_column or "count"
                how = reading.columns(count=count, chosen=chosen)
                names, left_out = columns_of_numbers(Cells.of_csv(cells), how)
                rows = CountTable.from_csv(cells, kind=family.kind, count=count, columns=names)
                notes = (*cells.note, *([left_out] if left_out else []))
            table = cls(path.stem, rows, (f"Read from {path.name}.",), notes)
        if not table.rows.num_rows:
            raise none_received(source, "at least one observation")
        check_support(table.rows, family)
        return table

    @override
    def told(self) -> tuple[str, ...]:
        found: list[str] = []
        zero, constant = self.rows.zero_columns, self.rows.constant_columns
        if zero:
            found.append(f"{plural(len(zero), 'column')} without a count, left out of the model: {listed(zero)}.")
        if constant:
            found.append(f"Constant column{'s' * (len(constant) > 1)}: {listed(constant)}.")
        return tuple(found)


def _without(rows: CountTable, exclude: Collection[str]) -> CountTable:
    """The rows without some columns."""
    check_names(exclude, rows.domain.names, "exclude", noun="column")
    return rows.columns([name for name in rows.domain.names if name not in exclude]) if exclude else rows


def check_support(rows: CountTable, family: Families) -> None:
    """Refuse values that a family, or that of their column, does not take, by their place."""
    families = NodeFamilies.of(family, rows.domain)
    if families.common is not None:
        _check_values(rows, families.common)
        return
    for one, places in families.groups:
        names = [rows.domain.names[s] for s in places]
        matrix, domain = rows.columns(names).matrix, Domain(Variable(name, kind=one.kind) for name in names)
        _check_values(CountTable(domain, matrix, rows.source, rows.lines), one)


def _check_values(rows: CountTable, family: NodeFamily) -> None:
    """The same of one family."""
    if family.name == "truncated-poisson":
        what = f"{option('family', family.name)} with {option('maximum', int(family.largest_value))}"
        rows.check_range(0, family.largest_value, what)
    elif family.name == "indicator":
        rows.check_range(0, 1, "an indicator of a category")
    elif family.name != "gaussian":
        rows.check_range(0, np.inf, option("family", family.name))


@dataclass(frozen=True)
class _RootPlan:
    """Learning a generalized root model with falling penalties.

    Attributes:
        size: the option that says the size of the largest set.
        usual: that size where it was not said; None for what the families say.
    """

    size: ClassVar[str] = ORDER.name
    usual: ClassVar[int | None] = None

    asked: Asked
    words: FamilyWords
    l1: tuple[float, ...]
    rate: float | None

    def __post_init__(self) -> None:
        if self.order is not None and self.order < 1:
            raise out_of_range(self.size, "a whole number of at least 1", received=self.order)

    @property
    def order(self) -> int | None:
        """Size of the largest set, where it was said."""
        return only(self.asked, self.size)

    def read(self) -> _CountSource | MixedSource:
        """The counts or numbers, or columns of several kinds."""
        asked, reading, family = self.asked, self._reading(option("model", RootFamily.short)), self.words.one
        if family is None:
            if asked["vocab"] is not None:
                raise conflict("vocab", f"belongs to a .npz file of one family, received {option('family', AUTO)}")
            return self._mixed(reading)
        return _CountSource.read(asked.source or "", asked.columns, asked["vocab"], family, reading, asked.cells)

    def _reading(self, choice: str) -> Reading:
        """How the file is read, by a command whose ``choice`` keeps numbers."""
        reading = Reading.of(self.asked.values)
        reading.check_numbers(choice)
        return reading

    def _mixed(self, reading: Reading) -> MixedSource:
        """Columns of several kinds."""
        asked = self.asked
        return MixedSource.read(asked.source or "", parse_columns(asked.columns), self.words, reading, asked.cells)

    def complete(self, source: _CountSource | MixedSource) -> _CountSource | MixedSource:
        """The same rows, refused where they have fewer columns than the order asked for."""
        columns = _num_columns(source)
        if self.order is not None and self.order > columns:
            raise out_of_range(self.size, f"1 to {columns} (the number of columns)", received=self.order)
        return source

    def split(self, source: _CountSource | MixedSource) -> Fractions:
        """A fifth of the rows is held out, and another one where several penalties are compared."""
        return held_out_split(source.rows.num_rows, len(self.l1) > 1)

    def run(self, request: Request) -> RootAnalysis:
        """Learn from the training rows."""
        asked, source = self.asked, request.source
        num_columns, order, full = _num_columns(source), self.order, asked["full"]
        family = source.columns if isinstance(source, MixedSource) else self.words.one
        assert family is not None
        families = NodeFamilies.of(family.families if isinstance(family, RootColumns) else family, source.rows.domain)
        rows, columns = plural(request.parts["train"].num_rows, "row"), plural(num_columns, "column")
        request.begin(f"learning {columns} from {rows}")
        settings = RootSettings(
            stagewise=asked["stagewise"],
            symmetrize=asked["symmetrize"],
            false_discovery_rate=None,  # of the penalty kept alone
            jobs=-1 if asked["jobs"] is None else asked["jobs"],
        )

        # Called for the order asked for, of all rows and then of parts of them, and once more for pairs alone.
        calls = Counter[int]()

        def learn(*learned: Any, order: int) -> tuple[RootFitResult, ...]:
            name = f"roots-{order}" + (f"-{calls[order]}" if calls[order] else "")
            calls[order] += 1
            return fit_root_path(
                *learned,
                order=order,
                full=families.is_gaussian if full is None else full,
                refit=asked["refit"],
                settings=settings,
                run=RunOptions(request.checkpoint / f"{name}.safetensors", request.resume, request.progress),
            )

        # Fifths to leave out are those that the library takes of the rows in their order.
        parts = {**request.parts, "train": source.rows} if request.fractions == ALL_TRAIN else request.parts
        return analyse_roots(
            parts,
            family,
            order=min(checked_order(self.usual, families.each), num_columns) if order is None else order,
            l1=self.l1,
            false_discovery_rate=self.rate,
            learn=learn,
            seed=request.seed,
            title=source.name,
            about=request.about,
        )


def _num_columns(source: Source) -> int:
    """Number of columns of a table; a category is one."""
    return len(source.columns.columns) if isinstance(source, MixedSource) else len(source.rows.domain)


@dataclass(frozen=True)
class _LearnPlan(_RootPlan):
    """A model of columns of any family, of all rows, with the settings of :func:`pyro_hoim.learn`."""

    size: ClassVar[str] = MAX_ORDER.name
    usual: ClassVar[int | None] = 2

    @override
    def read(self) -> MixedSource:
        return self._mixed(self._reading(option("numbers", RootFamily.numbers)))

    @override
    def split(self, source: _CountSource | MixedSource) -> Fractions:
        return ALL_TRAIN


def parse_rate(words: str) -> float | None:
    """A false discovery rate, None for ``none``."""
    if words == "none":
        return None
    try:
        rate = float(words)
    except ValueError:
        rate = math.nan
    if not 0 < rate < 1:
        raise out_of_range("false_discovery_rate", "a number between 0 and 1, or none", received=words)
    return rate


def parse_l1(words: tuple[str, ...]) -> tuple[float, ...]:
    """Penalties in falling order; 0.01 where none is given."""
    parts = [part.strip() for word in words for part in word.split(",")]
    if not parts:
        return (0.01,)
    if parts == ["auto"]:
        return AUTO_L1
    penalties: list[float] = []
    for part in parts:
        if part == "auto":
            several = ", ".join(f"{value:g}" for value in AUTO_L1)
            raise conflict("l1", f"auto stands for {several} and takes no other numbers beside it")
        try:
            value = float(part)
        except ValueError:
            what = repr(part) if part else "nothing between two commas"
            raise out_of_range("l1", "a number, or auto", received=what) from None
        if not 0 <= value <= _MOST_L1:
            raise out_of_range("l1", f"a number from 0 to {_MOST_L1:g} (nats a row)", received=part)
        if value in penalties:
            raise refused("l1", f"{part} is given twice", code="repeated-name")
        penalties.append(value)
    return tuple(sorted(penalties, reverse=True))


_BURN_IN = 200
_ROWS = 4096  # of a file, to choose starts of a search from
_EDGE = 48  # characters


class RootFamily(Family):
    """Generalized root models."""

    kind = GENERALIZED_ROOT
    name = "generalized root model"
    short = "grm"
    numbers = "families"
    record = RootFile
    data_type = "numbers"
    commands: ClassVar[Mapping[str, tuple[Option, ...]]] = {
        "fit": ROOT_OPTIONS,
        "learn": ROOT_LEARN_OPTIONS,
        "sample": (DRAW_METHOD, BURN_IN),
        "score": (VOCAB, *LOG_Z_OPTIONS),
        "predict": (VOCAB, LEVEL),
        "log-z": LOG_Z_OPTIONS,
    }
    instead: ClassVar[Mapping[str, str]] = {
        "prior": "its coefficients are held back by {l1}",
        "target": "fit without it, then predict the column with the model",
        "missing": "fill empty cells or leave out their rows first, for it needs every number",
        "complete": "its rows are complete",
        "information": "its tuples are sorted by coefficient",
        "num_samples": "its tuples are sorted by coefficient",
    }

    @override
    def fit(self, asked: Asked) -> Plan:
        # Options checked against each other.
        rate = parse_rate(asked[RATE.name])
        if asked.verb == "learn":
            others = {one.name: one.unset for one in ROOT_OPTIONS if one.name not in _OF_LEARN}
            asked = replace(asked, values={**asked.values, **others, "full": False})
            l1 = parse_l1(asked["l1"] or (_several(L1S),))
            return _LearnPlan(asked, FamilyWords.parse(asked["family"], asked["maximum"], AUTO), l1, rate)
        if asked.source is None:
            raise unexpected(
                option("model", "grm"), "a FILE of counts or numbers, or classic3", received="none", code="conflict"
            )
        return _RootPlan(asked, FamilyWords.parse(asked["family"], asked["maximum"]), parse_l1(asked["l1"]), rate)

    @override
    def estimate(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        rows: pd.DataFrame,
        *,
        family: str = "poisson",
        maximum: int | None = None,
        order: int | None = None,
        l1: float = 0.01,
        refit: Refit = "all",
        false_discovery_rate: float | None = 0.1,
        seed: int = 0,
    ) -> RootFitResult:
        """A model of a data frame of numbers, all roots up to ``order`` (2)."""
        found = node_family(family, maximum)
        table = CountTable.from_pandas(rows, kind=found.kind, count=None)
        check_support(table, found)
        full = found.name == "gaussian"
        settings = RootSettings(false_discovery_rate=false_discovery_rate)
        degree = 2 if order is None else order
        return fit_roots(table, found, order=degree, l1=l1, full=full, refit=refit, settings=settings)

    @override
    def record_of(self, model: RootFitResult | GeneralizedRoot | GeneralizedRootEnergy) -> RootFile:
        info, tensors = dict[str, Any](), dict[str, torch.Tensor]()
        if isinstance(model, RootFitResult):
            info = {"columns": list(model.domain.names), "fixed_columns": dict(model.fixed_columns)}
            if model.families.common is None and model.fixed_columns:
                info |= {"fixed_kinds": {name: model.domain[name].kind for name in model.fixed_columns}}
            info |= {} if model.columns is None else {"frame": model.columns.to_json()}
            info |= {"rows": model.num_rows, "refit": None if model.refit is None else model.refit.method}
            tensors = {} if model.scales is None else {"root_scales": model.scales}
        families = model.free_families if isinstance(model, RootFitResult) else model.families
        return RootFile(model.structure, model.psi, families, info, tensors)

    @override
    def summary(self, model: Any, *, level: float = 0.95) -> pd.DataFrame:
        # A line for every coefficient of the joint model, those of single columns first
        file = self.complete_file(model)
        frame = RootEffects.of(file).summary(level)
        if scales := file.scales:
            terms = zip(frame["term"], frame["root"], frame["estimate"], strict=True)
            scaled = [
                standardise_term(
                    RootTerm((root, 1 + term.count(":")), tuple(term.split(":")), value), scales
                ).coefficient
                for term, root, value in terms
            ]
            frame.insert(list(frame.columns).index("estimate") + 1, "per_sd", scaled)
        return frame

    @override
    def odds_ratios(self, model: Any, *, level: float = 0.95) -> pd.DataFrame:
        file = self.complete_file(model)
        return odds_ratios_table(RootEffects.of(file).contrasts(), level)

    @override
    def effects(
        self,
        model: Any,
        *,
        response: str | None,
        given: Mapping[str, Any] | None,
        change: Mapping[str, Any] | None,
        level: float,
    ) -> pd.DataFrame:
        return RootEffects.of(self.complete_file(model)).effects(response, given, change, level)

    @override
    def caveats(self, model: Any) -> list[str]:
        return dispersion_caveats(self.complete_file(model).info.get("dispersion", {}))

    def complete_file(self, model: Any) -> RootFile:
        """What a file holds of a model, with the errors of a fit."""
        return self.complete_record(model, self.file_of(model))

    @override
    def complete_record(self, model: Any, record: RootFile) -> RootFile:
        return with_errors(record, model) if isinstance(model, RootFitResult) else record

    @override
    def figures(self, model: Any) -> Figures:
        refit = model.refit if isinstance(model, RootFitResult) else None
        status = "" if not isinstance(model, RootFitResult) or model.is_converged else "not converged"
        file = self.file_of(model)
        rows, columns = file.info.get("rows"), file.columns
        names = file.info.get("columns", file.structure.domain.names) if columns is None else columns.names
        sets: Collection[Any] = [names for key, names in file.structure.names if key[1] > 1]
        pairs = zip(file.structure.domain.names, file.families, strict=True)
        category = {name: one.category for name, one in pairs if isinstance(one, IndicatorFamily)}
        if category:  # a set of columns has a term for every choice of levels
            sets = {tuple(category.get(name, name) for name in one) for one in sets}
        return Figures(
            num_variables=len(names),
            num_interactions=len(sets),
            num_parameters=file.structure.num_terms,
            num_rows=rows,
            log_pseudo_likelihood=None if refit is None or rows is None else -refit.pseudo_nll * rows,
            status=status,
            method=_method(file, None if refit is None else refit.method),
        )

    @override
    def draw(self, question: Question) -> Answer:
        """Rows given some columns: exact where the model allows, else by one Gibbs chain a row."""
        model = model_of(question)
        file: RootFile = question.stored.model
        # Values that the family of their column does not take.
        for name, value in question["given"].items():
            family = file.column_families[file.domain.index(name)]
            low, high = (-math.inf, math.inf) if family.name == "gaussian" else (0.0, family.largest_value)
            is_whole = not family.is_discrete or value == math.floor(value)
            if not math.isfinite(value) or not low <= value <= high or not is_whole:
                expected = "a finite number" if math.isinf(low) else "a number from 0"
                if family.is_discrete:
                    expected = "a whole number from 0" + (f" to {high:.0f}" if math.isfinite(high) else "")
                raise out_of_range("given", f"{expected} for {name!r}", received=f"{value:g}")
        try:
            with drawn_rows(question, "gibbs") as advance:
                drawn = draw_roots(
                    model,
                    question["number"],
                    clamped=question["given"],
                    method=question["method"],
                    burn_in=_BURN_IN if question["burn_in"] is None else question["burn_in"],
                    seed=question["seed"],
                    advance=advance,
                )
        except IntractableError as error:
            raise error.replace(hint=f"{option('method', 'gibbs')} draws approximately, at any size") from error
        except InputError as error:
            if (error.argument or "").startswith("clamped"):
                raise
            raise refused(question.path, str(error), code=error.code) from error
        note = (
            "the rows are approximate: each is the last state of a Gibbs chain of its own "
            f"({plural(drawn.burn_in, 'sweep')} of burn-in from the model without interactions); compare with a longer "
            f"{option('burn_in')}"
        )
        notes = [] if drawn.is_exact else [note]
        if (columns := question.stored.model.columns) is not None:
            return Answer(frame=columns.decode(drawn.values), notes=notes)
        frame = pd.DataFrame(drawn.values.numpy(), columns=list(model.domain.names))
        counts = [variable.name for variable in model.domain if variable.kind == "count"]
        frame = frame.astype(dict.fromkeys(counts, np.int64))
        return Answer(frame=frame, notes=notes)

    @override
    def log_z(self, question: Question, starts: torch.Tensor | None = None) -> LogPartition:
        """Log Z of the columns that are not fixed; an estimate looks for modes from ``starts``, too."""
        return log_z_of(question, model_of(question).energy, RootAnnealed, RootAuto().log_partition, starts)

    @override
    def score(self, question: Question) -> Answer:
        """Gain over independent columns and pseudo-NLL, and NLL and KL where log Z is exact or was asked for."""
        model, table = model_of(question), question.rows
        law = kept_independent(question.stored.model, model.domain)
        families = question.stored.model.column_families
        check_support(table, families)
        # An estimate of log Z is made only where it was asked for.
        if is_default_log_z(question):
            log_z, reason = exact_log_partition(model.energy)
        else:
            starts = model.some_rows(table, _ROWS) if question["method"] == "ais" and families.is_discrete else None
            log_z, reason = self.log_z(question, starts), ""

        def score(rows: CountTable) -> Scores:
            scores = model.scores(rows, None if log_z is None else float(log_z.value))
            if law is None:
                return scores
            own, alone = torch.as_tensor(model.log_pseudo_prob(rows)), torch.as_tensor(law.log_prob(rows))
            gain, error = mean_gain(own, alone, torch.ones(len(own)).double())
            return replace(scores, gain=gain, gain_std_error=error)

        return score_answer(
            question,
            score,
            noun="model",
            has_reference=law is not None,
            measure="pseudo_nll",
            log_z=log_z,
            missing=reason or "no log Z",
            impossible="new values in columns that held one only",
        )

    @override
    def row_log_likelihood(self, stored: Stored, rows: CountTable, pseudo: bool = False) -> RowLogLikelihood:
        """Log-likelihood of every row where exact sums for log Z take seconds; pseudo-likelihood else or on demand."""
        model = RootModel.from_file(stored.model)
        check_support(rows, stored.model.column_families)
        found = None if pseudo else exact_log_partition(model.energy)[0]
        if found is None:
            return RowLogLikelihood(torch.from_numpy(model.log_pseudo_prob(rows)), "pseudo-likelihood")
        return RowLogLikelihood(torch.from_numpy(model.log_q(rows)) - float(found.value))

    @override
    def predict(self, question: Question) -> Answer:
        """A column given all others: of numbers the mean, of labels probabilities, and how far off the file's are."""
        model, table, target = model_of(question), question.rows, question["target"]
        level = question["level"]
        check_support(table, question.stored.model.column_families)

        def predicted(rows: CountTable) -> RootPrediction | Prediction:
            return predict_roots(model, rows, target, is_known=question.has_target)

        prediction = predicted(table)
        if isinstance(prediction, Prediction):
            return prediction_answer(question, cast(Callable[[Any], Prediction], predicted))
        values = {} if prediction.values is None else {target: prediction.values}
        figures = {"mean": prediction.mean, "std": prediction.std}
        # The keys that predictions of labels have, too, with errors in place of accuracies.
        json = {
            "target": target,
            "accuracy": None,
            "majority_accuracy": None,
            "rows": table.num_rows if question.has_target else 0,
            "rmse": prediction.rmse,
            "mae": prediction.mae,
            "mean_rmse": prediction.mean_rmse,
            "log_loss": prediction.log_loss,
            "mean_prediction": float(prediction.mean.mean()) if len(prediction.mean) else None,
            "predicted_rows": table.num_rows,
            "approximate_rows": 0,
            "kind": "exact",
        }
        lines = _describe(prediction, table.num_rows)
        # Intervals where columns have families of their own; pages and files of one family are as ever.
        if model.energy.families.common is None or "level" in question.given:
            low, high = prediction.interval(level)
            figures |= {"lower": low, "upper": high}
            json |= {"level": level, "coverage": prediction.is_inside(level)}
            if prediction.values is not None and len(low):
                share = f"{json['coverage']:.1%} of the values are in their {level * 100:g}% interval"
                lines.append(f"inside           {share}")

        def of_part(part: CountTable) -> dict[str, float | None]:
            return {"rmse": cast(RootPrediction, predicted(part)).rmse}

        return Answer(
            json=json,
            lines=lines,
            frame=beside_figures(values, figures),
            of_part=of_part if question.has_target else None,
            shown=["rmse"],
        )

    @override
    def interactions(self, question: Question) -> Answer:
        """Sets of two and more columns by the size of their coefficients, per standard deviation where it is known."""
        file: RootFile = question.stored.model
        energy, scales, root_scales = file.energy(torch.float64), file.scales, file.tensors.get("root_scales")
        values: list[float] = energy.coefficients.tolist()
        terms = [
            RootTerm(key, names, value) for (key, names), value in zip(energy.structure.names, values, strict=True)
        ]
        # Terms of several columns, by their size in comparable units; those of a set of columns stay together.
        several = [term for term in terms if term.key[1] > 1]
        pairs = [(term, standardise_term(term, scales)) for term in several]
        if energy.families.common is None:
            pairs = [(term, in_units(term, root_scales, file.domain)) for term in several]
            sets = sets_by_strength(several, root_scales, file.domain, file.set_of)
            ranks = {id(term): rank for rank, term in enumerate(term for one in sets for term in one.terms)}
            pairs = sorted(pairs, key=lambda pair: ranks[id(pair[0])])
        else:
            pairs = sorted(pairs, key=lambda pair: -abs(pair[1].coefficient))
        edges = [file.set_of(term.names) for term, _ in pairs]
        positions, left_out = top_interactions(edges, question["top"])
        pairs, edges = [pairs[i] for i in positions], [edges[i] for i in positions]
        rows: list[dict[str, Any]] = [tuple_json(term, file.columns) for term, _ in pairs]
        is_scaled = bool(scales) or root_scales is not None
        if is_scaled:
            rows = [{**row, "standardised": scaled.coefficient} for row, (_, scaled) in zip(rows, pairs, strict=True)]
        head = ["interaction", *(["per SD"] if is_scaled else []), "coefficient", "tensor entry", "root"]
        cells = [
            [
                short_edge(list(term.names), _EDGE),
                *([coefficient(row["standardised"])] if is_scaled else []),
                coefficient(row["coefficient"]),
                coefficient(row["value"]),
                str(row["root"]),
            ]
            for row, (term, _) in zip(rows, pairs, strict=True)
        ]
        lines = [*columns_of(head, cells), *more_interactions(left_out), *_unit_notes(file)]
        return Answer({"interactions": rows, "left_out": left_out}, lines)


def _unit_notes(file: RootFile) -> list[str]:
    """What the columns of a list of interactions are in."""
    families = file.families
    if families.common is not None and file.scales:
        words = "of columns divided by their standard deviations among the training rows"
        return [f"(per SD: {words}; coefficient and tensor entry are in units of the columns)"]
    if families.common is not None:
        is_real = any(variable.kind == "real" for variable in file.structure.domain)
        return ["(in units of the columns: the model file does not hold their standard deviations)"] * is_real
    notes = list[str]()
    if "root_scales" in file.tensors:
        words = "every root, or indicator of a level, divided by its standard deviation among the training rows"
        notes.append(f"(per SD: {words}; coefficient and tensor entry are in units of the columns)")
    elif units := [v.name for v in file.structure.domain if v.kind in ("real", "positive")]:
        notes.append(f"({listed(units)} in units of the table: the model file does not hold standard deviations)")
    if families.blocks:
        notes.append("(a category has a coefficient for every level; those of a set are good up to a constant)")
    return notes


def _method(file: RootFile, refit: str | None) -> str:
    """How the coefficients of a model came about, as far as its file says."""
    if not file.info.keys() & {"refit", "l1", "rows"}:
        return "stated coefficients"
    return "penalised regressions" + ("" if refit is None else f", refit {refit!r}")


def model_of(question: Question) -> RootModel:
    """The model with the columns that are no part of it."""
    file: RootFile = question.stored.model
    return RootModel.from_file(file)


def _describe(prediction: RootPrediction, rows: int) -> list[str]:
    lines = [f"target           {prediction.target}", f"rows             {rows:.12g}"]
    if rows:
        lines.append(f"mean prediction  {number_text(float(prediction.mean.mean()))}")
    if prediction.values is None:
        return [*lines, "error            not available (the file has no column of the target)"]
    return [
        *lines,
        f"RMSE             {number_text(prediction.rmse)} (always the mean of the file: "
        f"{number_text(prediction.mean_rmse)})"
        + ("; no better" if (prediction.rmse or 0.0) >= (prediction.mean_rmse or 0.0) else ""),
        f"mean error       {number_text(prediction.mae)}",
        f"log loss         {number_text(prediction.log_loss)} nats",
    ]


FAMILY = RootFamily()
