"""Removing chosen interactions from a model, and what that changes (paper 1, section 5.3, on fairness)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
import torch

from ..core.law import Law
from ..core.prediction import Prediction, check_count
from ..data.frames import DataLike, as_observations
from ..data.observations import Observations
from ..errors import (
    ConvergenceWarning,
    check_names,
    check_type,
    conflict,
    none_received,
    other_domain,
    unexpected,
    wrong_type,
)
from ..log_linear.auto import Auto
from ..log_linear.coding import check_balanced_family
from ..log_linear.energy import LogLinearEnergy, check_energy
from ..log_linear.given import predict, synthesise
from ..log_linear.impossible import check_all_possible
from ..runs.arguments import checked_seed, received
from ..structure.hypergraph import InteractionHypergraph
from .projection import project, scale_margins

# What every interaction of a fitted model is worth: the loss of removing it, exactly or bounded from samples.

_MAX_EXACT_ENTRIES = 2**19
_MIN_ESS = 50.0
_IPF_STEPS = 500
_IPF_TOLERANCE = 1e-9


@dataclass(frozen=True)
class RemovalValue:
    """Information that a model loses with one interaction, in nats a row.

    Attributes:
        edge: the interaction.
        removed: the interactions that go: the edge and all that contain it.
        value: see :func:`removal_values`.
        kind: ``exact``; ``upper bound`` where a projection did not converge, so that the minimum may be lower; or
            ``estimated upper bound``.
        std_error: Monte Carlo standard error of an estimated bound, infinite where the weights of the samples do not
            support one; 0 otherwise.
    """

    edge: tuple[str, ...]
    removed: tuple[tuple[str, ...], ...]
    value: float
    kind: Literal["exact", "upper bound", "estimated upper bound"]
    std_error: float


def with_supersets(hypergraph: InteractionHypergraph, edges: Iterable[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """The given edges and all that contain one of them, in the order of the hypergraph; others and none are refused."""
    check_type(hypergraph, InteractionHypergraph, "hypergraph")
    wanted = [_names(e) for e in edges]
    if not wanted:
        raise none_received("edges", "at least one interaction")
    remaining = set(hypergraph.remove_edges(wanted, hierarchical=hypergraph.is_hierarchical).edges)
    return tuple(e for e in hypergraph.edges if e not in remaining or any(set(w) <= set(e) for w in wanted))


def _names(edge: Sequence[str]) -> tuple[str, ...]:
    if isinstance(edge, str):
        raise wrong_type("edges", "sets of names", hint=f"write ({edge!r},)", received=f"the string {edge!r}")
    return tuple(edge)


def removal_values(
    model: LogLinearEnergy,
    edges: Iterable[Sequence[str]] | None = None,
    *,
    num_samples: int = 4096,
    seed: int = 0,
    samples: torch.Tensor | None = None,
    exact: bool | None = None,
) -> list[RemovalValue]:
    r"""Value of interactions given all others: the refined information of S added last (paper 1, eqs. 5 and C.1).

    .. math:: I_S = \min_{r \in \mathcal F_{-S}} D(q \| r) \;\le\; \min_g D\!\left(q \,\middle\|\,
        \tfrac{1}{Z_g} q \, e^{-f_S + g}\right), \qquad f_S = \sum_{T \supseteq S} \theta^T

    The family without S has no interaction that contains S. Small models: the exact minimum, by projecting the model's
    own table (``exact``). Large ones: S and what contains it is set to zero and only the interactions inside S are
    refitted (g is a sum of functions of proper subsets of S that are in the model), which bounds the exact value from
    above; with S of one variable nothing is refitted. The bound needs the law of q only,

    .. math:: \mathbb E_q[f_S - g] + \log \mathbb E_q[\exp(-f_S + g)],

    estimated from samples of q, each summed over its conditional law of one variable of S in turn (Rao-Blackwell).
    All others are held, so the exact value may be far below the bound where other interactions can take over.

    Args:
        model: one model.
        edges: the interactions to value; all with a free parameter when None.
        num_samples: states to draw for large models.
        seed: seed of those draws.
        samples: states of the model to use in place of drawing them, long (n, d).
        exact: True: exact always; False: bounds always; None: exact where states times parameters are at most 2^19.

    Raises:
        InputError, InputTypeError: no single model, an edge that it does not have, samples or numbers that are not so,
            ``exact`` for a model that is not hierarchical, or bounds for one with impossible states.
        IntractableError: ``exact`` beyond reach.

    Warns:
        ConvergenceWarning: a projection did not converge; the value is then an ``upper bound``.

    Example:
        >>> from pyro_hoim import Domain
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> model = LogLinearEnergy.from_theta(graph, torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64))
        >>> (row,) = removal_values(model, [("a", "b")])
        >>> row.kind, round(row.value, 4)
        ('exact', 0.1109)
    """
    check_energy(model)
    check_count(num_samples, "num_samples", 2)
    seed = checked_seed(seed)
    if model.batch_shape:
        batch = f"a batch of shape {tuple(model.batch_shape)}"
        raise unexpected("model", "one model", received=batch, code="wrong-shape")
    # What is valued, and all that goes with it.
    graph = model.hypergraph
    check_balanced_family(graph, "the value of an interaction")
    if edges is None:
        cards = dict(zip(graph.domain.names, graph.domain.cardinalities, strict=True))
        edges = [e for e in graph.edges if all(cards[n] > 1 for n in e)]
    wanted = [graph.domain.project(_names(e)).names for e in edges]
    groups = [with_supersets(graph, [e]) for e in wanted]
    if exact is None:
        exact = graph.is_hierarchical and graph.domain.num_states * max(1, graph.num_parameters) <= _MAX_EXACT_ENTRIES
    # Divergences from the projections of the model's own table.
    if exact:
        if not graph.is_hierarchical:
            raise unexpected("exact", "a hierarchical model", hint="exact=False gives bounds for any", code="no-method")
        law = Law(graph.domain, Auto().marginal(model.to(dtype=torch.float64), graph.domain.names))
        projections = [project(law, graph.remove_edges([edge])) for edge in wanted]
        return [
            RemovalValue(edge, gone, nearest.divergence, "exact" if nearest.is_converged else "upper bound", 0.0)
            for edge, gone, nearest in zip(wanted, groups, projections, strict=True)
        ]
    if not wanted:
        return []
    # Bounds from states of the model.
    check_all_possible(model, "model")
    if samples is not None and (not isinstance(samples, torch.Tensor) or samples.is_floating_point()):
        raise wrong_type("samples", "a tensor of level codes", received=received(samples))
    states: torch.Tensor = synthesise(model, num_samples, seed).codes if samples is None else samples
    if states.dim() != 2 or states.shape[1] != len(graph.domain) or len(states) < 2:
        expected = f"at least two states of {len(graph.domain)} variables"
        raise unexpected("samples", expected, received=tuple(states.shape), code="wrong-shape")
    if samples is not None:
        model.energy(states)  # refuses codes that are no level
    conditionals = {
        name: model.block_conditional([name], states, validate=False).exp().double()
        for name in sorted({n for e in wanted for n in e})
    }
    return [_bound(model, e, gone, states, conditionals) for e, gone in zip(wanted, groups, strict=True)]


def _bound(
    model: LogLinearEnergy,
    edge: tuple[str, ...],
    gone: tuple[tuple[str, ...], ...],
    samples: torch.Tensor,
    conditionals: dict[str, torch.Tensor],
) -> RemovalValue:
    """Estimated bound of one interaction."""
    # Cells of the edge next to every sample, their probabilities, and what is taken away there.
    shape = [model.domain[n].cardinality for n in edge]
    cell = torch.cat([_cells(model, edge, samples, name) for name in edge], 1)  # (n, sum of levels), as those below
    prob = torch.cat([conditionals[name] / len(edge) for name in edge], 1)
    f = torch.zeros(cell.shape, dtype=torch.float64)
    for other in gone:
        table = model.tables[model.hypergraph.term_slices[other]].double()
        f += table[torch.cat([_cells(model, other, samples, name) for name in edge], 1)]
    size = math.prod(shape)
    num = len(samples)
    shift = float(f.min())
    weight = prob * torch.exp(shift - f)
    margin = torch.zeros(size, dtype=torch.float64).index_add_(0, cell.flatten(), prob.flatten()) / num
    base = torch.zeros(size, dtype=torch.float64).index_add_(0, cell.flatten(), weight.flatten()) / num
    # The largest sets inside the edge take over what they can.
    inside = [e for e in model.hypergraph.edges if set(e) < set(edge)]
    largest = [e for e in inside if not any(set(e) < set(o) for o in inside)]
    axes = [[edge.index(n) for n in e] for e in largest]
    start = base.reshape(shape).numpy()
    start = start / start.sum()
    g = np.zeros_like(start)  # log factors; whatever they are, there is a bound
    if axes:
        fitted, _, _ = scale_margins(margin.reshape(shape).numpy(), axes, _IPF_TOLERANCE, _IPF_STEPS, start)
        g = np.log(np.divide(fitted, start, out=np.ones_like(start), where=(fitted > 0) & (start > 0)))
    tilt = torch.from_numpy(g.reshape(-1))[cell]
    # The bound, and its error where enough samples carry the weights.
    weight = weight * torch.exp(tilt)
    mean_weight = weight.sum(1)
    log_mean = float(mean_weight.mean().log())
    gain = (prob * (f - tilt)).sum(1)
    influence = gain + mean_weight / mean_weight.mean()
    ess = float(mean_weight.sum() ** 2 / mean_weight.square().sum())
    error = float(influence.std()) / math.sqrt(num) if ess >= min(_MIN_ESS, num / 2) else math.inf
    value = max(float(gain.mean()) + log_mean - shift, 0.0)  # not negative but for rounding; in this order NaN stays
    return RemovalValue(edge, gone, value, "estimated upper bound", error)


def _cells(model: LogLinearEnergy, edge: Sequence[str], samples: torch.Tensor, name: str) -> torch.Tensor:
    """Positions in the table of an edge at the samples with every level of ``name``: (n, levels)."""
    domain = model.domain
    levels = torch.arange(domain[name].cardinality)
    index = torch.zeros(len(samples), len(levels), dtype=torch.long)
    for n in edge:
        index = index * domain[n].cardinality + (levels if n == name else samples[:, domain.index(n), None])
    return index


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
    remaining = [e for e in graph.edges if e not in gone]
    rest = InteractionHypergraph(graph.domain, remaining, hierarchical=graph.is_hierarchical, coding=graph.coding)
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
    check_all_possible(first, "first")
    check_all_possible(second, "second")
    ratios = [
        (first.energy(codes) - second.energy(codes)).double()
        for codes in (synthesise(first, num_samples, seed).codes, synthesise(second, num_samples, seed + 1).codes)
    ]
    return _bridge(*ratios)


def _bridge(ratio_1: torch.Tensor, ratio_2: torch.Tensor) -> tuple[float, float]:
    """Log of Z_2 / Z_1 from log f_2 / f_1 at samples of either law, and its standard error."""
    # Both samples weigh by their sizes.
    share = math.log(len(ratio_1) / (len(ratio_1) + len(ratio_2)))
    other = math.log(len(ratio_2) / (len(ratio_1) + len(ratio_2)))
    value = 0.5 * float(ratio_1.mean() + ratio_2.mean())

    def terms(at: float) -> tuple[torch.Tensor, torch.Tensor]:
        logs = [torch.logaddexp(torch.full_like(r, share), other + r - at) for r in (ratio_1, ratio_2)]
        return ratio_1 - logs[0], -logs[1]

    # Iterate for the ratio at which both samples agree.
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
    # The error holds as long as the samples of both laws overlap.
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
    # Rows, target and sensitive variable fit the model.
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
    # The models beside each other.
    chosen = list(edges)
    zeroed = without(model, chosen)
    models = {"before": model, "zeroed": zeroed}
    if refit is not None:
        models["refitted"] = refit(zeroed)
        check_energy(models["refitted"], "refit")
        if models["refitted"].domain != model.domain:
            raise other_domain("refit", "a model over the same variables")
    # What they predict, of the last part.
    last = rows["train" if test is None else "test"]
    predicted = {} if target is None else {name: predict(m, last, target) for name, m in models.items()}
    keys = ("accuracy", "log_loss", "majority_accuracy")
    predictions = pd.DataFrame({key: {name: getattr(p, key) for name, p in predicted.items()} for key in keys})
    return RemovalEffect(
        with_supersets(model.hypergraph, chosen),
        models,
        _likelihoods(models, rows, num_samples, seed),
        predictions if predicted else None,
        None if sensitive is None or code is None else _groups(predicted, last, sensitive, code),
        None if target is None or code is None else (target, model.domain[target].labels[code]),
        sensitive,
    )


def _likelihoods(
    models: dict[str, LogLinearEnergy], rows: dict[str, Observations], num_samples: int, seed: int
) -> pd.DataFrame:
    """Changes of the mean log-likelihood."""
    # Every row counts once for its distinct cell.
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


def _groups(predicted: dict[str, Prediction], data: Observations, sensitive: str, code: int) -> pd.DataFrame:
    """Mean predicted probability of a level by group and model."""
    # Masses by group, over those of the rows.
    variable = data.domain[sensitive]
    group = data.codes[:, data.domain.index(sensitive)]
    zeros = torch.zeros(variable.cardinality, dtype=torch.float64)
    total = zeros.index_add(0, group, data.counts)
    table = pd.DataFrame({"rows": total.numpy()}, index=pd.Index(variable.labels, name=sensitive))
    for name, prediction in predicted.items():
        mass = zeros.index_add(0, group, data.counts * prediction.probs[:, code])
        table[name] = (mass / total).numpy()  # NaN where a group has no rows
    return table
