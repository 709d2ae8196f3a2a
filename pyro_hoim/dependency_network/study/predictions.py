"""Prediction, completion of rows and draws with a dependency network."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from ...budgets import check_cells
from ...core.prediction import Imputation, Prediction, extend_rows
from ...core.rows import (
    METHODS,
    ClampedGibbs,
    RowMethod,
    chain_averages,
    chain_portions,
    check_count,
    checked_gibbs,
    drawn_seed,
    row_patterns,
)
from ...data.frames import DataLike
from ...data.observations import Observations
from ...errors import check_choice, check_names, out_of_reach, size_text
from ...runs.arguments import checked_seed
from ..chains.ergodicity import check_ergodic
from ..chains.pseudo_gibbs import PseudoGibbsChains
from ..conditionals import DependencyConditionals, checked_conditionals
from ..node_conditionals import LeafConditional, NodeConditional
from ..stationary import stationary_law

_MAX_STATES = 2**16
_LOOK_UPS_PER_CALL = 2**20
_PORTION = 2**14


def predict_network(
    conditionals: DependencyConditionals,
    data: DataLike,
    target: str,
    *,
    method: RowMethod = "auto",
    gibbs: ClampedGibbs | None = None,
    seed: int = 0,
) -> Prediction:
    r"""Conditional law of one variable in every row (paper 5, sections 2 and 5): :math:`\theta_t(x_t \mid x_{-t})`.

    One walk down the decision graph per row, whatever the size of the network. Missing cells that leave one leaf only
    do not matter. Otherwise conditional pseudo-Gibbs chains move the target and the missing cells with the known ones
    clamped, and the conditional probabilities of the target are averaged over their states.

    .. math:: \frac{1}{m} \sum_{k=1}^m \theta_t(\cdot \mid x_O, x_M^{(k)}), \qquad
        (x_t, x_M)^{(k)} \sim \pi'(\cdot \mid x_O)

    Args:
        conditionals: the network.
        data: rows over its variables, or over some of them; the others are missing.
        target: the variable to predict; its cells are never read for their own prediction.
        method: ``auto``; ``exact``: refuse rows that need chains; ``gibbs``: chains for all rows with other missing
            cells.
        gibbs: number and length of the chains; there is no annealing.
        seed: seed of the chains.

    Raises:
        InputError, InputTypeError, UnknownNameError: another domain, or arguments out of range or of the wrong type.
        IntractableError: ``exact`` and a row whose conditional depends on cells that are missing.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.dependency_network import TableConditional
        >>> domain = Domain.from_labels({"rain": ["no", "yes"], "wet": ["no", "yes"]})
        >>> table = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
        >>> nodes = [TableConditional(domain, "rain", ["wet"], table), TableConditional(domain, "wet", ["rain"], table)]
        >>> rows = Observations.from_tensor(torch.tensor([[0, -1], [1, 1]]), domain)
        >>> predict_network(DependencyConditionals(nodes), rows, "wet").labels_predicted
        ('no', 'yes')
    """
    data = extend_rows(data, checked_conditionals(conditionals).domain, (target,))
    check_names([target], data.domain.names, "target")
    check_choice(method, METHODS, "method")
    settings, generator = checked_gibbs(gibbs), torch.Generator().manual_seed(checked_seed(seed))
    node, column = conditionals.node(target), data.domain.index(target)
    # Rows that differ in the target alone have the same prediction.
    hidden = data.codes.clone()
    hidden[:, column] = -1
    codes, inverse = torch.unique(hidden, dim=0, return_inverse=True)
    log_probs = torch.empty(len(codes), data.domain[target].cardinality, dtype=torch.float64)
    std_error = torch.zeros_like(log_probs)
    is_exact = ~(((codes < 0).sum(1) > 1) if method == "gibbs" else _meets_missing(node, codes))
    if method == "exact" and not bool(is_exact.all()):
        asked = [n for n in node.reads if bool((codes[~is_exact, data.domain.index(n)] < 0).any())]
        raise out_of_reach(
            "method",
            f"exact prediction of {target!r} asks for cells that {int((~is_exact).sum())} distinct rows lack (in "
            f"{', '.join(map(repr, asked[:4]))}); method 'gibbs' averages over them",
        )
    # What the conditional asks is known in most rows: one walk down its graph.
    log_probs[is_exact] = node.log_probs(codes[is_exact].clamp(min=0)).double()
    is_lost = is_exact & log_probs.isneginf().all(1)
    # The others average over chains that hold their known cells, rows of one pattern together.
    waiting = (~is_exact).nonzero().squeeze(1)
    for missing, positions in row_patterns(Observations.from_tensor(codes[waiting], data.domain)):
        for part in chain_portions(waiting[positions], settings.num_chains):
            chains = _row_chains(conditionals, missing, codes[part], settings.num_chains, drawn_seed(generator))
            chains.sweep(settings.burn_in)
            size = log_probs.shape[1]
            most = max(1, _LOOK_UPS_PER_CALL // size)
            probs, error = chain_averages(chains, settings, size, most, lambda states: node.log_probs(states.long()))
            # A chain's states count as far as they leave a level possible.
            total = probs.sum(1, keepdim=True)
            log_probs[part], std_error[part] = (probs / total).log(), error / total
            is_lost[part] = total.squeeze(1) == 0
    log_probs[is_lost], std_error[is_lost], is_exact[is_lost] = math.nan, math.nan, False
    return Prediction.of(data, target, log_probs[inverse], std_error[inverse], is_exact[inverse])


def impute_network(
    conditionals: DependencyConditionals,
    data: DataLike,
    num_imputations: int = 1,
    *,
    gibbs: ClampedGibbs | None = None,
    seed: int = 0,
) -> Imputation:
    r"""Fill the missing cells of every row by conditional pseudo-Gibbs sampling given its known cells (algorithm 3).

    Every completion is the last state of a chain of its own, after ``burn_in`` sweeps from uniform levels.

    Args:
        conditionals: the network.
        data: rows over its variables, or over some of them; the others are missing.
        num_imputations: completions of every row.
        gibbs: ``burn_in`` is read, nothing else.
        seed: seed of the chains.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.dependency_network import TableConditional
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> nodes = [TableConditional(domain, name, [other], torch.eye(2)) for name, other in ("ab", "ba")]
        >>> rows = Observations.from_tensor(torch.tensor([[0, -1], [1, -1]]), domain)
        >>> impute_network(DependencyConditionals(nodes), rows).codes[0].tolist()  # each copies the other
        [[0, 0], [1, 1]]
    """
    data = extend_rows(data, checked_conditionals(conditionals).domain)
    check_count(num_imputations, "num_imputations")
    settings, generator = checked_gibbs(gibbs), torch.Generator().manual_seed(checked_seed(seed))
    hint = "make fewer imputations, or of fewer rows at a time"
    check_cells(num_imputations, data.codes.numel(), "num_imputations", hint)
    # Rows that lack the same cells share their chains.
    codes = data.codes.repeat(num_imputations, 1, 1)
    for missing, rows in row_patterns(data):
        columns = torch.tensor(data.domain.indices(missing), dtype=torch.long)
        for part in chain_portions(rows, num_imputations) if missing else ():
            chains = _row_chains(conditionals, missing, data.codes[part], num_imputations, drawn_seed(generator))
            chains.sweep(settings.burn_in)
            states = chains.states.reshape(len(part), num_imputations, -1).movedim(1, 0)
            codes[:, part[:, None], columns] = states[..., columns]
    return Imputation(data, codes, (data.codes >= 0).all(1), "draws")


@dataclass(frozen=True, eq=False)
class NetworkDraws:
    """Rows drawn from the law of a dependency network.

    Attributes:
        codes: the rows, long (N, d).
        is_exact: whether they are independent draws of the enumerated law.
        burn_in: sweeps of every chain before its row was taken; 0 where exact.
    """

    codes: torch.Tensor
    is_exact: bool
    burn_in: int


def draw_network(
    conditionals: DependencyConditionals,
    number: int,
    *,
    clamped: Mapping[str, str | int] | None = None,
    method: Literal["auto", "exact", "gibbs"] = "auto",
    burn_in: int = 200,
    seed: int = 0,
    advance: Callable[[int], Any] | None = None,
) -> NetworkDraws:
    r"""Draw rows from the law of the random scan, :math:`\pi`, or with clamped variables :math:`\pi'(x \mid x_C)` (2).

    Up to 65,536 states of the variables that are not clamped the law is enumerated and the draws are exact and
    independent. Otherwise every row is the last state of a pseudo-Gibbs chain of its own: no thinning, independent
    rows, biased by the start as far as ``burn_in`` sweeps have not removed it.

    Args:
        conditionals: the network.
        number: how many rows.
        clamped: label or code of variables held fixed; all of them leave copies of the evidence.
        method: ``exact``: the enumerated law or an error; ``gibbs``: chains; ``auto``: exact where possible.
        burn_in: sweeps before the row of a chain is taken.
        seed: seed of everything random.
        advance: called with the number of rows after every portion of them.

    Raises:
        InputError: no single limiting law (the states are named), evidence of probability zero, or numbers out of
            range.
        InputTypeError, UnknownNameError: arguments of the wrong type, an unknown variable or label.
        IntractableError: ``exact`` and too many states.

    Warns:
        ConvergenceWarning: zero probabilities leave it open whether there is a single limiting law.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.dependency_network import learn_network
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[40, 10], [10, 40]])
        >>> draws = draw_network(learn_network(rows).conditionals, 10_000)
        >>> draws.is_exact, round(float((draws.codes[:, 0] == draws.codes[:, 1]).double().mean()), 1)  # 80 of 100 rows
        (True, 0.8)
    """
    conditionals = checked_conditionals(conditionals)
    check_count(number, "number")
    check_count(burn_in, "burn_in", 0)
    check_choice(method, METHODS, "method")
    domain, seed = conditionals.domain, checked_seed(seed)
    evidence = domain.encode_state(clamped or {})
    check_ergodic(conditionals, evidence).require_law()
    free = domain.project([name for name in domain.names if name not in evidence])
    if method == "exact" and free.num_states > _MAX_STATES:
        raise out_of_reach(
            "method",
            f"exact draws need the enumerated law of {size_text(free.num_states, 'states')}, the limit is "
            f"{_MAX_STATES}; method 'gibbs' draws approximately, and clamping more variables leaves fewer states",
        )
    # Exact and independent draws from the enumerated law of the free columns.
    if method != "gibbs" and free.num_states <= _MAX_STATES:
        law = stationary_law(conditionals, clamped=evidence)
        codes = torch.empty((number, len(domain)), dtype=torch.long)
        generator = torch.Generator().manual_seed(seed)
        index = torch.multinomial(law.probs.reshape(-1), number, replacement=True, generator=generator)
        if len(free):
            codes[:, list(domain.indices(free.names))] = torch.stack(torch.unravel_index(index, free.cardinalities), -1)
        for name, code in evidence.items():
            codes[:, domain.index(name)] = code
        if advance is not None:
            advance(number)
        return NetworkDraws(codes, True, 0)
    # Else the last state of a chain for every row.
    parts: list[torch.Tensor] = []
    generator = torch.Generator().manual_seed(seed)
    for start in range(0, number, _PORTION):
        size, seed = min(_PORTION, number - start), drawn_seed(generator)
        chains = PseudoGibbsChains(conditionals, size, scan="random", clamped=evidence, seed=seed, check=False)
        chains.sweep(burn_in)
        parts.append(chains.states)
        if advance is not None:
            advance(len(parts[-1]))
    return NetworkDraws(torch.cat(parts), False, burn_in)


def _meets_missing(node: NodeConditional, codes: torch.Tensor) -> torch.Tensor:
    """Whether the conditional of a row (N, d) depends on cells that are missing, (N,)."""
    meets = (codes[:, list(node.domain.indices(node.reads))] < 0).any(1)
    if not isinstance(node, LeafConditional) or not bool(meets.any()):
        return meets
    # Which nodes a row may reach, its missing cells taking every level; parents come before children.
    graph, rows = node.graph.compiled, codes[meets]
    reached = torch.zeros((len(graph.variables), len(rows)), dtype=torch.bool)
    reached[0] = True
    for at, (variable, first) in enumerate(zip(graph.variables.tolist(), graph.offsets.tolist(), strict=True)):
        for level in range(node.domain.cardinalities[variable] if variable >= 0 else 0):
            cells = rows[:, variable]
            reached[graph.children[first + level]] |= reached[at] & ((cells == level) | (cells < 0))
    meets[meets.clone()] = reached[torch.from_numpy(graph.variables < 0)].sum(0) > 1
    return meets


def _row_chains(
    conditionals: DependencyConditionals, missing: tuple[str, ...], codes: torch.Tensor, num_chains: int, seed: int
) -> PseudoGibbsChains:
    """Chains of the missing variables of rows (R, d), those of one row next to each other."""
    columns = zip(conditionals.domain.names, codes.T, strict=True)
    clamped = {name: column.repeat_interleave(num_chains) for name, column in columns if name not in missing}
    size = len(codes) * num_chains
    return PseudoGibbsChains(conditionals, size, scan="random", clamped=clamped, seed=seed, check=False)
