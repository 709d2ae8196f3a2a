"""Rows of which some cells are known, under one log-linear model: weighed, predicted, completed, drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Literal

import numpy as np
import torch

from .._modes import plain_mode
from ..budgets import check_cells
from ..core.prediction import (
    METHODS,
    ClampedGibbs,
    Imputation,
    Prediction,
    RowMethod,
    chain_averages,
    chain_portions,
    check_count,
    checked_gibbs,
    drawn_seed,
    extend_rows,
    row_patterns,
)
from ..core.words import listed
from ..data.counting import distinct_rows
from ..data.frames import DataLike, as_observations
from ..data.observations import Observations
from ..errors import IntractableError, check_choice, check_names, conflict, other_domain, out_of_reach, unexpected
from ..runs.arguments import checked_seed
from ..schema import Domain, Variable
from ..structure.hypergraph import InteractionHypergraph, row_strides
from .annealed.importance import AnnealedImportance
from .auto import Auto
from .chains.gibbs import GibbsChains
from .energy import LogLinearEnergy, check_energy
from .impossible import ImpossibleStates

# Rows of which some cells are known, under one model: those that miss the same variables are treated as one batch.

_MAX_OPERATIONS = 2 * 10**9
_MAX_ROW_OPERATIONS = 2 * 10**7
_MAX_BYTES = 2**28
_LOOK_UPS_PER_CALL = 2**18
_MAX_SCORE_OPERATIONS = 5e9
_EXCLUDED = -1e6  # more than the log of any number of states that could be summed


def check_model(model: LogLinearEnergy, domain: Domain, method: str) -> None:
    """Raise :class:`InputError` unless the model is a single one whose domain is ``domain`` and the method exists."""
    if domain != model.domain:
        expected = "the variables and labels of the model's domain"
        raise other_domain("data", expected, hint="read the file with domain=...")
    check_single(model)
    check_choice(method, METHODS, "method")


def check_single(model: LogLinearEnergy, argument: str = "model") -> None:
    """Raise :class:`InputError` for a batch of models."""
    if model.batch_shape:
        batch = f"a batch of shape {tuple(model.batch_shape)}"
        raise unexpected(argument, "one model", received=batch, code="wrong-shape")


def condition_rows(
    model: LogLinearEnergy, missing: Sequence[str], codes: torch.Tensor
) -> tuple[LogLinearEnergy, torch.Tensor]:
    """:meth:`~pyro_hoim.log_linear.LogLinearEnergy.condition` for many rows, codes (R, d): models (R,), constants (R,).

    .. math:: -E(x_{r, O}, x_M) = c_r - E'_r(x_M)
    """
    graph = model.hypergraph
    rest = _left(graph, tuple(missing))
    stay = set(graph.domain.indices(missing))
    start = {key: piece.start for key, piece in rest.term_slices.items()}
    axes_of, first, weights = _strides(graph)
    names = graph.domain.names
    known = codes.clone()
    known[:, list(stay)] = 0
    # (R, edges): the cell of every table with the missing variables at level 0; whole numbers, so exact in float64
    base = first + (known.double() @ weights).long()
    # Which entries of the tables each entry of the smaller ones is a sum of.
    offsets: dict[tuple[tuple[int, int], ...], np.ndarray] = {}
    edges, steps, columns, inside = list[np.ndarray](), list[np.ndarray](), list[np.ndarray](), list[int]()
    for number, axes in enumerate(axes_of):
        axes_left = [axis for axis in axes if axis[0] in stay]
        if not axes_left:
            inside.append(number)
            continue
        shape = tuple((stride, levels) for _, stride, levels in axes_left)
        if shape not in offsets:
            offset = np.zeros(1, dtype=np.int64)
            for stride, levels in shape:
                offset = (offset[:, None] + stride * np.arange(levels)).ravel()
            offsets[shape] = offset
        step = offsets[shape]
        edges.append(np.full(len(step), number))
        steps.append(step)
        columns.append(start[tuple(names[i] for i, _, _ in axes_left)] + np.arange(len(step)))
    # One look-up for all rows.
    tables = model.tables.new_zeros(len(codes), rest.num_terms)
    if edges:
        source = base[:, torch.from_numpy(np.concatenate(edges))] + torch.from_numpy(np.concatenate(steps))
        tables.index_add_(1, torch.from_numpy(np.concatenate(columns)), model.tables[source])
    constant = model.tables[base[:, inside]].sum(1)
    return LogLinearEnergy(rest, tables, validate=False), constant


@lru_cache(maxsize=8)
def _left(hypergraph: InteractionHypergraph, missing: tuple[str, ...]) -> InteractionHypergraph:
    """The interactions between missing variables when all others are known."""
    gone = set(missing)
    return hypergraph.restrict([n for n in hypergraph.domain.names if n not in gone])


@lru_cache(maxsize=8)
@plain_mode()
def _strides(hypergraph: InteractionHypergraph) -> tuple[list[list[tuple[int, int, int]]], torch.Tensor, torch.Tensor]:
    """(variable, stride, levels) of every axis of every table, first cells (edges,), strides by variable (d, edges)."""
    axes_of = [
        list(zip(members, row_strides(shape), shape, strict=True))
        for members, shape in zip(hypergraph.edge_indices, hypergraph.edge_shapes, strict=True)
    ]
    first = torch.tensor([piece.start for piece in hypergraph.term_slices.values()], dtype=torch.long)
    weights = torch.zeros(len(hypergraph.domain), len(axes_of), dtype=torch.float64)
    for number, axes in enumerate(axes_of):
        for i, stride, _ in axes:
            weights[i, number] = stride
    return axes_of, first, weights


def with_evidence(model: LogLinearEnergy, evidence: Mapping[str, torch.Tensor]) -> LogLinearEnergy:
    """The model with observed variables at the end, each of which hangs on one of its variables.

    Rows that say code s of such a variable have weights w(s, l) for the levels l of the other one: soft evidence.

    Args:
        model: one model.
        evidence: log-weights (S, levels) by the name of a variable.
    """
    variables, names = list(model.domain), set(model.domain.names)
    parts = {edge: model.tables[where] for edge, where in model.hypergraph.term_slices.items()}
    for name, weights in evidence.items():
        new = f"{name}{' seen' * (1 + sum(other.startswith(name) for other in names))}"  # as no variable is called
        names.add(new)
        variables.append(Variable(new, tuple(map(str, range(len(weights))))))
        parts[name, new] = weights.T.reshape(-1).to(model.tables)
    graph = InteractionHypergraph(Domain(variables), parts, hierarchical=False)
    return LogLinearEnergy(graph, torch.cat([parts[edge] for edge in graph.edges]))


def is_exactly_feasible(
    model: LogLinearEnergy, missing: Sequence[str], num_rows: int, method: RowMethod, keep: Sequence[str] = ()
) -> bool:
    """Whether rows with these missing variables are to be treated exactly.

    ``auto`` allows exact work where a backend accepts it and a row needs at most 2e7 operations (about as long as
    chains would take), or all ``num_rows`` of the call together at most 2e9; ``exact`` allows it wherever a backend
    accepts it.
    """
    if method == "gibbs":
        return False
    cost = Auto().plan(_left(model.hypergraph, tuple(missing)), keep=keep)
    if method == "exact":
        if not cost.feasible:
            problem = f"{cost.reason}. Predictions and completions have an approximate method, gibbs"
            raise out_of_reach(f"rows that miss {listed(missing)}", problem)
        return True
    return cost.feasible and (cost.flops <= _MAX_ROW_OPERATIONS or cost.flops * num_rows <= _MAX_OPERATIONS)


def exact_portions(model: LogLinearEnergy, missing: Sequence[str], rows: torch.Tensor) -> Sequence[torch.Tensor]:
    """Rows in portions whose conditional models fit into memory together."""
    rest = _left(model.hypergraph, tuple(missing))
    look_ups = len(model.hypergraph) + model.hypergraph.num_terms
    return rows.split(max(1, _MAX_BYTES // max(1, Auto().plan(rest).memory_bytes + 16 * look_ups)))


def row_log_weights(
    model: LogLinearEnergy, data: DataLike, *, max_operations: float = _MAX_SCORE_OPERATIONS
) -> torch.Tensor:
    r"""Log of the unnormalised probability of every row, summed over what it misses, (N,) in nats; exact.

    .. math:: \log \sum_{x_M} \exp(-E(x_O, x_M))

    Memory does not grow with the number of completions. ``max_operations`` bounds the floating-point operations for all
    rows together, by default about ten seconds; beyond it, or where no backend accepts what a row misses,
    :class:`~pyro_hoim.errors.IntractableError` is raised before anything is computed. Minus infinity for rows whose
    known cells have probability zero.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 3}))
        >>> model = LogLinearEnergy.from_theta(graph, torch.zeros(5, dtype=torch.float64))
        >>> rows = Observations.from_tensor(torch.tensor([[0, 1], [0, -1], [-1, -1]]), graph.domain)
        >>> row_log_weights(model, rows).exp().round(decimals=6).tolist()  # completions of the rows
        [1.0, 3.0, 6.0]
    """
    check_energy(model)
    data = as_observations(data, domain=model.domain)
    check_model(model, data.domain, "exact")
    if not data.num_rows:
        return model.tables.new_zeros(0)
    first, inverse = map(torch.from_numpy, distinct_rows(data.narrow.numpy(), data.domain.cardinalities))
    codes = data.narrow[first]
    values = model.tables.new_full((len(codes),), -math.inf)
    patterns = possible_patterns(Observations(data.domain, codes), impossible_rows(model, codes))
    # What the sums over missing cells cost is known before the first of them.
    needed = 0.0
    for missing, rows in patterns:
        if missing:
            is_exactly_feasible(model, missing, len(rows), "exact")
            needed += float(Auto().plan(_left(model.hypergraph, missing)).flops) * len(rows)
    if needed > max_operations:
        problem = f"summing them over needs {needed:.3g} operations, the limit is {max_operations:.3g}"
        hint = "leave out the rows that miss most, or complete the rows first"
        raise out_of_reach("rows with missing cells", problem, hint)
    # Complete rows are looked up; the others are conditioned on what is known.
    for missing, rows in patterns:
        if not missing:
            for part in rows.split(max(1, _LOOK_UPS_PER_CALL // max(1, len(model.hypergraph)))):
                values[part] = -model.energy(codes[part])
            continue
        for part in exact_portions(model, missing, rows):
            laws, constant = condition_rows(model, missing, codes[part].long())
            values[part] = Auto().log_partition(laws).value + constant
    return values[inverse]


def possible_patterns(data: Observations, excluded: torch.Tensor) -> list[tuple[tuple[str, ...], torch.Tensor]]:
    """:func:`~pyro_hoim.core.prediction.row_patterns` of the rows that are not ``excluded``, (N,)."""
    patterns = [(missing, rows[~excluded[rows]]) for missing, rows in row_patterns(data)]
    return [(missing, rows) for missing, rows in patterns if len(rows)]


def impossible_rows(model: LogLinearEnergy, codes: torch.Tensor) -> torch.Tensor:
    """Which rows (N, d) have known cells of probability zero together under one model, (N,) booleans.

    Exact, also where the missing cells have no possible completion; where that would take too many operations to find
    out, a row of which no excluded combination is known counts as possible.
    """
    states = ImpossibleStates.of_energy(model)
    if states is None or not len(codes):
        return torch.zeros(len(codes), dtype=torch.bool)
    # Known cells that hold an excluded combination.
    structure = states.structure
    columns = sorted({i for members in structure.edge_indices for i in members})
    domain = model.domain.project([model.domain.names[i] for i in columns])
    graph = InteractionHypergraph(domain, structure.edges, hierarchical=False)
    unique, inverse = torch.unique(codes[:, columns], dim=0, return_inverse=True)
    is_impossible = torch.zeros(len(unique), dtype=torch.bool)
    for _, is_holder, _ in ImpossibleStates(graph, states.excluded).holders(unique):
        is_impossible |= is_holder
    # Rows all of whose completions hold one: sums over these of all but nothing.
    left = (~is_impossible & (unique < 0).any(1)).nonzero().squeeze(1)
    if len(left):
        excluded = states.excluded.cpu()
        walls = LogLinearEnergy(graph, torch.where(excluded, _EXCLUDED, torch.zeros((), dtype=torch.float64)))
        try:
            logs = row_log_weights(walls, Observations.from_tensor(unique[left], domain))
        except IntractableError:
            return is_impossible[inverse]
        is_impossible[left] = logs < _EXCLUDED / 2
    return is_impossible[inverse]


def row_chains(
    model: LogLinearEnergy, missing: Sequence[str], codes: torch.Tensor, num_chains: int, gibbs: ClampedGibbs, seed: int
) -> GibbsChains:
    """Chains (R * num_chains) of what rows, codes (R, d), miss, annealed and burnt in; those of a row side by side.

    They begin in states that are possible given what is known of their row, of which there have to be some.
    """
    gone = set(missing)
    clamped = {
        name: codes[:, i].repeat_interleave(num_chains) for i, name in enumerate(model.domain.names) if name not in gone
    }
    chains = GibbsChains(model, len(codes) * num_chains, clamped=clamped, seed=seed)
    if chains.connectedness == "refuted":  # of many rows it is mostly untested
        chains.warn_unless_connected("method 'gibbs'")
    chains.anneal(torch.linspace(0, 1, gibbs.num_temperatures + 1, dtype=torch.float64))
    chains.sweep(gibbs.burn_in)
    return chains


# Filling missing cells of rows from a fitted model: several random completions, or the most probable one.


def impute(
    model: LogLinearEnergy,
    data: DataLike,
    num_imputations: int = 1,
    *,
    how: Literal["draws", "most probable"] = "draws",
    method: RowMethod = "auto",
    gibbs: ClampedGibbs | None = None,
    seed: int = 0,
) -> Imputation:
    r"""Fill the missing cells of every row given its known cells.

    .. math:: x_M \sim q(x_M \mid x_O) \qquad \text{or} \qquad x_M = \arg\max q(x_M \mid x_O)

    Draws (multiple imputation) keep the spread and the dependence of what is missing; the most probable completion
    makes the data look more alike than they are. Exact where conditioning on the known cells leaves a law within reach;
    otherwise every draw is the last state of a Gibbs chain of its own, and the most probable completion a local maximum
    near the best state that the chains visited. The uncertainty of the model's parameters is not included. A row whose
    known cells have probability zero together stays as it is, and is not exact.

    Args:
        model: one model.
        data: rows over the model's variables, or over some of them; the others are missing.
        num_imputations: completions of every row; 1 for the most probable one.
        how: ``draws`` or ``most probable``.
        method: as in :func:`~pyro_hoim.log_linear.given.predict`.
        gibbs: length of the chains; defaults of :class:`~pyro_hoim.core.prediction.ClampedGibbs`.
        seed: seed of everything random.

    Raises:
        InputError: another domain, a batch of models, unknown options, a seed out of range, or several most probable
            completions.
        IntractableError: ``exact`` beyond the reach of the backends.

    References:
        Donald Rubin, Multiple Imputation for Nonresponse in Surveys, 1987.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph, Observations
        >>> graph = InteractionHypergraph.saturated(Domain.from_labels({"rain": ["no", "yes"], "wet": ["no", "yes"]}))
        >>> model = LogLinearEnergy.from_theta(graph, torch.tensor([0.0, 0.0, 9.0], dtype=torch.float64))
        >>> rows = Observations.from_tensor(torch.tensor([[0, -1], [-1, 1]]), graph.domain)
        >>> impute(model, rows).codes.tolist()
        [[[0, 0], [1, 1]]]
    """
    check_energy(model)
    check_count(num_imputations, "num_imputations")
    seed = checked_seed(seed)
    check_choice(how, ("draws", "most probable"), "how")
    if how == "most probable" and num_imputations > 1:
        raise conflict("num_imputations", "there is one most probable completion of a row", "ask for 1 or for draws")
    data = extend_rows(data, model.domain)
    check_model(model, data.domain, method)
    settings = checked_gibbs(gibbs)
    generator = torch.Generator().manual_seed(seed)
    check_cells(
        num_imputations, data.codes.numel(), "num_imputations", "make fewer imputations, or of fewer rows at a time"
    )
    # Rows whose known cells have probability zero stay as they are.
    codes = data.codes.repeat(num_imputations, 1, 1)
    is_incomplete = (data.codes < 0).any(1)
    excluded = torch.zeros_like(is_incomplete)
    excluded[is_incomplete] = impossible_rows(model, data.codes[is_incomplete])
    is_exact, num_incomplete = ~excluded, int(is_incomplete.sum())
    for missing, rows in possible_patterns(data, excluded):
        columns = torch.tensor(data.domain.indices(missing), dtype=torch.long)
        if not missing:
            continue
        # Rows with one pattern are done together, exactly where their conditional model is within reach.
        if is_exactly_feasible(model, missing, num_incomplete, method):
            for part in exact_portions(model, missing, rows):
                laws, _ = condition_rows(model, missing, data.codes[part])
                states = (
                    Auto().sample(laws, (num_imputations,), generator)
                    if how == "draws"
                    else Auto().mode(laws)[0].unsqueeze(0)
                )
                codes[:, part[:, None], columns] = states
            continue
        is_exact[rows] = False
        num_chains = num_imputations if how == "draws" else settings.num_chains
        for part in chain_portions(rows, num_chains):
            codes[:, part[:, None], columns] = _by_chains(
                model, missing, data.codes[part], num_chains, settings, generator, how
            )[..., columns]
    return Imputation(data, codes, is_exact, how)


def _by_chains(
    model: LogLinearEnergy,
    missing: tuple[str, ...],
    codes: torch.Tensor,
    num_chains: int,
    gibbs: ClampedGibbs,
    generator: torch.Generator,
    how: str,
) -> torch.Tensor:
    """Completions (k, R, d) of rows, codes (R, d): the ends of all chains, or the best states that they met."""
    chains = row_chains(model, missing, codes, num_chains, gibbs, drawn_seed(generator))
    if how == "draws":
        return chains.states.reshape(len(codes), num_chains, -1).movedim(1, 0)
    # State of least energy that the chains of every row visit, (num_rows, d).
    num_rows = len(codes)
    best = chains.states.clone()
    least = chains.energy.clone()
    for _ in range(gibbs.num_records):
        chains.sweep(gibbs.thin)
        energy = chains.energy
        better = energy < least
        least = torch.where(better, energy, least)
        best[better] = chains.states[better]
    chosen = least.reshape(num_rows, -1).argmin(1)
    best = best.reshape(num_rows, -1, len(model.domain))[torch.arange(num_rows), chosen]
    return _ascend(model, best, list(model.domain.indices(missing))).unsqueeze(0)


def _ascend(model: LogLinearEnergy, states: torch.Tensor, columns: list[int]) -> torch.Tensor:
    """Set variables to their most probable level in turn until nothing changes, (R, d); float64 avoids circles."""
    model = model.to(dtype=torch.float64)
    states = states.clone()
    moving = torch.arange(len(states))
    while len(moving):
        before = states[moving]
        now = before.clone()
        for column in columns:
            log_probs = model.block_conditional([model.domain.names[column]], now)
            gain = log_probs.max(1).values - log_probs.gather(1, now[:, column, None]).squeeze(1)
            now[:, column] = torch.where(gain > 1e-12, log_probs.argmax(1), now[:, column])
        states[moving] = now
        moving = moving[(now != before).any(1)]
    return states


# Prediction of any variable from the others with one joint model (paper 1, section 5.3 and table 3).

_LOOK_UPS_PER_PREDICTION = 2**21


def predict(
    model: LogLinearEnergy,
    data: DataLike,
    target: str,
    *,
    method: RowMethod = "auto",
    gibbs: ClampedGibbs | None = None,
    seed: int = 0,
) -> Prediction:
    r"""Conditional law of one variable in every row given the row's other known cells.

    .. math:: q(x_t \mid x_O) = \frac{\sum_{x_M} \exp(-E(x_t, x_O, x_M))}{\sum_{x'_t, x_M} \exp(-E(x'_t, x_O, x_M))}

    Where no other cell is missing this is a softmax over look-ups, exact at any size. With missing cells M the sum is
    exact where conditioning on the known cells leaves a law within reach; otherwise the conditional probabilities along
    Gibbs chains of the target and the missing cells are averaged (Rao-Blackwell); their standard errors know nothing of
    modes that no chain of a row entered. The target of a row is never read for its own prediction. A row whose other
    known cells have probability zero together gets none: NaN, and not exact.

    Args:
        model: one model.
        data: rows over the model's variables, or over some of them; the others are missing.
        target: the variable to predict.
        method: ``auto``: exact where a row needs at most 2e7 operations or all rows together at most 2e9, else Gibbs;
            ``exact``: exact or refused; ``gibbs``: chains wherever another cell than the target is missing.
        gibbs: length and number of the chains; defaults of :class:`ClampedGibbs`.
        seed: seed of the chains.

    Raises:
        InputError: another domain, a batch of models, a seed out of range, or an unknown method.
        IntractableError: ``exact`` beyond the reach of the backends.
        UnknownNameError: ``target`` is no variable of the model.

    References:
        Paper 1, section 5.3.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph, Observations
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> model = LogLinearEnergy.from_theta(graph, torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64))
        >>> rows = Observations.from_tensor(torch.tensor([[0, -1], [1, -1]]), graph.domain)
        >>> predict(model, rows, "b").probs.round(decimals=4).tolist()  # 1 / (1 + exp(-1)) for the level of a
        [[0.7311, 0.2689], [0.2689, 0.7311]]
    """
    # Rows, the target hidden in them.
    check_energy(model)
    check_names([target], model.domain.names, "target")
    seed = checked_seed(seed)
    data = extend_rows(data, model.domain, (target,))
    check_model(model, data.domain, method)
    column, size = data.domain.index(target), data.domain[target].cardinality
    # The target is hidden, so that equal rows are predicted once.
    hidden = data.codes.clone()
    hidden[:, column] = -1
    codes, inverse = torch.unique(hidden, dim=0, return_inverse=True)
    rows = Observations.from_tensor(codes, data.domain)
    excluded = impossible_rows(model, codes)
    log_probs = torch.full((len(codes), size), math.nan, dtype=torch.float64)
    std_error = torch.where(excluded[:, None], math.nan, torch.zeros_like(log_probs))
    is_exact = ~excluded
    generator = torch.Generator().manual_seed(seed)
    settings = checked_gibbs(gibbs)
    degree = sum(target in edge for edge in model.hypergraph.edges)
    most = max(1, _LOOK_UPS_PER_PREDICTION // max(1, size * degree))
    num_incomplete = int(((codes < 0).sum(1) > 1).sum())
    # Of the target alone a conditional is a look-up; else exact sums, and beyond their reach chains.
    for missing, positions in possible_patterns(rows, excluded):
        if missing == (target,):
            for part in positions.split(most):
                log_probs[part] = model.block_conditional([target], codes[part]).double()
        elif is_exactly_feasible(model, missing, num_incomplete, method, keep=[target]):
            for part in exact_portions(model, missing, positions):
                laws, _ = condition_rows(model, missing, codes[part])
                log_probs[part] = Auto().log_marginal(laws, [target]).double()
        else:
            is_exact[positions] = False
            for part in chain_portions(positions, settings.num_chains):
                chains = row_chains(model, missing, codes[part], settings.num_chains, settings, drawn_seed(generator))
                probs, error = chain_averages(chains, settings, size, most, partial(model.block_conditional, [target]))
                log_probs[part], std_error[part] = probs.log(), error
    return Prediction.of(data, target, log_probs[inverse], std_error[inverse], is_exact[inverse])


# Synthetic rows drawn from a fitted model.


def synthesise(
    model: LogLinearEnergy,
    num_rows: int,
    seed: int = 0,
    *,
    method: RowMethod = "auto",
    burn_in: int = AnnealedImportance.burn_in,
) -> Observations:
    """Independent rows of a model.

    Exact draws where a backend accepts the model; otherwise every row is the last state of a Gibbs chain of its own,
    led to the model through 100 temperatures and then burnt in. Use ``to_pandas(count=None)`` for a data frame.

    Args:
        model: one model.
        num_rows: how many rows.
        seed: seed of the draws.
        method: ``exact`` (or refused), ``gibbs`` (approximate), or ``auto``: exact where possible.
        burn_in: sweeps of a chain after annealing.

    Raises:
        InputError: a batch of models, a number of rows below 1, a seed out of range, or an unknown method.
        IntractableError: ``exact`` beyond the reach of the backends.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> model = LogLinearEnergy.from_theta(graph, torch.tensor([0.0, 0.0, 20.0], dtype=torch.float64))  # b as a
        >>> rows = synthesise(model, 1000)
        >>> rows.codes.shape, bool((rows.codes[:, 0] == rows.codes[:, 1]).all())
        (torch.Size([1000, 2]), True)
    """
    check_energy(model)
    check_count(num_rows, "num_rows")
    check_count(burn_in, "burn_in", 0)
    seed = checked_seed(seed)
    check_model(model, model.domain, method)
    generator = torch.Generator().manual_seed(seed)
    cost = Auto().plan(model.hypergraph)
    if method == "exact" and not cost.feasible:
        raise out_of_reach("method", cost.reason, "'gibbs' draws approximately, at any size")
    if cost.feasible and method != "gibbs":
        codes = Auto().sample(model, (num_rows,), generator)
    else:
        codes = AnnealedImportance(burn_in=burn_in).sample(model, (num_rows,), generator)
    return Observations.from_tensor(codes, model.domain)
