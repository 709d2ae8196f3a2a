"""What families answer alike at the command line: figures by part, log Z, predictions, probabilities of columns."""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Literal

import pandas as pd
import torch
from tqdm import tqdm

from ...checks import checked_device
from ...data.encoding import label_of
from ...data.observations import Observations
from ...errors import InputError, IntractableError, check_names, check_unique, conflict, out_of_reach, refused
from ...schema import Domain
from ..family import Answer, Family, Question
from ..partition import Cost, LogPartition, no_state
from ..prediction import Imputation, Prediction, beside_figures
from ..scores import Scores
from ..words import PSEUDO, against_majority, columns_of, fixed, gain_sentence, option, plural, shorten, whole
from .options import num_bytes, seconds

# Probabilities of the values of a few columns under a model of any family, given others.

_ANNEALED = ("num_chains", "num_temperatures", "temperatures", "seed", "device")
_OWN = {
    **dict.fromkeys(("num_chains", "num_temperatures", "temperatures", "device"), ("ais",)),
    "seed": ("bounds", "ais"),
    "time_limit": ("bounds",),
    **dict.fromkeys(("max_cells", "memory_limit"), ("auto", "exact", "bounds")),
}
"""Methods of log Z that an option belongs to."""
_BUDGETS = {"max_cells": "max_cells", "memory_limit": "max_memory_bytes"}
"""Arguments of backends that options of log Z give."""
_MAX_CELLS = 2**16
_SHOWN, _WIDTH = 50, 80


def margins(family: Family, question: Question, names: Sequence[str], given: Mapping[str, Any]) -> Answer:
    r"""The table of :math:`q(x_A \mid x_B)`: exact where missing cells can be summed over, else from draws.

    Args:
        family: of the model.
        question: about it; ``draws`` and ``seed`` are used where draws are.
        names: the columns :math:`A`.
        given: codes, or numbers, of the columns :math:`B`.

    Raises:
        InputError: names that are unknown, repeated or among those given, given values that are impossible together,
            or a model without a possible state.
        IntractableError: more than 65,536 cells, or columns of real numbers.
    """
    domain, encoder = question.stored.domain, question.stored.encoder
    check_names(names, domain.names if encoder is None else encoder.names, "names")
    check_unique(names, "names")
    fixed_names = given if encoder is None else {encoder.set_of([name])[0] for name in given}
    for name in names:
        if name in fixed_names:
            raise conflict("given", f"fixes {name!r}, whose distribution is asked for")
    reals = "columns of real numbers have no table of probabilities"
    if encoder is not None and any(encoder.is_continuous(name) for name in names):
        raise out_of_reach("names", reals, "draw rows by sample", code="no-method")
    cells, error = _exact(family, question, names, given), None
    if cells is None:
        # Shares of draws, the largest first
        frame = _draws(family, question, given)
        if encoder is None and any(frame[name].dtype.kind == "f" for name in names):
            raise out_of_reach("names", reals, "draw rows by sample", code="no-method")
        shares = frame.value_counts(subset=list(names)) / len(frame)
        keys: list[Any] = shares.index.tolist()
        cells, error = (
            {tuple(map(label_of, key)): float(share) for key, share in zip(keys, shares, strict=True)},
            question["num_draws"],
        )
    rows: list[dict[str, Any]] = []
    shown: list[list[str]] = []
    for key, p in cells.items():
        spread = 0.0 if error is None else _error_of_share(p, error)
        rows.append({"levels": list(key), "probability": p, "std_error": spread})
        shown.append([*key, fixed(p, 6), *([f"+- {spread:.1g}"] if error else [])])
    # A reader sees the first cells; JSON has all.
    head = beside_figures(dict.fromkeys(names, ()), dict.fromkeys(["probability", *(["error"] if error else [])], ()))
    lines = columns_of(list(head), shown[:_SHOWN])
    if len(rows) > _SHOWN:
        lines.append(f"({plural(len(rows) - _SHOWN, 'more cell')})")
    kind = "exact" if error is None else "estimate"
    return Answer({"names": list(names), "cells": rows, "kind": kind, "draws": error}, lines, _notes_of_draws(error))


def column_margins(family: Family, question: Question, given: Mapping[str, Any]) -> Answer:
    """Probabilities of every column by itself, given some: exact where the family has them, else shares of draws.

    Raises:
        InputError: given values that are impossible.
        IntractableError: a family of numbers.
    """
    domain = question.stored.domain
    if family.data_type != "labels":
        raise out_of_reach("names", "columns of numbers have no table of levels", "name some columns", code="no-method")
    columns, draws = None, None
    if family.has("column_probabilities"):
        try:
            stored, constant = family.condition(question.stored, given) if given else (question.stored, 0.0)
            check_possible(constant, domain, given)
            with possible_given(domain, given):
                others = dict(zip(stored.domain.names, family.column_probabilities(stored), strict=True))
            columns = [others.get(v.name) or [float(i == given[v.name]) for i in range(v.cardinality)] for v in domain]
        except IntractableError:
            columns = None  # of draws
    if columns is None:
        draws, frame = question["num_draws"], _draws(family, question, given)
        shares = [frame[v.name].value_counts() / draws for v in domain]
        pairs = zip(domain, shares, strict=True)
        columns = [[float(share.get(label, 0.0)) for label in v.labels] for v, share in pairs]
    # A column a line of the JSON, a level a line for a reader.
    rows = list[dict[str, Any]]()
    shown = list[list[str]]()
    for variable, probabilities in zip(domain, columns, strict=True):
        errors = [0.0 if draws is None else _error_of_share(p, draws) for p in probabilities]
        levels = list(variable.labels)
        rows.append({"name": variable.name, "levels": levels, "probabilities": probabilities, "std_errors": errors})
        for label, p, error in zip(levels, probabilities, errors, strict=True):
            shown.append([variable.name, label, fixed(p, 6), *([f"+- {error:.1g}"] if draws else [])])
    lines = columns_of(["column", "level", "probability", *(["error"] if draws else [])], shown)
    kind = "exact" if draws is None else "estimate"
    return Answer({"columns": rows, "kind": kind, "draws": draws}, lines, _notes_of_draws(draws))


def check_possible(constant: float, domain: Domain, given: Mapping[str, int]) -> None:
    """Refuse columns that are fixed where nothing is possible: what they add to log Z is minus infinity."""
    if constant == -math.inf:
        words = shorten(", ".join(f"{name}={domain[name].labels[code]}" for name, code in given.items()), _WIDTH)
        problem = f"{words} has probability zero in the model"
        raise refused("the fixed columns", problem, "give other values", code="impossible")


@contextmanager
def possible_given(domain: Domain, given: Mapping[str, int]) -> Generator[None]:
    """The same of a sum that finds no possible state beside them."""
    try:
        yield
    except InputError as error:
        if error.code == "impossible":
            check_possible(-math.inf if given else 0.0, domain, given)
        raise


def _error_of_share(share: float, draws: int) -> float:
    """Binomial error of a share of independent draws; of none or all that with half a draw more on both sides.

    So a level that no draw has is not called certain (the mean under Jeffreys' prior).
    """
    p = share if 0 < share < 1 else (share * draws + 0.5) / (draws + 1)
    return math.sqrt(p * (1 - p) / draws)


def _notes_of_draws(draws: int | None) -> list[str]:
    return [] if draws is None else [f"the probabilities are shares of {draws:,} draws, with their standard errors"]


def _draws(family: Family, question: Question, given: Mapping[str, Any]) -> pd.DataFrame:
    """Rows of the model, given some columns."""
    unset = {known.name: known.unset for known in family.options("sample")}
    values = {**unset, "number": question["num_draws"], "seed": question["seed"], "given": given}
    frame = family.draw(replace(question, values=values)).frame
    assert frame is not None
    return frame


def _exact(
    family: Family, question: Question, names: Sequence[str], given: Mapping[str, Any]
) -> dict[tuple[str, ...], float] | None:
    """Probabilities from the likelihoods of rows whose other cells are missing; None where these are out of reach."""
    domain = question.stored.domain
    if family.data_type != "labels" or family.row_log_likelihood is None:
        return None
    variables = [domain[name] for name in names]
    if math.prod(v.cardinality for v in variables) > _MAX_CELLS:
        raise out_of_reach("names", f"a table of more than {_MAX_CELLS:,} cells", "ask for fewer columns")
    # One row for every cell of the table, the other columns unknown or given.
    states = list(product(*(range(v.cardinality) for v in variables)))
    codes = torch.full((len(states), len(domain)), -1, dtype=torch.long)
    codes[:, list(domain.indices(names))] = torch.tensor(states).reshape(len(states), len(names))
    for name, code in given.items():
        codes[:, domain.index(name)] = code
    try:
        log_likelihood = family.row_log_likelihood(question.stored, Observations.from_tensor(codes, domain))
    except IntractableError:
        return None  # neither a likelihood nor a pseudo-likelihood of rows that miss so much
    # An approximate likelihood would not sum to one: draws say their error.
    if log_likelihood.kind != "likelihood" or not log_likelihood.is_exact:
        return None
    if not bool((log_likelihood.values > -math.inf).any()):  # NaN where log Z is minus infinity
        check_possible(-math.inf if given else 0.0, domain, given)
        raise no_state()
    labels = [tuple(v.labels[k] for v, k in zip(variables, state, strict=True)) for state in states]
    return dict(zip(labels, torch.softmax(log_likelihood.values, 0).tolist(), strict=True))


# What families answer alike: figures by part, lines for a reader, log Z by the options of a command, predictions.

_LEVEL = 0.99  # of each limit of an annealed estimate
_TOGETHER = 0.95  # of both limits of an estimate between bounds


def by_part(parts: Mapping[str, Any], **paths: str | Callable[[Any], Any]) -> dict[str, dict[str, Any]]:
    """Figures of every part by name, None of an empty part: attributes along a path, or what a function reads."""
    readers = {name: attrgetter(path) if isinstance(path, str) else path for name, path in paths.items()}
    return {
        name: {part: None if held is None else read(held) for part, held in parts.items()}
        for name, read in readers.items()
    }


def log_partition_json(result: LogPartition | None) -> dict[str, Any] | None:
    """The keys of a normalising constant, or None where there is none."""
    if result is None:
        return None
    found = result.to_json()
    return {name: found[name] for name in ("value", "std_error", "kind", "lower", "upper", "lower_bound", "verdict")}


@contextmanager
def drawn_rows(question: Question, how: str) -> Generator[Callable[[int], Any]]:
    """A bar for the rows that are drawn, which a number of rows advances."""
    with tqdm(total=question["number"], unit="row", desc=how, disable=not question.progress, leave=False) as bar:
        yield bar.update


def annealed_rows_note(burn_in: int) -> str:
    """What rows that are ends of annealed Gibbs chains are worth."""
    return (
        "the rows are approximate: each is the state of a Gibbs chain of its own, annealed and then burnt in by "
        f"{burn_in} sweeps; compare with a longer {option('burn_in')}"
    )


def is_default_log_z(question: Question) -> bool:
    """Whether nothing was said of how log Z is found."""
    return question["method"] == "auto" and all(question[name] is None for name in _ANNEALED)


def log_z_budgets(question: Question) -> dict[str, int]:
    """Budgets of exact sums or of bounds, by their arguments, as far as options say them."""
    given = {argument: question.values.get(name) for name, argument in _BUDGETS.items()}
    given["max_memory_bytes"] = num_bytes(given["max_memory_bytes"])
    return {name: value for name, value in given.items() if value is not None}


def log_z_of(
    question: Question, energy: Any, annealed: Any, exactly: Any, starts: Any = None, bounds: Any = None
) -> LogPartition:
    """Log Z by the method asked for, each by a class of backends, or else by the function ``exactly`` of the energy.

    An annealed estimate looks for modes from the rows ``starts`` (n, d), too. A family without bounds says so.
    """
    method = question["method"]
    if method == "bounds" and bounds is None:
        problem = "log Z of this family has no bounds"
        raise out_of_reach("method", problem, f"{option('method', 'ais')} estimates it", code="no-method")
    for name, methods in _OWN.items():
        if question.values.get(name) is not None and method not in methods:
            there = [choice for choice in methods if choice != "bounds" or bounds is not None] or methods
            wanted = " or ".join(option("method", choice) for choice in there)
            raise conflict(name, f"belongs to {wanted}, received {option('method', method)}")
    if method == "bounds":
        # Log Z between bounds, as the options describe.
        limit = seconds(question["time_limit"])
        backend = bounds(
            **log_z_budgets(question), time_limit=limit, seed=question["seed"] or 0, progress=question.progress
        )
        try:
            return backend.log_partition(energy)
        except IntractableError as error:
            # The budgets of the backend as options, with the number of cells that would fit.
            hint = error.hint or f"raise {bounds.__name__}(max_cells=...)"
            for name, argument in _BUDGETS.items():
                hint = hint.replace(f"{bounds.__name__}({argument}=...)", option(name)).replace(argument, option(name))
            raise error.replace(hint=hint) from error
    if method == "ais":
        backend, device = _annealed(question, annealed, starts), question["device"]
        if device is None:
            return backend.log_partition(energy)
        return backend.log_partition(energy.to(device=checked_device(device, "device"))).to("cpu")
    try:
        return exactly(energy)
    except IntractableError as error:
        hint = f"{option('method', 'ais')} estimates log Z, with an error bar"
        if bounds is not None:
            hint += f", and {option('method', 'bounds')} estimates it between bounds"
        raise error.replace(hint=hint) from error


def log_z_of_nothing(why: str) -> LogPartition:
    """Log Z of minus infinity, which takes no sum where it is known for a reason."""
    value = torch.tensor(-math.inf, dtype=torch.float64)
    return LogPartition(value, "exact", 0.0, None, value, value, Cost(0, 0, 0, 0, True, why, why), why)


def _annealed(question: Question, kind: Any, starts: Any) -> Any:
    """The backend that the options describe."""
    if question["temperatures"] and question["num_temperatures"] is not None:
        raise conflict("num_temperatures", f"cannot be combined with {option('temperatures', 'adaptive')}")
    given = {name: question[name] for name in ("num_chains", "num_temperatures", "temperatures")}
    return kind(
        **{name: value for name, value in given.items() if value is not None},
        seed=question["seed"] or 0,
        progress=question.progress,
        starts=starts if starts is not None and len(starts) else None,
    )


def describe_log_z(result: LogPartition) -> list[str]:
    """Lines that say what log Z is, how wrong it may be, and the verdict."""
    value = f"log Z = {float(result.value):.10g}"
    if result.kind == "exact":
        return [f"{value} ({result.kind}, {result.method})"]
    error = float(result.std_error)
    shown = f"+- {error:.2g}" if math.isfinite(error) else "+- unknown"
    is_bounded = result.upper_bound is not None
    noun, of_limits = ("draw", f"{_TOGETHER:.0%}") if is_bounded else ("chain", f"one-sided, {_LEVEL:.0%} each")
    ess = "unknown" if result.ess is None else f"{float(result.ess):.4g}"
    ess = ess if result.ess is None else f"{ess} {noun}{'s' * (ess != '1')}"
    bound = [] if result.lower_bound is None else [f"lower bound            {_limit(result.lower_bound)} (states met)"]
    if is_bounded:
        bound = [f"bounds                 {_limit(result.lower_bound)} to {_limit(result.upper_bound)} (certain)"]
    what = "an estimate between bounds" if is_bounded else "an estimate, low on average"
    return [
        f"{value} {shown} ({result.kind}: {what}; {result.method})",
        f"limits                 {_limit(result.lower)} to {_limit(result.upper)} ({of_limits})",
        *bound,
        f"effective sample size  {ess}",
        f"verdict                {result.verdict}",
        *(f"note: {note}" for note in result.notes),
    ]


def _limit(value: Any) -> str:
    number = float(value)
    return "unknown" if math.isnan(number) else f"{number:.8g}"


def number_text(value: float | None, missing: str = "missing cells") -> str:
    """Six significant digits, or why there is no number."""
    if value is None:
        return f"not available ({missing})"
    return "infinite" if math.isinf(value) else f"{value:.6g}"


def figure_line(name: str, value: float | None, missing: str = "missing cells", error: float | None = None) -> str:
    """A line of ``score``: a figure in nats with its standard error where there is one, or why there is none."""
    unit = "" if value is None else " nats"
    spread = "" if error is None else f" (standard error over rows {number_text(error)})"
    return f"{name:<20}{number_text(value, missing)}{unit}{spread}"


def score_answer(
    question: Question,
    score: Callable[[Any], Scores],
    *,
    noun: str,
    has_reference: bool,
    measure: Literal["nll", "pseudo_nll"] = "nll",
    log_z: LogPartition | None = None,
    missing: str = "missing cells",
    impossible: str = "a combination that the model gives probability zero",
    more: Mapping[str, str] = MappingProxyType({}),
    notes: Sequence[str] = (),
) -> Answer:
    """What ``score`` says of rows, and of those parts of them that a fit saw.

    Args:
        question: with the rows.
        score: scores of rows.
        noun: what the model is called.
        has_reference: whether the model's file holds the independent columns that the gain is over.
        measure: what the gain is a difference of, which comes first.
        log_z: that the likelihoods rest on.
        missing: why there is no likelihood where there is none.
        impossible: what rows of probability zero have.
        more: attributes of the scores, with the words of their lines; empty words for figures that are in JSON alone.
        notes: sentences on what the answer rests on.
    """
    scores = score(question.rows)
    names = ["gain", "gain_std_error", "nll", "nll_std_error", "kl", "pseudo_nll", "pseudo_nll_std_error", *more]
    # All figures for programs, those of a row as they are.
    json: dict[str, Any] = {
        name: whole(getattr(scores, name)) for name in ("rows", "impossible_rows", "approximate_rows")
    }
    json |= {name: getattr(scores, name) for name in names}
    json["independent_kl"] = scores.reference_kl if measure == "nll" else None
    of_log_z = ("std_error", "kind", "method", "verdict")
    json |= {f"log_z_{name}": None if log_z is None else getattr(log_z, name) for name in of_log_z}
    json["log_z_notes"] = [] if log_z is None else list(log_z.notes)
    if log_z is not None:
        json["log_z_std_error"] = float(log_z.std_error)
    # The gain first, then the score that it is of.
    first = "The gain over independent columns is not known: the model file does not hold their frequencies."
    if has_reference:
        what = [PSEUDO] if measure == "pseudo_nll" else []
        first = gain_sentence("file's", noun, scores.gain, scores.gain_std_error, *what)
    lines = [first, f"rows                {scores.rows:.12g}"]
    lines += question.left_out("with them the NLL and the pseudo-NLL would be infinite")
    if scores.impossible_rows:
        lines.append(f"impossible rows     {scores.impossible_rows:.12g} ({impossible})")
    likelihood = [figure_line("NLL per row", scores.nll, missing, scores.nll_std_error)]
    pseudo = [figure_line("pseudo-NLL per row", scores.pseudo_nll, error=scores.pseudo_nll_std_error)]
    lines += [*likelihood, *pseudo] if measure == "nll" else [*pseudo, *likelihood]
    lines += [figure_line(words, json[name]) for name, words in more.items() if words and json[name] is not None]
    lines += describe_log_z(log_z) if log_z is not None and log_z.kind != "exact" else []
    shown = ["gain", measure] if has_reference else [measure]

    def of_part(part: Any) -> dict[str, float | None]:
        scores = score(part)
        return {name: getattr(scores, name) for name in ("gain", "gain_std_error", "nll", "pseudo_nll")}

    notes = [*notes, *_chains_note(int(scores.approximate_rows), "scored", "pseudo-Gibbs")]
    return Answer(json=json, lines=lines, notes=notes, of_part=of_part, shown=shown)


def _chains_note(number: int, verb: str, how: str) -> list[str]:
    """A note on rows that needed Markov chains of a kind."""
    if not number:
        return []
    were, their = ("was", "its") if number == 1 else ("were", "their")
    problem = f"{plural(number, 'row')} {were} {verb} approximately"
    instead = "" if verb == "scored" else f"; {option('method', 'exact')} refuses instead"
    return [f"{problem}: {their} missing cells came from {how} chains that hold the known cells{instead}"]


def prediction_answer(
    question: Question, predicted: Callable[[Observations], Prediction], how: str = "Gibbs"
) -> Answer:
    """What ``predict`` says of a column with levels; ``how`` names the chains that rows may have needed."""
    prediction = predicted(question.rows)
    approximate = int((~prediction.is_exact & prediction.is_predicted).sum())
    names = ("target", "accuracy", "majority_accuracy", "majority_p_value", "log_loss", "class_accuracy", "kind")
    # Rows that could not be predicted count in no figure.
    json = {
        **{name: getattr(prediction, name) for name in names},
        "rows": whole(prediction.rows),
        "predicted_rows": int(prediction.is_predicted.sum()),
        "impossible_rows": int((~prediction.is_predicted).sum()),
        "approximate_rows": approximate,
    }
    left_out = question.left_out("they have no prediction, and none of the figures holds for them")
    return Answer(
        json=json,
        lines=[*_describe_prediction(prediction, json), *left_out],
        notes=_chains_note(approximate, "predicted", how),
        frame=prediction.to_pandas(),
        of_part=lambda part: {"accuracy": predicted(part).accuracy},
        shown=["accuracy"],
    )


def completion_answer(completed: Imputation, how: str) -> Answer:
    """Rows with their cells filled, with notes on those that chains filled and those that could not be."""
    lost = int((~completed.is_completed).sum())
    notes = _chains_note(int((~completed.is_exact & completed.is_completed).sum()), "filled", how)
    if lost:
        notes.append(f"not filled: {plural(lost, 'row')} whose known cells have probability zero together")
    return Answer(frame=completed.to_pandas(), notes=notes)


def _describe_prediction(prediction: Prediction, figures: Mapping[str, Any]) -> list[str]:
    """Lines for a reader."""
    lines = [f"target             {prediction.target}", f"rows               {prediction.rows:g}"]
    if not bool(prediction.is_predicted.all()):
        number = plural(figures["impossible_rows"], "row")
        lines.append(f"not predicted      {number} whose other cells have probability zero together")
    # Without known values there is nothing to compare with.
    if not prediction.rows:
        shares = torch.bincount(prediction.codes[prediction.is_predicted], minlength=len(prediction.labels)).tolist()
        return [
            *lines,
            "accuracy           not available (no row has a known value of the target)",
            *(
                f"predicted          {label}: {plural(n, 'row')}"
                for label, n in zip(prediction.labels, shares, strict=True)
            ),
        ]
    words = against_majority(figures)
    lines += [
        f"accuracy           {prediction.accuracy:.4f}",
        f"majority accuracy  {prediction.majority_accuracy:.4f}" + (f" (the accuracy is {words})" if words else ""),
        f"log loss           {number_text(prediction.log_loss)} nats",
    ]
    # How many rows of each level are recognised.
    totals = prediction.confusion.sum(1).tolist()
    for (label, share), total in zip(prediction.class_accuracy.items(), totals, strict=True):
        if total:
            lines.append(f"  {label}: {share:.4f} of {total:g} recognised")
    return lines
