"""Rows with missing cells: their likelihood by summing over completions, and maximum likelihood by EM."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from tqdm import tqdm

from ...core.partition import PartitionBackend
from ...core.prediction import row_patterns
from ...core.words import plural
from ...data.frames import DataLike, as_observations
from ...data.observations import Observations
from ...errors import (
    ConvergenceWarning,
    NonexistentEstimateWarning,
    caller_level,
    conflict,
    other_domain,
    out_of_range,
    out_of_reach,
    refused,
    size_text,
)
from ...structure.hypergraph import InteractionHypergraph
from ..auto import Auto
from ..energy import LogLinearEnergy, check_energy
from ..given import impossible_rows, possible_patterns
from ..restricted.terms import RestrictedInteractions
from .existence import check_rows_possible, structural_states
from .fit import fit
from .result import FitResult

_MAX_COMPLETIONS = 2**22
_NEGLIGIBLE = 1e-6  # of a share of a row that may be zero in the limit


def _completions(data: Observations, missing: Sequence[str], rows: torch.Tensor) -> torch.Tensor:
    """All completions of rows that miss some variables: (R, C, d)."""
    codes = data.codes[rows].unsqueeze(1)
    if not missing:
        return codes
    grid = torch.cartesian_prod(*(torch.arange(data.domain[name].cardinality) for name in missing))
    codes = codes.repeat(1, len(grid), 1)
    codes[:, :, data.domain.indices(missing)] = grid.reshape(len(grid), -1)
    return codes


def _num_completions(data: Observations, missing: Sequence[str]) -> int:
    return math.prod(data.domain[name].cardinality for name in missing)


def row_log_likelihood(
    model: LogLinearEnergy | FitResult,
    data: DataLike,
    partition: PartitionBackend | None = None,
    *,
    normalised: bool = True,
) -> torch.Tensor:
    r"""Log-probability of every row, summed over what it misses, (N, *batch), in nats.

    .. math:: \log q(x_O) = \log \sum_{x_M} \exp(-E(x_O, x_M)) - \log Z

    Rows with few completions are summed directly; a row whose completions need more than 2^22 look-ups goes through the
    backend on the model conditioned on its known cells. Exact; the counts of the rows play no role. Minus infinity for
    rows whose known cells have probability zero.

    Args:
        model: an energy, with a batch of parameters or without, or a fit; gradients reach the tables of an energy.
        data: rows over the model's domain, missing cells as -1; or a data frame.
        partition: exact backend; :class:`~pyro_hoim.log_linear.Auto` by default.
        normalised: subtract log Z; without it, the result compares rows under one model.

    Raises:
        InputError: another domain.
        InputTypeError: a law in the place of its energy.
        IntractableError: the backend refuses.

    Example:
        >>> from pyro_hoim import Domain
        >>> hypergraph = InteractionHypergraph.saturated(Domain.from_cardinalities([2, 2]))
        >>> model = LogLinearEnergy.from_theta(hypergraph, torch.zeros(3, dtype=torch.float64))
        >>> data = Observations.from_tensor(torch.tensor([[0, 1], [0, -1], [-1, -1]]), hypergraph.domain)
        >>> (-row_log_likelihood(model, data).exp().log2()).abs().round().tolist()
        [2.0, 1.0, 0.0]
    """
    model = model.model if isinstance(model, FitResult) else model
    check_energy(model)
    # Equal rows are looked at once.
    data = as_observations(data, domain=model.domain)
    if data.domain != model.domain:
        expected = "the variables and labels of the model's domain"
        raise other_domain("data", expected, hint="read the file with domain=...")
    backend = partition if partition is not None else Auto()
    unique = data.codes.unique(dim=0, return_inverse=True) if len(data.codes) else (data.codes, torch.zeros(0).long())
    rows = Observations.from_tensor(unique[0], data.domain)
    batch = model.batch_shape
    values = torch.full((len(rows.codes), *batch), -math.inf, dtype=model.dtype)
    # Rows that miss the same cells share their completions; where these are too many, log Z of the rest is asked.
    for missing, positions in possible_patterns(rows, impossible_rows(model, rows.codes)):
        look_ups = _num_completions(rows, missing) * max(1, len(model.hypergraph)) * max(1, batch.numel())
        if look_ups <= _MAX_COMPLETIONS:
            step = max(1, _MAX_COMPLETIONS // look_ups)
            for part in positions.split(step):
                codes = _completions(rows, missing, part)
                energy = model.energy(codes.reshape(*codes.shape[:2], *(1 for _ in batch), codes.shape[2]))
                values[part] = torch.logsumexp(-energy, 1)
        else:
            for position in positions.tolist():
                codes = zip(rows.domain.names, rows.codes[position].tolist(), strict=True)
                rest, constant = model.condition({name: code for name, code in codes if code >= 0})
                values[position] = backend.log_partition(rest).value + constant
    values = values[unique[1]]
    return values - backend.log_partition(model).value if normalised else values


def _first_shares(structure: InteractionHypergraph, completed: torch.Tensor, zeros: Any) -> torch.Tensor:
    """Equal shares (R, C) of the completions (R, C, d) of rows; none of those that are structural zeros."""
    shares = torch.ones(completed.shape[:2], dtype=torch.float64)
    if zeros is not None:
        flat = LogLinearEnergy(structure, torch.zeros(structure.num_terms, dtype=torch.float64))
        shares[torch.isposinf(zeros.applied(flat).energy(completed))] = 0.0
        is_lost = shares.sum(1) == 0
        if lost := int(is_lost.sum()):
            # What all completions of the first row share is what is known of it.
            first, names = completed[is_lost][0], structure.domain.names
            known = [i for i in range(len(names)) if bool((first[:, i] == first[0, i]).all())]
            words = ", ".join(f"{names[i]}={structure.domain[names[i]].labels[int(first[0, i])]}" for i in known)
            every = f"every completion of {plural(lost, 'distinct row')} is marked as impossible"
            raise refused("structural_zeros", f"{every}, the first with {words}", code="impossible")
    return shares / shares.sum(1, keepdim=True)


def _without_negligible(shares: torch.Tensor) -> torch.Tensor:
    """Shares (R, C) of which those that are all but zero are zero."""
    left = shares.masked_fill(shares < _NEGLIGIBLE, 0.0)
    return left / left.sum(1, keepdim=True)


def fit_incomplete(
    hypergraph: InteractionHypergraph | RestrictedInteractions,
    data: DataLike,
    *,
    tolerance: float = 1e-12,
    max_iterations: int = 1000,
    partition: PartitionBackend | None = None,
    progress: bool = False,
    **options: Any,
) -> FitResult:
    r"""Maximum likelihood from rows with missing cells, marginalised under "missing at random", by EM.

    .. math:: \max_\theta \sum_i w_i \log \sum_{x_M} q_\theta(x_{i, O}, x_M)

    The E step spreads the count of a row over its completions in proportion to the current model, the M step is
    :func:`~pyro_hoim.log_linear.fit` of the completed counts. The likelihood less a penalty never falls; its maximum
    may be local.

    Args:
        hypergraph: the interactions, restricted or not.
        data: rows with missing cells as -1.
        tolerance: stop when the mean log-likelihood of a row rises by less, in nats.
        max_iterations: EM steps at most.
        partition: exact backend; ``Auto`` by default.
        progress: show a progress bar on standard error.
        options: passed to every M step.

    Returns:
        The last M step's result with ``data`` as given; its ``log_likelihood`` is that of the observed cells, its
        standard errors are those of the observed information. Tests of complete tables refuse it.

    Raises:
        InputError: the objective is a bound.
        IntractableError: the rows have more than 2^22 completions together; drop rows or name missing cells a level.
        KeyboardInterrupt: Ctrl-C during an M step.

    Warns:
        ConvergenceWarning: ``max_iterations`` was reached.
        NonexistentEstimateWarning: the estimate is infinite; the offending combinations are named.

    References:
        A. P. Dempster, N. M. Laird and D. B. Rubin, Maximum Likelihood from Incomplete Data via the EM Algorithm, 1977.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph, Observations
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> rows = Observations.from_tensor(torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1], [0, -1]]), domain)
        >>> result = fit_incomplete(InteractionHypergraph.saturated(domain), rows)
        >>> result.probs.round(decimals=4).tolist()  # 3/5 of the rows have a = 0; half of each known b is 0
        [0.3, 0.3, 0.2, 0.2]
    """
    # Complete rows need no completions.
    structure = hypergraph.hypergraph if isinstance(hypergraph, RestrictedInteractions) else hypergraph
    data = as_observations(data, domain=structure.domain)
    merged = data.unique()
    if not merged.has_missing:
        return fit(hypergraph, data, partition=partition, **options)
    zeros = options["structural_zeros"] = structural_states(structure.domain, options.get("structural_zeros"))
    check_rows_possible(zeros, merged)
    if options.get("objective") == "bound":
        problem = "missing cells are summed over by the likelihood, and a bound of it needs complete rows"
        raise conflict("objective", problem, "drop the rows, or fit with objective='likelihood'")
    # All completions, with equal shares at first.
    patterns = list(row_patterns(merged))
    total = sum(len(rows) * _num_completions(merged, missing) for missing, rows in patterns)
    if total > _MAX_COMPLETIONS:
        problem = f"marginalising them needs {size_text(total, 'completed rows')}, the limit is {_MAX_COMPLETIONS}"
        raise out_of_reach("missing cells", problem, "drop the rows (drop) or make missing a level of its own")
    completed = [_completions(merged, missing, rows) for missing, rows in patterns]
    codes = torch.cat([part.flatten(0, 1) for part in completed])
    counts = [merged.counts[rows].unsqueeze(-1) for _, rows in patterns]
    shares = [_first_shares(structure, part, zeros) for part in completed]

    def step(shares: Sequence[torch.Tensor]) -> tuple[FitResult, list[torch.Tensor], float, float]:
        """M step of the counts by the shares, then the E step: shares, likelihood of what was observed, and value."""
        weights = torch.cat([(n * s).flatten() for n, s in zip(counts, shares, strict=True)])
        spread = Observations.from_tensor(codes, merged.domain, weights=weights).unique()
        # Said once, of the last step.
        with warnings.catch_warnings(action="ignore", category=NonexistentEstimateWarning):
            result = fit(hypergraph, spread, partition=partition, **options)
        if result.status == "interrupted":
            raise KeyboardInterrupt
        log_z = (partition if partition is not None else Auto()).log_partition(result.model).value
        scores = [-result.model.energy(part) - log_z for part in completed]
        likelihood = float(sum((n.squeeze(-1) * s.logsumexp(-1)).sum() for n, s in zip(counts, scores, strict=True)))
        return result, [s.softmax(-1) for s in scores], likelihood, likelihood - result.penalty_value

    # Alternate: counts by the shares are fitted, and the fit says the shares.
    result, last, likelihood, status = None, -math.inf, -math.inf, "max_iterations"
    for _ in tqdm(range(max_iterations), desc="EM", disable=not progress, leave=False):
        result, shares, likelihood, value = step(shares)
        gain, last = value - last, value
        if gain < tolerance * data.total_count:
            status = result.status
            break
    # Shares that fall towards zero reach it only in the limit, which is better or as good where they belong there.
    if result is not None and any(bool(((s > 0) & (s < _NEGLIGIBLE)).any()) for s in shares):
        limit = step([_without_negligible(part) for part in shares])
        if limit[3] >= last - tolerance * data.total_count:
            result, _, likelihood, _ = limit
            status = result.status if status != "max_iterations" else status
    # What a user should know of how it ended.
    if result is None:
        raise out_of_range("max_iterations", "at least 1", received=max_iterations)
    if status == "max_iterations":
        warnings.warn(
            ConvergenceWarning(f"EM stopped after {max_iterations} steps before its tolerance {tolerance} was met"),
            stacklevel=caller_level(),
        )
    if result.existence is not None and result.existence.exists is False:
        warnings.warn(NonexistentEstimateWarning(result.existence.describe()), stacklevel=caller_level())
    return replace(result, data=data, log_likelihood=likelihood, num_rows=data.total_count, status=status)
