"""Options of root regressions, checked when they are made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from ...errors import (
    check_choice,
    check_fraction,
    check_positive,
    check_type,
    check_whole,
    is_real,
    is_whole,
    out_of_range,
    wrong_type,
)

__all__ = ["Candidates", "L1Rule", "Refit", "RootSettings", "Symmetrize", "checked_settings"]

Candidates = Iterable[Iterable[str]] | Mapping[int, Iterable[Iterable[str]]]
Symmetrize = Literal["mean", "and", "or"]
Refit = Literal["none", "singles", "all"]
Objective = Literal["log-partition", "upper-bound"]
Stop = Literal["residual", "published"]


@dataclass(frozen=True, eq=False)
class RootSettings:
    """How root regressions are searched, solved, joined and refitted.

    Args:
        candidates: tuples that may be used, of sizes 2 to the order. Sizes of which none is given are searched whole,
            as far as size 3; a mapping from sizes to tuples may hold an empty size. Sizes from 4 on that are not given
            are listed in full where that is possible.
        stagewise: fit order 2 first, then search only the cliques of its joint model's pairs, size by size; each
            penalty of a path then starts afresh.
        symmetrize: ``mean``, ``and`` or ``or``; see :class:`~pyro_hoim.generalized_root.RootFitResult`.
        refit_share: share of the penalties that a refit of ``all`` keeps, from 0, where the optimum may lie at
            infinity, to 1. A half did well on held-out rows; less is better where rows are many.
        tolerance: largest KKT residual of a node: distance of a subgradient from zero, over all features. Where the
            mean of feature x root is beyond 10^4 (huge counts), it is in units of its 10^-4 part.
        max_iterations: most Newton steps of a node and penalty, and of a refit.
        max_work: most multiplications that the scans of all nodes may need.
        objective: what a node minimises: ``log-partition``, the exact one, or ``upper-bound``, the certified bound of
            paper 2 in its place (Poisson and truncated Poisson only), at some fifty times the cost. A bound on few
            subdomains jumps where one of them moves, so that steps may stall: take more of them, or the published
            stop. The refit and the log pseudo-likelihood stay exact.
        num_subdomains: of ``upper-bound``: number of subdomains, from 1; the paper's 10 query points are 9.
        stop: ``residual``, the tolerance; or ``published``, the rule of the authors' program: at most 30 Newton steps,
            ended by the first that would lower the objective by less than 1e-5 of itself, which is not taken. The
            status is then ``stopped``, without a warning, and the residual says how far from the optimum that is.
        jobs: nodes (of a refit: columns, or parts of the rows) at a time, as ``n_jobs`` of :class:`joblib.Parallel`;
            default one, or what a surrounding :func:`joblib.parallel_config` says, which also chooses processes or a
            Dask cluster in place of threads. The result does not depend on it.
        false_discovery_rate: share of the sets of the confirmed model that are absent from the law of the rows, on
            average at most, between 0 and 1; None for no confirmed model. See
            :func:`~pyro_hoim.generalized_root.confirm_roots`.

    Raises:
        InputError: a number out of range, or an unknown way to symmetrize.
        InputTypeError: ``refit_share`` or ``jobs`` is no number.

    Example:
        >>> from pyro_hoim import fit_roots
        >>> x = [[2, 1], [0, 0], [1, 3], [3, 2], [9, 8], [0, 1]]
        >>> fit_roots(x, order=2, settings=RootSettings(candidates={2: []})).num_interactions
        0
        >>> fit_roots(x, order=2, settings=RootSettings(candidates=[("x0", "x1")])).num_interactions
        1
    """

    candidates: Candidates | None = None
    stagewise: bool = False
    symmetrize: Symmetrize = "mean"
    refit_share: float = 0.5
    tolerance: float = 1e-6
    max_iterations: int = 500
    max_work: float = 1e13
    objective: Objective = "log-partition"
    num_subdomains: int = 9
    stop: Stop = "residual"
    jobs: int | None = None
    false_discovery_rate: float | None = 0.1

    def __post_init__(self) -> None:
        check_choice(self.symmetrize, get_args(Symmetrize), "symmetrize")
        if not is_real(self.refit_share):
            raise wrong_type("refit_share", "a number", received=repr(self.refit_share))
        if not 0 <= self.refit_share <= 1:
            raise out_of_range("refit_share", "a share from 0 to 1", self.refit_share)
        check_positive(self.tolerance, "tolerance")
        check_whole(self.max_iterations, "max_iterations")
        check_choice(self.objective, get_args(Objective), "objective")
        check_whole(self.num_subdomains, "num_subdomains")
        check_choice(self.stop, get_args(Stop), "stop")
        if self.false_discovery_rate is not None:
            check_fraction(self.false_discovery_rate, "false_discovery_rate")
        if self.jobs is not None and not is_whole(self.jobs):
            raise wrong_type("jobs", "a whole number", received=repr(self.jobs))
        if self.jobs == 0:
            raise out_of_range("jobs", "a number of nodes at a time, or a negative one as joblib reads it", 0)


@dataclass(frozen=True)
class L1Rule:
    """How a penalty is chosen; see :func:`~pyro_hoim.generalized_root.choose_l1`.

    Args:
        name: ``held-out``, ``ebic`` or ``stability``.
        folds: of ``held-out``: number of parts, each left out in turn.
        gamma: of ``ebic``: weight of the extended part, from 0 (plain BIC) to 1.
        num_subsamples: of ``stability``.
        limit: of ``stability``: largest instability, above 0 and below 1/2.

    Raises:
        InputError: an unknown name, or a number out of range.

    Example:
        >>> try:
        ...     L1Rule("ebic", gamma=2.0)
        ... except ValueError as error:
        ...     print(error)
        gamma: expected a number from 0 to 1, received 2.0
    """

    name: Literal["held-out", "ebic", "stability"] = "held-out"
    folds: int = 5
    gamma: float = 0.5
    num_subsamples: int = 20
    limit: float = 0.05

    def __post_init__(self) -> None:
        check_choice(self.name, ("held-out", "ebic", "stability"), "rule")
        check_whole(self.folds, "folds", 2)
        if not 0 <= self.gamma <= 1:
            raise out_of_range("gamma", "a number from 0 to 1", self.gamma)
        check_whole(self.num_subsamples, "num_subsamples", 2)
        if not 0 < self.limit < 0.5:
            raise out_of_range("limit", "an instability above 0 and below 1/2", self.limit)


def checked_settings(settings: RootSettings | None) -> RootSettings:
    """The settings, or those by default."""
    if settings is None:
        return RootSettings()
    check_type(settings, RootSettings, "settings")
    return settings
