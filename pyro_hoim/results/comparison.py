"""Models beside each other: sizes, likelihoods, criteria, tests of nested ones, and gains on other rows."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Unpack

import pandas as pd
import torch

from ..core.family import family_of_model
from ..core.operations import interactions, scored_rows, stored_model
from ..core.scores import Figures, mean_gain
from ..data.columns import RowOptions
from ..data.observations import Observations
from ..errors import InputError, InputTypeError, IntractableError, check_type, conflict, none_received, other_domain
from .table import SummaryTable

_COLUMNS = ("log_likelihood", "log_likelihood_bound", "log_pseudo_likelihood", "AIC", "BIC", "deviance", "df")


def figures_of(model: object) -> Figures:
    """Size and fit of a model of any family, as far as the family knows them."""
    family = family_of_model(model)
    if family.has("figures"):
        return family.figures(model)
    _, stored = stored_model(model)
    return Figures(num_variables=len(stored.domain), num_interactions=len(interactions(stored)))


def compare(models: Mapping[str, object], data: Any = None, **options: Unpack[RowOptions]) -> SummaryTable:
    r"""Compare models of the same columns, of one family or of several.

    .. math:: \mathrm{AIC} = 2k - 2\ell, \qquad \mathrm{BIC} = k \log N - 2\ell, \qquad
        G^2(\mathrm{small} \mid \mathrm{big}) = 2(\ell_{\mathrm{big}} - \ell_{\mathrm{small}})

    AIC and BIC are of maximum-likelihood estimates from whole counts (under weights they change with the unit of the
    weights), and stand empty for others. A model is tested against the largest of the others that is nested in it and
    was fitted to the same rows. P-values are chosen as by :func:`~pyro_hoim.log_linear.likelihood_ratio_test`, which
    may take four seconds each; ``attrs["notes"]`` say where they are not those of chi-square. Loaded models hold no
    rows: they are tested by chi-square or Bartlett's factor where the expected counts allow it, and else the notes say
    that the test takes the rows.

    Args:
        models: results of fits or loaded models, by name.
        data: rows to compare the models on, best such as no model was estimated from: a data frame,
            :class:`~pyro_hoim.Observations` or a :class:`~pyro_hoim.CountTable`.
        options: of a data frame ``weights``, ``count``, ``missing`` and ``missing_values``, as :func:`pyro_hoim.score`
            has them.

    Returns:
        One row for every model, in the order given: ``family``, ``parameters``, ``rows``, ``log_likelihood`` (or
        ``log_pseudo_likelihood``, or ``log_likelihood_bound``, which it is at least) of the rows that it was estimated
        from, ``AIC``, ``BIC``, ``deviance`` and ``df``; ``against``, ``statistic``, ``test_df`` and ``p_value`` of the
        likelihood-ratio test; with data ``mean_log_likelihood`` in nats a row, ``gain`` over the first model and its
        standard error over rows ``gain_std_error``, and ``impossible_rows``, how many have probability zero, where a
        model has any: its mean is minus infinity. These are of the likelihood where all models have one, else for all
        of the pseudo-likelihood; ``attrs["notes"]`` say which, and what is not comparable. Empty columns are left out.

    Raises:
        InputError: no model, models of different columns, or rows of others.
        InputTypeError: what no family knows.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph, Observations, fit
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> rows = Observations.from_table(domain, [[30, 10], [20, 40]])
        >>> fits = {str(k): fit(InteractionHypergraph.from_order(domain, k), rows) for k in (1, 2)}
        >>> compare(fits)[["parameters", "statistic"]].round(3).to_dict("list")
        {'parameters': [2, 3], 'statistic': [nan, 17.261]}
    """
    check_type(models, Mapping, "models", "models by name")
    if not models:
        raise none_received("models", "one model at least")
    # Models are comparable where they are of the same columns.
    known = {str(name): (*stored_model(model), figures_of(model)) for name, model in models.items()}
    for (_, one, _), (_, other, _) in pairwise(known.values()):
        if set(one.domain.names) != set(other.domain.names):
            raise other_domain("models", "models of the same columns", ", ".join(other.domain.names[:6]))
    rows = [
        {
            "family": family.short,
            "parameters": figures.num_parameters,
            "rows": figures.num_rows,
            "log_likelihood": figures.log_likelihood,
            "log_likelihood_bound": figures.log_likelihood_bound,
            "log_pseudo_likelihood": figures.log_pseudo_likelihood,
            **_criteria(figures),
            "deviance": figures.deviance,
            "df": figures.df,
        }
        for family, _, figures in known.values()
    ]
    notes = _notes({name: figures for name, (_, _, figures) in known.items()})
    frame = pd.DataFrame(rows, index=pd.Index(list(known), name="model"))
    # Tests of nested models, and on further rows the gains, where they can be had.
    tests, reasons = _tests(models)
    frame = frame.join(tests)
    if data is None and options:
        raise conflict("data", f"{', '.join(options)} can only be said of a data frame, and data= names none")
    if data is not None:
        gains, measure = _on_rows(models, data, options)
        frame = frame.join(gains)
        notes.append(measure)
    for name in ("parameters", "rows", *_COLUMNS, "statistic", "test_df", "p_value"):
        if name in frame:
            frame[name] = pd.to_numeric(frame[name])
    table = SummaryTable(frame.dropna(axis="columns", how="all"))
    table.attrs["notes"] = [*notes, *reasons]
    return table


def _criteria(found: Figures) -> dict[str, float | None]:
    """AIC and BIC of a maximum-likelihood estimate."""
    if not found.is_maximum or found.log_likelihood is None or found.num_parameters is None or not found.num_rows:
        return {"AIC": None, "BIC": None}
    loss, size = -2 * found.log_likelihood, found.num_parameters
    return {"AIC": loss + 2 * size, "BIC": loss + math.log(found.num_rows) * size}


def _notes(figures: Mapping[str, Figures]) -> list[str]:
    """What of the likelihoods is not comparable."""
    notes = list[str]()
    if len({round(found.num_rows, 6) for found in figures.values() if found.num_rows is not None}) > 1:
        notes.append("the models were estimated from different numbers of rows; compare them on data=")
    other = [name for name, found in figures.items() if not found.is_maximum]
    if other:
        what = "AIC, BIC and deviance are of maximum-likelihood estimates from whole counts"
        notes.append(f"{what}, which these are not: {', '.join(other)}")
    return notes


def _tests(models: Mapping[str, object]) -> tuple[pd.DataFrame, list[str]]:
    """Likelihood-ratio tests of every model against the largest other one in it, and why there is none."""
    figures = {name: figures_of(model) for name, model in models.items()}
    rows, reasons = dict[str, dict[str, Any]](), list[str]()
    for name, model in models.items():
        family = family_of_model(model)
        smaller = [other for other in models if _is_smaller(figures[other], figures[name])]
        why = ""
        # Against the largest of the smaller ones that is nested in it.
        for other in sorted(smaller, key=lambda n: figures[n].num_parameters or 0, reverse=True):
            if not family.has("nested") or family_of_model(models[other]) is not family:
                continue
            try:
                statistic, df, p_value, how = family.nested(models[other], model)
            except (InputError, InputTypeError, IntractableError) as error:
                called = {"small": str(other), "big": str(name)}
                problem = re.sub(r"\b(small|big)\b", lambda word, called=called: called[word[0]], error.problem or "")
                why = why or f"{name} is not tested against {other}: {problem}"
                continue
            rows[str(name)] = {"against": other, "statistic": statistic, "test_df": df, "p_value": p_value}
            reasons += [f"{name} against {other}, {how}"] if how else []
            break
        else:
            reasons += [why] if why else []
    columns = ["against", "statistic", "test_df", "p_value"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns), reasons


def _is_smaller(one: Figures, other: Figures) -> bool:
    """Whether a model may lie within another: fewer of its parameters, or of its interactions, are estimated.

    Parameters are those that the rows identify, of which a larger model may have as few, where others are infinite.
    """
    if one.num_parameters is None or other.num_parameters is None:
        return False
    if one.num_parameters < other.num_parameters or None in (one.log_likelihood, other.log_likelihood):
        return one.num_parameters < other.num_parameters
    is_within = one.num_interactions < other.num_interactions
    return is_within and (one.log_likelihood or 0) <= (other.log_likelihood or 0)


def _on_rows(models: Mapping[str, object], data: Any, options: RowOptions) -> tuple[pd.DataFrame, str]:
    """Mean log-likelihoods of rows, and gains over the first model row by row."""
    scored = {name: scored_rows(model, data, **options) for name, model in models.items()}
    kinds = {rows.kind for rows, _ in scored.values()}
    # One measure for all, else they are not comparable.
    if len(kinds) > 1:
        scored = {name: scored_rows(model, data, pseudo=True, **options) for name, model in models.items()}
    measure = "pseudo-likelihood" if "pseudo-likelihood" in kinds else "likelihood"
    lines = dict[str, dict[str, Any]]()
    first = next(iter(scored.values()))[0].values.double()
    # Rows without weight take no part, though they may be impossible.
    for name, (scores, read) in scored.items():
        counts = getattr(read, "counts", None)
        weights = counts.double() if isinstance(counts, torch.Tensor) else torch.ones(len(scores.values)).double()
        squares = read.squared_weights if isinstance(read, Observations) else weights
        is_counted, values = weights > 0, scores.values.double()
        mean = float((weights[is_counted] * values[is_counted]).sum() / weights.sum())
        gain, error = mean_gain(values[is_counted], first[is_counted], weights[is_counted], squares[is_counted])
        lost = float(weights[values == -math.inf].sum()) or None
        lines[str(name)] = {"mean_log_likelihood": mean, "gain": gain, "gain_std_error": error, "impossible_rows": lost}
    estimated = [str(name) for name, (scores, _) in scored.items() if not scores.is_exact]
    sentence = f"mean log {measure} of the rows of data, in nats a row; gain over {next(iter(scored))}"
    sentence += f"; estimated for {', '.join(estimated)}" if estimated else ""
    frame = pd.DataFrame.from_dict(lines, orient="index")
    if bool(frame["impossible_rows"].notna().to_numpy().any()):
        frame["impossible_rows"] = frame["impossible_rows"].fillna(0)
    return frame, sentence
