"""Estimators of scikit-learn over one joint model: density, classifier, and imputer of missing cells."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import pandas as pd

from ..core.family import Family, family_named
from ..core.operations import READING
from ..core.scores import RowLogLikelihood
from ..core.words import plural
from ..data.bins import is_rule
from ..data.columns import BinRules, ColumnOptions
from ..data.counts import CountTable
from ..data.encoding import label_of
from ..data.frames import as_frame, is_frame
from ..errors import (
    ConvergenceWarning,
    CostWarning,
    DataWarning,
    InputError,
    caller_level,
    check_choice,
    check_names,
    check_type,
    check_whole,
    conflict,
    is_whole,
    none_received,
    refused,
    unexpected,
)
from ..families import DEFAULT, impute, predict, sample
from ..log_linear.conditional import ClassInteractions, fit_conditional, fit_scored
from ..log_linear.file import GIVEN_COLUMNS
from ..log_linear.fitting.duration import duration_words, incomplete_seconds
from ..log_linear.fitting.penalties import L2, Conjugate
from ..log_linear.named_priors import Prior
from ..log_linear.training.ridge import InteractionRidge
from ..planning import PATIENCE
from ..results.fitted import LoadedModel
from ..schema import Domain, Variable
from ..structure.hypergraph import InteractionHypergraph
from .columns import Columns, Unknown, has_fractions

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, DensityMixin, OneToOneFeatureMixin, TransformerMixin
    from sklearn.utils import check_array, check_consistent_length, check_random_state, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError as error:
    raise ImportError("the estimators need scikit-learn 1.6 or later: pip install 'pyro-hoim[sklearn]'") from error


_NETWORK, _DAY = "dependency-network", 86400.0
_ENTRY, _LONG = 2e-6, 10.0  # seconds of a pair of levels of numbers; seconds that are said before
_CONDITIONAL_RULE = "spread:32"
"""How numbers are cut, given which a class is fitted with bins="auto"; a joint distribution takes the rule of `fit`."""
_CONDITIONAL_PRIORS = "ridge:2", "ridge:1"
"""Of a class of two levels, and of more: the penalty of scikit-learn's logistic regression with C = 1."""


# What the estimators share: parameters, rows of scikit-learn's kinds, and a model of any family by the registry.


@dataclass(kw_only=True, eq=False, repr=False)
class InteractionEstimator(BaseEstimator):
    """Parameters and rows of the estimators; see these."""

    family: str = "log-linear"
    order: int | None = None
    edges: Any = None
    prior: str | None = None
    options: Mapping[str, Any] | None = None
    bins: int | BinRules = "auto"
    exclude: Collection[str] = ()
    allow: Collection[str] = ()
    missing_values: Collection[str] = ("",)
    handle_unknown: Unknown = "error"
    random_state: Any = None

    def __sklearn_tags__(self) -> Any:
        tags: Any = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.input_tags.allow_nan = True
        return tags

    @property
    def _family(self) -> Family:
        """The family, once the parameters have been checked."""
        family = family_named(self.family)
        if not family.has("estimate"):
            raise family.lack("estimate", "is fitted from files alone", argument="family")
        check_choice(self.handle_unknown, ("error", "missing"), "handle_unknown")
        if is_whole(self.bins):
            check_whole(self.bins, "bins", 2)
        if self.options is not None:
            check_type(self.options, Mapping, "options", "a mapping of options to values")
        return family

    def _estimate(self, family: Family, rows: Any) -> Any:
        """A fit of rows with the parameters that were given, each of which the family must know."""
        # Parameters of the estimator, and options that the family knows.
        given = {name: getattr(self, name) for name in ("order", "edges", "prior") if getattr(self, name) is not None}
        for name in set(given) & set(self.options or ()):
            raise conflict("options", f"{name!r} is a parameter of its own")
        given |= dict(self.options or {})
        parameters = inspect.signature(family.estimate).parameters.values()
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            known = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "seed"]
            for name in given:
                if name not in known and (hint := family.hint(name)) is not None:
                    raise refused(name, f"not for a {family.name}", hint, code="conflict")
            check_names(given, known, "options", noun=f"option of a {family.name}")
        return family.estimate(rows, seed=self._seed(), **given)

    def _seed(self) -> int:
        """A seed from ``random_state``."""
        try:
            random = check_random_state(self.random_state)
        except ValueError as error:
            expected = "None, a whole number from 0 to 4294967295, or a numpy RandomState"
            raise unexpected("random_state", expected, self.random_state) from error
        return int(random.randint(2**31 - 1))

    def _frame(self, X: Any, *, reset: bool) -> pd.DataFrame:
        """Rows as a data frame, their columns checked, or remembered where this is a fit."""
        # Data frames keep their types and names, arrays are checked by scikit-learn.
        if is_frame(X):
            frame: Any = as_frame(X, "X")
            validate_data(self, frame, reset=reset, skip_check_array=True)
            if not len(frame) or not frame.shape[1]:
                raise none_received("X", "at least one row and one column")
            return frame
        array: Any = validate_data(self, X, dtype=None, ensure_all_finite="allow-nan", reset=reset)
        return pd.DataFrame(array, columns=[f"x{i}" for i in range(array.shape[1])])

    def _weights(self, sample_weight: Any, frame: pd.DataFrame) -> np.ndarray:
        """Weights (N,) of rows, positive in sum; ones where none are given."""
        weights: Any = _check_sample_weight(sample_weight, frame, dtype=np.float64, ensure_non_negative=True)
        if not weights.sum() > 0:
            raise none_received("sample_weight", "at least one positive weight")
        return weights

    def _fit_labels(self, frame: pd.DataFrame, weights: np.ndarray, more: Any = None) -> None:
        """Learn levels and a model from the rows of positive weight; ``more`` is a further variable with codes."""
        # Rows of the family's kind that count.
        family = self._family
        if family.data_type != "labels":
            problem = f"a {family.name} has numbers, and this estimator needs levels"
            raise refused("family", problem, "InteractionDensity takes it", code="conflict")
        is_counted = weights > 0
        frame, weights = frame.loc[is_counted], weights[is_counted]
        is_joint = self.order is not None or self.edges is not None or self.options
        is_conditional = more is not None and family.short == DEFAULT and not is_joint
        # Their levels, and the model of these.
        self._columns, codes = Columns.learn(frame, weights, self._options(frame, is_conditional))
        self.columns_, variable, reading = self._columns.readings, None, self._columns.reading()
        if more is not None:
            variable, target = more
            if variable.name in [str(name) for name in frame.columns]:
                raise refused("target", f"X has a column {variable.name!r}", "give another name", code="repeated-name")
            codes = np.column_stack([codes, target[is_counted]])
        rows = self._columns.observations(codes, weights, variable)
        self.domain_, self._interactions = rows.domain, None
        if is_conditional:
            scores = [column.scores for column in self._columns.columns]
            self._interactions = _conditional(rows.domain, codes, weights, self.prior, scores)
            stored = family.stored(self._interactions.energy(rows.domain))
            assert stored is not None
            status = "converged" if self._interactions.is_converged else "max_iterations"
            info = {**stored.info, "rows": float(weights.sum()), "status": status}
            info |= {GIVEN_COLUMNS: rows.domain.names[-1], **({"reading": reading} if reading else {})}
            self.result_ = LoadedModel(stored.kind, replace(stored.model, info=info), rows.domain, info)
            return
        family = self._affordable(family, rows)
        self._model_family = family
        self.result_ = self._estimate(family, rows)
        object.__setattr__(self.result_, READING, reading)  # so that its file reads numbers, too

    def _affordable(self, family: Family, rows: Any) -> Family:
        """The family, or a dependency network where nothing was said and to sum over missing cells takes too long."""
        is_default = family.short == DEFAULT and self.options is None and self.prior is None
        is_default &= self.order is None and self.edges is None
        if not is_default or not rows.has_missing or getattr(self, "strategy", "draw") != "draw":
            return family
        graph = InteractionHypergraph.from_order(rows.domain, min(2, len(rows.domain)))
        seconds = incomplete_seconds(graph, rows.num_rows)
        if seconds <= PATIENCE:
            return family
        long = "are out of reach" if seconds > _DAY else f"take very roughly {duration_words(seconds)}"
        problem = f"sums over missing cells of all pairs {long}, so this is family='{_NETWORK}', which takes a second"
        warnings.warn(CostWarning(f"{problem}; order=2 asks for all pairs all the same"), stacklevel=caller_level())
        return family_named(_NETWORK)

    def _options(self, frame: pd.DataFrame, is_conditional: bool) -> ColumnOptions:
        """How the columns of a data frame are read: by the rule of every function that takes one.

        Numbers with fractions are cut also where they have few values for their rows, as other rows have others.
        """
        expected = "auto, refuse, a whole number of levels, a rule such as 'quantile:4', or rules by column"
        if isinstance(self.bins, str) and self.bins not in ("auto", "refuse") and not is_rule(self.bins):
            raise unexpected("bins", expected, self.bins, code="unknown-choice")
        by_column: Any = {} if is_whole(self.bins) or isinstance(self.bins, str) else self.bins
        check_type(by_column, Mapping, "bins", expected)
        rule: Any = by_column.get("*", "auto") if by_column is self.bins else self.bins
        if rule == "auto" and is_conditional:
            rule = _CONDITIONAL_RULE
        rule = f"quantile:{rule}" if is_whole(rule) else rule
        bins: Any = dict(by_column)
        if rule != "refuse":
            columns = enumerate(named(frame).columns)
            names = [name for i, name in columns if name not in self.allow and has_fractions(frame.iloc[:, i])]
            bins = {**dict.fromkeys(names, rule), **bins, "*": rule}
        return ColumnOptions(bins=bins, exclude=self.exclude, allow=self.allow, missing_values=self.missing_values)

    def _numbers(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Columns of numbers, for a family that has no levels."""
        frame = named(frame)
        check_names(self.exclude, list(frame.columns), "exclude", noun="column")
        return frame.drop(columns=list(self.exclude))

    def _rows(self, X: Any, more: Variable | None = None) -> tuple[pd.DataFrame, Any]:
        """Rows of another table with the columns of the fit, and the same as observations; ``more`` is missing."""
        check_is_fitted(self, "result_")
        frame = self._frame(X, reset=False)
        if not hasattr(self, "_columns"):
            return frame, CountTable(self.domain_, self._numbers(frame).to_numpy(dtype=float))
        unknown: Any = self.handle_unknown
        codes = self._columns.read(frame, unknown)
        if more is not None:
            codes = np.column_stack([codes, np.full(len(codes), -1)])
        return frame, self._columns.observations(codes, more=more)


def named(frame: pd.DataFrame) -> pd.DataFrame:
    """The data frame with names of text."""
    return frame.set_axis([str(name) for name in frame.columns], axis=1)


def _as_array(table: pd.DataFrame) -> np.ndarray:
    """One array of columns that all have one type, or hold objects."""
    return table.to_numpy() if len(set(table.dtypes)) == 1 else table.astype(object).to_numpy()


# Classes given the columns, by their conditional likelihood or from a joint distribution.


def _conditional(
    domain: Domain, codes: np.ndarray, weights: np.ndarray, prior: str | None, scores: Sequence[np.ndarray | None]
) -> ClassInteractions:
    """The interactions of the class, the last variable, with every column of codes (N, d + 1), of given scores."""
    # The strengths that a prior has for pairs with the class.
    *names, target = domain.names
    graph = InteractionHypergraph(domain, [(target,), *((name, target) for name in names)], closure=True)
    default = _CONDITIONAL_PRIORS[domain[target].cardinality > 2]
    penalty = Prior.parse(default if prior is None else prior).penalty(graph)
    if isinstance(penalty, Conjugate):
        raise conflict("prior", "a conditional likelihood has no conjugate prior", 'give "normal:1", or an order')
    strengths: Any = np.zeros(len(names))
    if isinstance(penalty, InteractionRidge):
        strengths = [penalty.strength((name, target)) for name in names]
    elif isinstance(penalty, L2):
        strengths = np.full(len(names), penalty.strength)
    # Without a prior that was asked for, levels of numbers know their numbers.
    rows = codes[:, :-1], codes[:, -1], domain.cardinalities, weights
    sizes = {name: domain[name].cardinality for name, numbers in zip(names, scores, strict=True) if numbers is not None}
    seconds = _ENTRY * sum(size**2 for size in sizes.values())
    if prior is None and seconds > _LONG:
        name = max(sizes, key=lambda name: sizes[name])
        levels = f"{name!r} has {plural(sizes[name], 'level')} of numbers"
        remedy = f"bins={ {name: _CONDITIONAL_RULE} } cuts them, and exclude=[{name!r}] leaves them out"
        problem = f"the fit takes very roughly {duration_words(seconds)}, because {levels}; {remedy}"
        warnings.warn(CostWarning(problem), stacklevel=caller_level())
    fitted = fit_conditional(*rows, strengths) if prior is not None else fit_scored(*rows, strengths, scores)
    if not fitted.is_converged:
        problem = f"the fit did not converge within {fitted.num_iterations} iterations"
        warnings.warn(ConvergenceWarning(f'{problem}; give a prior such as "normal:1"'), stacklevel=caller_level())
    return fitted


@dataclass(kw_only=True, eq=False, repr=False)
class InteractionClassifier(ClassifierMixin, InteractionEstimator):
    r"""A classifier by the interactions of the class with the columns of a table.

    .. math:: p(y \mid x) = q(x, y) / \sum_{y'} q(x, y')

    Without advice, which is neither order, edges, options nor another family, the pairs of the class with every column
    are fitted by the likelihood of the class given the columns: a logistic regression on indicators of the levels with
    a ridge penalty, which needs no log Z and takes a second for tens of thousands of rows. Given the class the columns
    are taken for independent where cells are missing, and a missing cell is summed over with the shares of its column,
    in the fit as in a prediction (:class:`~pyro_hoim.log_linear.conditional.ClassInteractions`).

    With an order, edges or options the joint distribution of class and columns is fitted. With
    ``edges="y*(a + b + c)"`` a log-linear model is then naive Bayes, and with all interactions of the columns and the
    pairs of each with a binary class, ``edges="a*b*c + y*(a + b + c)"``, it is logistic regression without a penalty.
    Missing cells are summed over. Columns are read as by :class:`InteractionDensity`.

    Args:
        family: as of :class:`InteractionDensity`, of those with levels.
        order: likewise; the class is one of the columns. None, without edges and options, fits the class alone.
        edges: likewise; the class has the name ``target``.
        prior: likewise; of a class that is fitted alone the default is ``ridge:2`` with two classes and ``ridge:1``
            with more, which is scikit-learn's logistic regression with C = 1, and the intercept has none. The default
            ties the levels of numbers, and of ordered categories, to a line and to their neighbours, by as much as
            suits rows that are left out of the fit (:func:`~pyro_hoim.log_linear.conditional.fit_scored`).
        options: likewise.
        bins: likewise, but where the class is fitted alone ``auto`` is the rule ``spread:32``.
        exclude: likewise.
        allow: likewise.
        missing_values: likewise.
        handle_unknown: likewise, but ``missing`` is the default.
        random_state: of families that learn by chance, and of averages over chains for missing cells.
        target: name of the class in the model.

    Attributes:
        classes_: the classes, sorted.
        result_: the result of the fit, a model of the library.
        columns_: how every column was read, also those that were left out.
        domain_: its variables, the class last.
        n_features_in_: number of columns.
        feature_names_in_: their names, where the table had any.

    Raises:
        InputError: as :class:`InteractionDensity`; a family of numbers; a column with the name of the class.

    Example:
        >>> X = np.array([["no", "dry"], ["no", "dry"], ["yes", "wet"], ["yes", "wet"], ["no", "wet"]])
        >>> model = InteractionClassifier(edges="y*(x0 + x1)").fit(X, ["well", "well", "ill", "ill", "ill"])
        >>> model.predict([["yes", "wet"], ["no", "dry"]]).tolist()
        ['ill', 'well']
        >>> model.predict_proba(np.array([["yes", None]], dtype=object)).round(3).tolist()
        [[0.867, 0.133]]
    """

    handle_unknown: Unknown = "missing"
    target: str = "y"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model to rows (N, d) and their classes (N,), with weights (N,)."""
        check_type(self.target, str, "target")
        frame = self._frame(X, reset=True)
        if y is None:
            name = type(self).__name__
            raise InputError(f"This {name} estimator requires y to be passed, but the target y is None", argument="y")
        is_array = isinstance(y, pd.Series | pd.DataFrame | np.ndarray) or hasattr(type(y), "_from_sequence")
        gaps = int(np.sum(np.asarray(pd.isna(y if is_array else np.asarray(y, dtype=object)))))
        if gaps:
            problem = f"{plural(gaps, 'row')} without a class (None, NaN or NA)"
            raise refused("y", problem, "leave these rows out of X and y", code="missing-cells")
        types: Any = {"dtype": None}  # as it is
        target: Any = check_array(column_or_1d(y, warn=True), ensure_2d=False, input_name="y", **types)
        check_consistent_length(frame, target)
        check_classification_targets(target)
        # The classes of the rows that count; the class of others is not looked at.
        weights = self._weights(sample_weight, frame)
        self.classes_ = np.unique(target[weights > 0])
        codes = np.searchsorted(self.classes_, np.where(weights > 0, target, self.classes_[0]))
        variable = Variable(self.target, tuple(label_of(value) for value in self.classes_))
        self._fit_labels(frame, weights, (variable, codes))
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (N, number of classes) of ``classes_``, in this order.

        Raises:
            InputError: rows whose cells have probability zero together, under a maximum-likelihood estimate.
        """
        check_is_fitted(self, "result_")
        if self._interactions is not None:
            unknown: Any = self.handle_unknown
            return np.exp(self._interactions.log_probs(self._columns.read(self._frame(X, reset=False), unknown)))
        # The class is the one missing cell of each row.
        variable = self.domain_.variables[-1]
        _, rows = self._rows(X, variable)
        with warnings.catch_warnings(action="ignore", category=DataWarning):  # such rows are refused below
            predicted = predict(self.result_, rows, variable.name)
        probs = predicted[[f"p({label})" for label in variable.labels]].to_numpy()
        # Rows that the model excludes have no class.
        lost = np.isnan(probs).any(1)
        if lost.any():
            problem = (
                f"row {int(lost.argmax())}: its cells have probability zero together ({int(lost.sum())} such rows)"
            )
            raise refused("X", problem, _remedy(self.result_), code="impossible")
        return probs

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of every row, (N,)."""
        probs = self.predict_proba(X)
        return self.classes_[probs.argmax(1)]


def _remedy(result: Any) -> str | None:
    """What makes impossible rows possible: a prior, but not where all of them were declared."""
    states = getattr(result, "impossible", None)
    is_declared = states is not None and states.without(result.structural_zeros) is None
    return None if is_declared else 'fit with prior="unit"'


# Densities of rows.


class InteractionDensity(DensityMixin, InteractionEstimator):
    r"""The joint distribution of all columns of a table, as an estimator of scikit-learn.

    Columns are read by the rule of every function that takes a data frame (:func:`~pyro_hoim.data.read_columns`): few
    values are levels as they are, numbers of many values are cut, and dates, identifiers and free text are left out
    with a note. Only numbers with fractions are cut however few values they have, as other rows have others. Between
    cut points the log-likelihood is that of the level, not a density per unit, and a drawn number is the median of its
    level. Missing cells are summed over.

    Args:
        family: ``log-linear``, ``dependency-network``, ``rbm`` (binary columns), ``grm`` (counts or real numbers, which
            are not cut) or another that is registered. Where none of ``order``, ``edges``, ``prior`` and ``options`` is
            given and sums over missing cells would take more than a minute, a dependency network takes the place of the
            default, with a warning.
        order: interactions of up to so many columns; default of the family: 2.
        edges: of a log-linear model a formula such as ``"smoke*lung + ."``, or sets of names, in place of ``order``.
            Columns of arrays are named x0, x1, ...
        prior: of a log-linear model: ``unit`` (default), ``none`` for maximum likelihood, ``normal:S``, ...; see
            :class:`~pyro_hoim.log_linear.named_priors.Prior`.
        options: further options of the family by name: ``alpha``, ``max_leaves`` and ``lossless`` of a dependency
            network; ``hidden``, ``method``, ``iterations``, ... of an rbm; ``family``, ``l1``, ... of a grm;
            ``objective`` of a log-linear model.
        bins: how numbers of many values are cut: ``auto`` and ``refuse`` as in :func:`~pyro_hoim.fit`, a whole number
            of levels or a rule of :func:`~pyro_hoim.data.find_bins` such as ``spread:32`` for all of them, or by column
            such a rule, cut points or ``auto``, where all other columns are read by ``auto`` unless ``"*"`` has another
            rule. Numbers beyond the cut points are in the first or the last level, however far they lie.
        exclude: columns that are left out; those of arrays are x0, x1, ...
        allow: columns that are taken as they are.
        missing_values: labels that mean "missing", besides None, NaN and NA.
        handle_unknown: what a level is that the fit did not meet: an ``error``, or a ``missing`` cell, of which a
            warning says how many there are. In a column of numbers ``missing`` reads other numbers as the level below
            them, or as the lowest one, with a warning likewise; codes that are no numbers should be text. Truth values
            are read as 0 and 1 always, and numbers that are cut may lie anywhere.
        random_state: of draws, and of families that learn by chance.

    Attributes:
        result_: the result of the fit, a model of the library.
        columns_: how every column was read, also those that were left out.
        domain_: its variables.
        n_features_in_: number of columns.
        feature_names_in_: their names, where the table had any.

    Raises:
        InputError: parameters that are out of range or not of the family, or a column without a level.
        UnknownNameError: a family, an option or, with ``handle_unknown="error"``, a level that is not known.
        IntractableError: a table whose missing cells cannot be summed over.

    Example:
        >>> rows = np.array([["no", "dry"], ["no", "dry"], ["yes", "wet"], ["yes", "wet"], ["no", "wet"]])
        >>> density = InteractionDensity(random_state=0).fit(rows)
        >>> density.score_samples(rows).round(3).tolist()
        [-0.995, -0.995, -0.995, -0.995, -1.608]
        >>> density.sample(2).tolist()
        [['no', 'wet'], ['no', 'dry']]
    """

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: ARG002 (scikit-learn's)
        """Fit the model to rows (N, d), with weights (N,); ``y`` is ignored."""
        family = self._family
        frame = self._frame(X, reset=True)
        if family.data_type == "labels":
            self._fit_labels(frame, self._weights(sample_weight, frame))
            return self
        if sample_weight is not None:
            raise refused("sample_weight", f"a {family.name} takes no weights", code="conflict")
        self._model_family = family
        self.result_ = self._estimate(family, self._numbers(frame))
        stored = family.stored(self.result_)
        assert stored is not None
        self.domain_ = stored.domain
        return self

    def score_rows(self, X: Any) -> RowLogLikelihood:
        """As :meth:`score_samples`, with whether the values are likelihoods or pseudo-likelihoods, and exact."""
        _, rows = self._rows(X)
        family = self._model_family
        stored = family.stored(self.result_)
        assert stored is not None
        if family.row_log_likelihood is None:
            raise refused("family", f"a {family.name} has no likelihood of rows", code="no-method")
        return family.row_log_likelihood(stored, rows)

    def score_samples(self, X: Any) -> np.ndarray:
        """Log-likelihood of every row, (N,), nats; the pseudo-likelihood where log Z is out of reach (`score_rows`)."""
        return self.score_rows(X).values.double().numpy()

    def score(self, X: Any, y: Any = None) -> Any:  # noqa: ARG002 (scikit-learn's)
        """Mean of :meth:`score_samples`; ``y`` is ignored."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1) -> Any:
        """Independent rows of the model, (n_samples, d), as a data frame where it was fitted on one.

        Columns that were left out have missing cells.
        """
        check_whole(n_samples, "n_samples")
        check_is_fitted(self, "result_")
        table = sample(self.result_, n_samples, seed=self._seed())
        if hasattr(self, "_columns"):
            codes = self._columns.codes_of(table)
            cells = {c.position: c.give(codes[:, i]) for i, c in enumerate(self._columns.columns)}
            missing = pd.Series([None] * n_samples, dtype=object)
            names: Any = getattr(self, "feature_names_in_", range(len(self._columns.names)))
            table = pd.DataFrame({name: cells.get(i, missing) for i, name in enumerate(names)})
        return table if hasattr(self, "feature_names_in_") else _as_array(table)


# Missing cells filled from a model of all columns.


@dataclass(kw_only=True, eq=False, repr=False)
class InteractionImputer(OneToOneFeatureMixin, TransformerMixin, InteractionEstimator):
    r"""Fills missing cells given the known cells of their rows, by the joint distribution of all columns.

    .. math:: x_M \sim q(x_M \mid x_O) \qquad \text{or} \qquad x_M = \arg\max q(x_M \mid x_O)

    The table that is fitted may have missing cells itself, where its family sums over them. Known cells stay as they
    are. Columns are read as by :class:`InteractionDensity`: where numbers were cut, a cell is filled with the median of
    a level, and columns that were left out are not filled.

    Args:
        family: as of :class:`InteractionDensity`, of those with levels.
        order: likewise.
        edges: likewise.
        prior: likewise.
        options: likewise.
        bins: likewise.
        exclude: likewise.
        allow: likewise.
        missing_values: likewise.
        handle_unknown: likewise; with ``missing`` a label that the fit did not meet is not filled, either.
        random_state: of the draws.
        strategy: ``draw`` cells together, which keeps spread and dependence, or the ``most_probable`` ones (of a
            log-linear model).

    Attributes:
        result_: the result of the fit, a model of the library.
        columns_: how every column was read, also those that were left out.
        domain_: its variables.
        n_features_in_: number of columns.
        feature_names_in_: their names, where the table had any.

    Raises:
        InputError: as :class:`InteractionDensity`; a family of numbers, or one that has no such strategy.
        MissingDataError: missing cells in a fit of a family that does not sum over them.

    Warns:
        DataWarning: rows whose known cells have probability zero together, under a maximum-likelihood estimate; they
            are not filled.

    Example:
        >>> frame = pd.DataFrame({"rain": ["no", "no", "yes", "yes", None], "wet": [0, 0, 1, 1, 1]})
        >>> InteractionImputer(strategy="most_probable").fit_transform(frame).tail(2)
          rain  wet
        3  yes    1
        4  yes    1
    """

    strategy: Literal["draw", "most_probable"] = "draw"

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: ARG002 (scikit-learn's)
        """Fit the model to rows (N, d), with weights (N,); ``y`` is ignored."""
        check_choice(self.strategy, ("draw", "most_probable"), "strategy")
        frame = self._frame(X, reset=True)
        self._fit_labels(frame, self._weights(sample_weight, frame))
        return self

    def transform(self, X: Any) -> Any:
        """The rows (N, d) with their missing cells filled, as a data frame where ``X`` is one."""
        return self.impute(X)[0]

    def impute(self, X: Any, number: int = 1) -> list[Any]:
        """Several completions of the rows, each as of :meth:`transform`; for multiple imputation.

        Args:
            X: rows (N, d).
            number: of completions; 1 of the most probable one.
        """
        check_whole(number, "number")
        if number > 1 and self.strategy != "draw":
            raise conflict("number", "there is one most probable completion", 'give strategy="draw"')
        frame, rows = self._rows(X)
        if not rows.has_missing:
            return [self._filled(X, frame, rows.codes.numpy()) for _ in range(number)]
        options: dict[str, Any] = {"most_probable": True} if self.strategy == "most_probable" else {}
        # Completions come as labels below one another, and go back as values.
        with warnings.catch_warnings(action="ignore", category=DataWarning):  # said below, with what helps
            imputed = impute(self.result_, rows, number, seed=self._seed(), **options)
        labels = imputed if number == 1 else imputed.drop(columns="imputation")
        codes = self._columns.codes_of(
            labels.set_axis([column.variable.name for column in self._columns.columns], axis=1)
        )
        if lost := int((codes < 0).any(1).sum()) // number:
            sentence = f"not filled: {plural(lost, 'row')} whose known cells have probability zero together"
            words = "; ".join(filter(None, (sentence, _remedy(self.result_))))
            warnings.warn(words, DataWarning, stacklevel=caller_level())
        return [self._filled(X, frame, part) for part in np.split(codes, number)]

    def _filled(self, X: Any, frame: pd.DataFrame, codes: np.ndarray) -> Any:
        """A table with codes (N, d) in its missing cells."""
        table = frame.copy(deep=False)
        for i, column in enumerate(self._columns.columns):
            table.isetitem(column.position, column.fill(frame.iloc[:, column.position], codes[:, i]))
        return table if is_frame(X) else _as_array(table)
