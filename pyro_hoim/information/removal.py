"""Removing chosen interactions from a model, and what that changes (paper 1, section 5.3, on fairness)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from ..core.prediction import Prediction
from ..core.rows import check_count
from ..data.frames import DataLike, as_observations
from ..data.observations import Observations
from ..errors import ConvergenceWarning, check_names, conflict, other_domain, unexpected
from ..log_linear.auto import Auto
from ..log_linear.energy import LogLinearEnergy
from ..log_linear.given import check_energy
from ..log_linear.impossible import check_possible
from ..log_linear.predictions import predict
from ..log_linear.synthetic import synthesise
from ..runs.arguments import checked_seed
from ..structure.hypergraph import InteractionHypergraph
from .interaction_values import with_supersets

__all__ = ["RemovalEffect", "log_z_difference", "removal_effect", "without"]

_BRIDGE_STEPS = 200
_MIN_OVERLAP = 50.0


def without(model: LogLinearEnergy, edges: Iterable[Sequence[str]]) -> LogLinearEnergy:
    r"""The model without some interactions and all that contain them; every other table stays as it is.

    .. math:: q'(x) \propto q(x) \exp\Big(-\sum_{T \supseteq S,\, S \in \mathrm{edges}} \theta^T_{x_T}\Big)

    With balanced tables the removed part has no component in the interactions that stay.

    Raises:
        InputError, InputTypeError, UnknownNameError: no LogLinearEnergy, or ``edges`` that are not some of its
            interactions.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> model = LogLinearEnergy.from_theta(graph, torch.tensor([0.2, -0.1, 0.5], dtype=torch.float64))
        >>> without(model, [("a", "b")]).hypergraph.edges
        (('a',), ('b',))
    """
    check_energy(model)
    graph = model.hypergraph
    gone = set(with_supersets(graph, edges))
    kept = [e for e in graph.edges if e not in gone]
    rest = InteractionHypergraph(graph.domain, kept, hierarchical=graph.is_hierarchical, coding=graph.coding)
    slices = graph.term_slices
    pieces = [model.tables[..., :0], *(model.tables[..., slices[e]] for e in rest.edges)]
    return LogLinearEnergy(rest, torch.cat(pieces, -1), validate=False)


def log_z_difference(
    first: LogLinearEnergy, second: LogLinearEnergy, *, num_samples: int = 4096, seed: int = 0
) -> tuple[float, float]:
    r"""Log Z of the second model minus that of the first, and its standard error, in nats.

    .. math:: \frac{Z_2}{Z_1} = \frac{\mathbb E_1[\alpha f_2]}{\mathbb E_2[\alpha f_1]}, \qquad
        \alpha \propto \frac{1}{Z_1^{-1} f_1 + Z_2^{-1} f_2}

    Exact (error 0) where both models are within reach; otherwise Bennett's acceptance ratio on ``num_samples`` draws of
    each by ``seed``, which works where the laws overlap, far better than importance weights from one of them. The error
    is infinite where the samples hardly overlap, or the iteration for the ratio did not converge.

    Raises:
        InputError, InputTypeError: no two single models over the same variables, or numbers out of range.

    Warns:
        ConvergenceWarning: the iteration for the ratio did not converge.

    References:
        Meng and Wong, Simulating ratios of normalizing constants via a simple identity, Statistica Sinica 6, 1996;
        Charles Bennett, Journal of Computational Physics 22, 1976.

    Example:
        >>> from pyro_hoim import Domain
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2}))
        >>> first, second = (LogLinearEnergy(graph, torch.tensor([-t, t], dtype=torch.float64)) for t in (0.0, 1.0))
        >>> difference, error = log_z_difference(first, second)
        >>> round(difference, 6), round(math.log(math.cosh(1.0)), 6), error
        (0.433781, 0.433781, 0.0)
    """
    check_energy(first, "first")
    check_energy(second, "second")
    check_count(num_samples, "num_samples", 2)
    seed = checked_seed(seed)
    if first.domain != second.domain or first.batch_shape or second.batch_shape:
        raise other_domain("first, second", "two single models over the same variables")
    auto = Auto()
    if auto.plan(first.hypergraph).feasible and auto.plan(second.hypergraph).feasible:
        return float(auto.log_partition(second).value) - float(auto.log_partition(first).value), 0.0
    check_possible(first, "first")
    check_possible(second, "second")
    ratios = [
        (first.energy(codes) - second.energy(codes)).double()
        for codes in (synthesise(first, num_samples, seed).codes, synthesise(second, num_samples, seed + 1).codes)
    ]
    return _bridge(*ratios)


def _bridge(ratio_1: torch.Tensor, ratio_2: torch.Tensor) -> tuple[float, float]:
    """Log of Z_2 / Z_1 from log f_2 / f_1 at samples of either law, and its standard error."""
    share = math.log(len(ratio_1) / (len(ratio_1) + len(ratio_2)))
    other = math.log(len(ratio_2) / (len(ratio_1) + len(ratio_2)))
    value = 0.5 * float(ratio_1.mean() + ratio_2.mean())

    def terms(at: float) -> tuple[torch.Tensor, torch.Tensor]:
        logs = [torch.logaddexp(torch.full_like(r, share), other + r - at) for r in (ratio_1, ratio_2)]
        return ratio_1 - logs[0], -logs[1]

    done = False
    for _ in range(_BRIDGE_STEPS):
        upper, lower = terms(value)
        new = float(upper.logsumexp(0) - lower.logsumexp(0)) - math.log(len(upper) / len(lower))
        done = abs(new - value) < 1e-10 * (1 + abs(value))
        value = new
        if done:
            break
    if not done:
        warnings.warn(
            ConvergenceWarning(
                f"log_z_difference: the acceptance ratio still moved after {_BRIDGE_STEPS} steps, so that it has no "
                "error bar; the two laws hardly overlap, or more samples are needed"
            ),
            stacklevel=3,
        )
        return value, math.inf
    variance, overlap = 0.0, math.inf
    for logs in terms(value):
        weights = (logs - logs.max()).exp()
        variance += float(weights.var() / weights.mean() ** 2) / len(weights)
        overlap = min(overlap, float(weights.sum() ** 2 / weights.square().sum()))
    return value, math.sqrt(variance) if overlap >= _MIN_OVERLAP else math.inf


@dataclass(frozen=True, eq=False)
class RemovalEffect:
    """What removing interactions changes.

    Attributes:
        removed: the interactions that were removed.
        models: ``before``, ``zeroed`` (the rest untouched) and, if asked for, ``refitted``.
        log_likelihood: change of the mean log-likelihood per row against ``before``, one line per part and model:
            ``part``, ``model``, ``change``, ``row_error`` (sampling error over rows) and ``log_z_error`` (Monte Carlo
            error of log Z, the same for every row), nats.
        prediction: one line per model: ``accuracy``, ``log_loss``, ``majority_accuracy`` of the target; None without
            one.
        groups: mean predicted probability of the target's level in every group of the sensitive variable, one line
            per group with its ``rows``, one column per model; None without a sensitive variable.
        target: the predicted variable and its level.
        sensitive: the variable that makes the groups.

    Example:
        >>> from pyro_hoim import Domain, fit, load_table
        >>> rows = load_table("ucb_admissions")
        >>> result = fit(InteractionHypergraph.from_order(rows.domain, 2), rows)
        >>> model = LogLinearEnergy(result.hypergraph, result.tables)
        >>> effect = removal_effect(model, [("Admit", "Gender")], rows)
        >>> effect.log_likelihood[["model", "change"]].round(4)
            model  change
        0  zeroed -0.0003
    """

    removed: tuple[tuple[str, ...], ...]
    models: dict[str, LogLinearEnergy]
    log_likelihood: pd.DataFrame
    prediction: pd.DataFrame | None
    groups: pd.DataFrame | None
    target: tuple[str, str] | None
    sensitive: str | None

    @property
    def parity_difference(self) -> dict[str, float]:
        """Largest minus smallest group mean of every model (demographic parity has 0); empty without groups."""
        if self.groups is None:
            return {}
        occupied = self.groups[self.groups["rows"] > 0]
        return {name: float(np.ptp(np.asarray(occupied[name], dtype=float))) for name in self.models}

    @property
    def text(self) -> str:
        """The effect in a few lines."""
        lines = [f"removed: {', '.join(':'.join(e) for e in self.removed)}"]
        for row in self.log_likelihood.to_dict("records"):
            error = math.hypot(row["row_error"], row["log_z_error"])
            lines.append(
                f"{row['model']}, {row['part']}: log-likelihood {row['change']:+.5f} +- {error:.1g} nats a row"
            )
        if self.prediction is not None and self.target is not None:
            for name, row in self.prediction.iterrows():
                lines.append(
                    f"{name}: accuracy of {self.target[0]} {row['accuracy']:.4f}, log loss {row['log_loss']:.4f}"
                )
        if self.target is not None:
            for name, value in self.parity_difference.items():
                lines.append(
                    f"{name}: mean P({self.target[0]} = {self.target[1]}) differs by {value:.4f} over {self.sensitive}"
                )
        return "\n".join(lines)


def removal_effect(
    model: LogLinearEnergy,
    edges: Iterable[Sequence[str]],
    train: DataLike,
    test: DataLike | None = None,
    *,
    target: str | None = None,
    level: str | None = None,
    sensitive: str | None = None,
    refit: Callable[[LogLinearEnergy], LogLinearEnergy] | None = None,
    num_samples: int = 4096,
    seed: int = 0,
) -> RemovalEffect:
    """Remove interactions, with and without refitting the others, and measure what changes.

    Predictions and groups are those of ``test``, or of ``train`` without it; every prediction sees all other columns of
    the row, the sensitive one included, so what is left of the difference between groups is carried by other
    interactions.

    Args:
        model: one model.
        edges: interactions to remove, with all that contain them.
        train: complete rows.
        test: further complete rows.
        target: variable to predict.
        level: its level whose probability is compared between groups; the last one by default.
        sensitive: variable that makes the groups.
        refit: given the model without the interactions, returns it with the others fitted again.
        num_samples: states of each model drawn where log Z is out of exact reach.
        seed: seed of those.

    Raises:
        InputError, InputTypeError, UnknownNameError: arguments that do not fit together or are out of range; a
            ``refit`` that returns no model of these variables.

    Example:
        >>> from pyro_hoim import fit, load_table
        >>> rows = load_table("ucb_admissions")
        >>> result = fit(InteractionHypergraph.from_order(rows.domain, 2), rows)
        >>> model = LogLinearEnergy(result.hypergraph, result.tables)
        >>> effect = removal_effect(model, [("Admit", "Gender")], rows, target="Admit", sensitive="Gender")
        >>> sorted(effect.parity_difference)
        ['before', 'zeroed']
    """
    check_energy(model)
    check_count(num_samples, "num_samples", 2)
    seed = checked_seed(seed)
    given = {"train": train} if test is None else {"train": train, "test": test}
    rows = {name: as_observations(part, domain=model.domain, argument=name) for name, part in given.items()}
    for name, part in rows.items():
        if part.domain != model.domain:
            raise other_domain(name, "the variables and labels of the model's domain")
        if part.has_missing or not part.total_count > 0:
            expected = "complete rows with a positive count"
            raise unexpected(name, expected, hint="drop or impute missing cells first", code="missing-cells")
    for name, variable in (("target", target), ("sensitive", sensitive)):
        if variable is not None:
            check_names([variable], model.domain.names, name)
    if sensitive is not None and (target is None or target == sensitive):
        raise unexpected("sensitive", "a variable other than the target, and a target", code="conflict")
    code = None if target is None else model.domain[target].cardinality - 1
    if level is not None:
        if target is None:
            raise conflict("level", "belongs to a target, received none")
        code = model.domain[target].code(level)
    chosen = list(edges)
    zeroed = without(model, chosen)
    models = {"before": model, "zeroed": zeroed}
    if refit is not None:
        models["refitted"] = refit(zeroed)
        check_energy(models["refitted"], "refit")
        if models["refitted"].domain != model.domain:
            raise other_domain("refit", "a model over the same variables")
    last = rows["train" if test is None else "test"]
    found = {} if target is None else {name: predict(m, last, target) for name, m in models.items()}
    keys = ("accuracy", "log_loss", "majority_accuracy")
    predictions = pd.DataFrame({key: {name: getattr(p, key) for name, p in found.items()} for key in keys})
    return RemovalEffect(
        with_supersets(model.hypergraph, chosen),
        models,
        _likelihoods(models, rows, num_samples, seed),
        predictions if found else None,
        None if sensitive is None or code is None else _groups(found, last, sensitive, code),
        None if target is None or code is None else (target, model.domain[target].labels[code]),
        sensitive,
    )


def _likelihoods(
    models: dict[str, LogLinearEnergy], rows: dict[str, Observations], num_samples: int, seed: int
) -> pd.DataFrame:
    """Changes of the mean log-likelihood."""
    before = models["before"]
    lines: list[dict[str, object]] = []
    for number, (name, model) in enumerate(models.items()):
        if name == "before":
            continue
        log_z, error = log_z_difference(before, model, num_samples=num_samples, seed=seed + 2 * number)
        for part, data in rows.items():
            merged = data.unique()
            change = (before.energy(merged.codes) - model.energy(merged.codes)).double() - log_z
            share = merged.counts / merged.total_count
            mean = float((share * change).sum())
            spread = float((share * (change - mean) ** 2).sum())
            lines.append(
                {
                    "part": part,
                    "model": name,
                    "change": mean,
                    "row_error": math.sqrt(spread / merged.total_count),
                    "log_z_error": error,
                }
            )
    return pd.DataFrame(lines)


def _groups(found: dict[str, Prediction], data: Observations, sensitive: str, code: int) -> pd.DataFrame:
    """Mean predicted probability of a level by group and model."""
    variable = data.domain[sensitive]
    group = data.codes[:, data.domain.index(sensitive)]
    zeros = torch.zeros(variable.cardinality, dtype=torch.float64)
    total = zeros.index_add(0, group, data.counts)
    table = pd.DataFrame({"rows": total.numpy()}, index=pd.Index(variable.labels, name=sensitive))
    for name, prediction in found.items():
        mass = zeros.index_add(0, group, data.counts * prediction.probs[:, code])
        table[name] = (mass / total).numpy()  # NaN where a group has no rows
    return table
