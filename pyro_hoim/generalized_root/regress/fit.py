"""Generalized root models from l1-penalised regressions of every node on all others."""

from __future__ import annotations

import hashlib
import json
import re
import time
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from typing import Any, cast, get_args

import joblib
import numpy as np
import torch
from tqdm import tqdm
from typing_extensions import Unpack

from ...core.words import in_python, option
from ...data.frames import is_frame, is_source
from ...errors import (
    ConvergenceWarning,
    DataWarning,
    caller_level,
    check_choice,
    check_names,
    check_whole,
    conflict,
    out_of_reach,
    size_text,
    unexpected,
    wrong_type,
)
from ...runs.checkpoint import DeferredInterrupt, RunFile, RunOptions, check_arrays, check_equal, checked_run, part_of
from ..nodes.bound_kernels import LARGEST_COUNT
from ..nodes.families import GaussianFamily, IndicatorFamily, NodeFamily
from ..nodes.user_family import UserFamily
from ._regression import MOST_BYTES, Floats, Status
from .confirm import with_confirmed
from .mixed import RootTable, read_table, with_stated
from .node import NodeSolution, Outcome, advice, solve_node
from .options import (
    FamilyChoice,
    FrameColumns,
    Penalty,
    Refit,
    RootSettings,
    SearchSpace,
    checked_candidates,
    checked_families,
    checked_l1,
    checked_order,
    checked_settings,
    clique_candidates,
    search_space,
)
from .refit import refit_rows, warn_refits
from .result import RootFitResult
from .rows import RootRows, counted_numbers, kind_of_numbers, prepare_rows

# All nodes of a root regression on joblib's workers, with a checkpoint.

_ARRAYS = ("keys", "own", "others", "coefficients")
_NAMES = re.compile(r"(all|\d+\.\w+)\.\d+\.\d+\.(keys|own|others|coefficients|numbers)|refit\..*\.(coefficients|steps)")
_STATUSES: tuple[Status, ...] = ("converged", "fixed", "max_iterations", "stalled", "stopped")


class RegressionRun:
    """Solutions of all nodes, stage by stage, each along a path; the header is what a continued run must repeat."""

    def __init__(
        self, rows: RootRows, settings: RootSettings, progress: bool, file: RunFile | None, header: Mapping[str, Any]
    ) -> None:
        self.rows, self.settings, self.progress, self.file = rows, settings, progress, file
        self._tensors: dict[str, torch.Tensor] = {}
        if file is not None:
            self._tensors = file.start({**header, "data digest": rows.digest}) or {}
            with file.taking_up():
                for name in self._tensors:
                    if not _NAMES.fullmatch(name):
                        raise ValueError(f"an entry {name!r} that is not of this run")

    def solve(
        self, stage: str, spaces: Sequence[SearchSpace], warm: Sequence[NodeSolution] | None = None
    ) -> list[tuple[NodeSolution, ...]]:
        """Solutions of every node for every search space of a path, from those of an earlier stage where given.

        A category is one node.
        """
        # Nodes that the checkpoint does not hold.
        nodes = self.rows.nodes
        count = len(nodes)
        done = {i: self._restored(f"{stage}.{i}", i, _spaces_of(self.rows, i, spaces)) for i in nodes}
        missing = [i for i in nodes if not done[i]]
        bar = tqdm(total=count, initial=count - len(missing), unit="node", leave=False, disable=not self.progress)
        # The compiled parts release the interpreter lock: threads share the rows. A parallel_config overrides this.
        jobs = None if self.settings.jobs is None else min(self.settings.jobs, max(1, len(missing)))
        parallel = joblib.Parallel(n_jobs=jobs, prefer="threads", return_as="generator_unordered")
        tasks = (
            joblib.delayed(_numbered)(i, self.rows, spaces, self.settings, None if warm is None else warm[unit])
            for unit, i in enumerate(nodes)
            if not done[i]
        )
        # Solutions come in any order, and are kept as they come.
        try:
            stream = cast("Generator[tuple[int, tuple[NodeSolution, ...]]]", parallel(tasks))
            with closing(stream) as results, bar:
                for index, solutions in results:
                    done[index] = solutions
                    bar.update()
                    if self.file is not None:
                        self._tensors |= _entries(f"{stage}.{index}", solutions)
                        if self.file.is_due:
                            self._write()
        finally:
            if self.file is not None and self._tensors:
                self._write()
        return [done[i] for i in nodes]

    def refit(self, fit: RootFitResult, method: Refit, name: str) -> RootFitResult:
        """A refit of joined regressions; a refit of all terms is kept in the checkpoint step by step."""
        prefix = f"refit.{method}.{float(self.settings.refit_share)!r}.{fit.symmetrize}.{name}."

        # Where an interrupted refit stood, and what is kept of this one.

        def begin(size: int) -> tuple[Floats, int] | None:
            tensors = part_of(self._tensors, prefix)
            if self.file is None or not tensors:
                return None
            with self.file.taking_up():
                check_arrays(tensors, {"coefficients": (torch.float64, size), "steps": (torch.int64,)})
                if not bool(tensors["coefficients"].isfinite().all()):
                    raise ValueError("coefficients are not finite")
                return tensors["coefficients"].numpy(), check_whole(int(tensors["steps"]), "steps", 0)

        bar = tqdm(unit="step", desc="refit", leave=False, disable=not self.progress)

        def advance(coefficients: Floats, steps: int) -> None:
            bar.update()
            if self.file is not None:
                self._tensors[prefix + "coefficients"] = torch.from_numpy(coefficients)
                self._tensors[prefix + "steps"] = torch.tensor(steps)
                if self.file.is_due:
                    self._write()

        try:
            with bar:
                return refit_rows(fit, self.rows, method, self.settings, begin, advance)
        finally:
            if self.file is not None:
                self._write()

    def _restored(self, name: str, node: int, spaces: Sequence[SearchSpace]) -> tuple[NodeSolution, ...]:
        """Solutions of one node in the checkpoint; none if it is not done."""
        tensors = {key: tensor for key, tensor in self._tensors.items() if key.startswith(f"{name}.")}
        if self.file is None or not tensors:
            return ()
        # Every step of the path must be whole, and nothing else be there.
        solutions: list[NodeSolution] = []
        with self.file.taking_up():
            for step, space in enumerate(spaces):
                prefix = f"{name}.{step}."
                objective, residual, steps, scans, seconds, status = tensors[prefix + "numbers"].tolist()
                self._check(part_of(tensors, prefix), node, space)
                keys, members, others, coefficients = (tensors[prefix + part].numpy() for part in _ARRAYS)
                outcome = Outcome(objective, residual, int(steps), int(scans), seconds, _STATUSES[int(status)])
                solutions.append(NodeSolution(keys, members, others, coefficients, outcome))
            check_equal(tensors, _entries(name, solutions))
        return tuple(solutions)

    def _check(self, arrays: Mapping[str, torch.Tensor], node: int, space: SearchSpace) -> None:
        """ValueError unless arrays are those of a solution of a node in a search space."""
        keys, members, others, coefficients = (arrays[part] for part in _ARRAYS)
        floats, whole, size = torch.float64, torch.int64, len(keys)
        shapes = {"keys": (whole, size, 2), "own": (whole, size), "others": (whole, size, space.width)}
        check_arrays(arrays, {**shapes, "coefficients": (floats, size), "numbers": (floats, 6)})
        category = self.rows.category_of.get(node)
        at = [node] if category is None or self.rows.is_fixed_node(node) else category.columns.tolist()
        if not set(members.tolist()) <= set(at):
            raise ValueError("terms of another node")
        is_known = {(j, size) for j, size in keys.tolist()} <= set(space.keys)
        count = len(self.rows.domain)
        is_inside = bool(((others >= -1) & (others < count)).all()) and not bool(coefficients.isnan().any())
        if not is_known or not is_inside or bool(((others >= 0).sum(1) != keys[:, 1] - 1).any()):
            raise ValueError("terms outside the search")

    def _write(self) -> None:
        assert self.file is not None
        with DeferredInterrupt():
            self.file.write(self._tensors)


def _entries(name: str, solutions: Sequence[NodeSolution]) -> dict[str, torch.Tensor]:
    """Solutions of one node as a checkpoint holds them."""
    tensors: dict[str, torch.Tensor] = {}
    for step, solution in enumerate(solutions):
        prefix = f"{name}.{step}."
        tensors |= {prefix + part: torch.from_numpy(getattr(solution, part)) for part in _ARRAYS}
        numbers = [*solution.outcome[:-1], _STATUSES.index(solution.outcome.status)]
        tensors[prefix + "numbers"] = torch.tensor(numbers, dtype=torch.float64)
    return tensors


def _spaces_of(rows: RootRows, index: int, spaces: Sequence[SearchSpace]) -> Sequence[SearchSpace]:
    """Search spaces of one column of several families: it has roots of its own, and a Gaussian one a mean."""
    if rows.families.common is not None:
        return spaces
    roots = [rows.single_roots(index, max(j for j, _ in space.keys)) for space in spaces]
    return [space.with_singles(some, rows.has_mean(index)) for space, some in zip(spaces, roots, strict=True)]


def _numbered(
    index: int, rows: RootRows, spaces: Sequence[SearchSpace], settings: RootSettings, warm: NodeSolution | None
) -> tuple[int, tuple[NodeSolution, ...]]:
    """Solutions of one node along the path, each from the one before (strong rule between them)."""
    # From penalty to penalty, with as much slack as the penalty falls.
    spaces = _spaces_of(rows, index, spaces)
    solutions: list[NodeSolution] = []
    for step, space in enumerate(spaces):
        slack = 0.0
        if step:
            ratios = [a / b for a, b in zip(spaces[step - 1].l1, space.l1, strict=True) if b > 0]
            slack = min(1.0, max(0.0, max(ratios, default=1.0) - 1.0))
            warm = solutions[-1]
        solutions.append(solve_node(rows, index, space, settings, warm, slack))
    return index, tuple(solutions)


_SCANS = 5


def fit_roots(
    data: Any,
    family: FamilyChoice = "auto",
    *,
    order: int | None = None,
    l1: Penalty | None = None,
    names: Sequence[str] | None = None,
    full: bool = False,
    refit: Refit = "none",
    settings: RootSettings | None = None,
    run: RunOptions | None = None,
    counts: Any = None,
    **columns: Unpack[FrameColumns],
) -> RootFitResult:
    r"""Learn a generalized root model by l1-penalised regressions of every variable on all others.

    .. math:: \min \frac1n \sum_{i=1}^n \Bigl[A(\eta_{si}) - \sum_{j=1}^k \eta_{jsi} T_j(x_{is})\Bigr]
        + \sum_{(j, \ell) \ne (1, 1)} \lambda_j \sum_{S \ni s} |c_S|, \qquad
        \eta_{jsi} = \sum_\ell \sum_{S \ni s} c_S \prod_{t \in S \setminus s} T_j(x_{it})

    for every node s, exactly, by proximal Newton steps on a working set. Every solution is certified: the subgradient
    is scanned over *all* features, also those never visited. The coefficients c of a tuple at its member nodes are
    joined to one of the joint model (``symmetrize``); its tensor entry is c / l!. Penalties act on the coefficients
    themselves, the convention of the published tables, where all columns have one family. The joined coefficients are
    no optimum of anything, and can predict worse than independent columns; ``refit`` maximises the pseudo-likelihood of
    the joint model anew.

    Penalties that predict well keep sets that are absent. Which sets there are is another question: ``confirmed`` of
    the result is the model of those that all rows confirm (:func:`~pyro_hoim.generalized_root.confirm_roots`), unless
    ``RootSettings(false_discovery_rate=None)``, or where the tests would take more than a minute.

    Columns may have families of their own: 0/1 columns (truncated Poisson of maximum 1), counts, positive and real
    numbers. Then every root of every column is divided by its standard deviation in the rows, so that one penalty
    serves all units: a set costs :math:`\lambda_l \lvert c_S\rvert \prod_{s \in S} \sigma_{ls}` at each of its members,
    so that a penalty of 0.1 asks for a correlation of about 0.1. Residuals and the tolerance are those of standardised
    coefficients, all results those of the columns. A set has one key, its size, unless ``full`` gives it lower roots; a
    Gaussian column also has the term (2, 1), which gives it a mean and is not penalised. Columns that all have one
    family are fitted as ever, however it is given.

    A category is a group of indicators (:class:`~pyro_hoim.generalized_root.IndicatorFamily`), whose regression is a
    multinomial logit. A set with categories is a set of columns: its coefficients, one for every choice of a level of
    each category, enter together, and cost at each member

    .. math:: \lambda_l \sqrt{m}\, \Bigl(\sum_v c_v^2 \prod_{s \in S} \sigma_{ls}^2\Bigr)^{1/2}, \qquad
        m = \prod_{s \in S} (K_s - 1)

    where the scale of an indicator is the root of its share p of the rows, and K - 1 is 1 of other columns. Of every
    category :math:`\sum_k p_k c_k = 0`: this representative is solved for and stored. It makes the norm the standard
    deviation of what the set adds to the log density, times those of the other columns, whatever level is called the
    reference; the root of m lets one penalty serve groups of any size. A category of two levels costs what a 0/1 column
    does, and is the same model beside 0/1, Gaussian and categorical columns. Beside a count or a positive number it is
    not quite: a 0/1 column acts on the root of a count where it is 1 alone, levels of a category where they differ from
    their mean. Levels that do not occur in the rows are fixed at zero.

    A data frame says its families itself (``family="auto"``). One whose columns all hold whole numbers from 0 is a
    table of counts, and all are Poisson. Of another one :func:`~pyro_hoim.generalized_root.choose_families` chooses the
    family of every column by its type and values, or asks; ``columns`` of the result, its ``repr`` and its summary say
    what was chosen.

    Counts below 2^53 are served. A status of ``stalled`` says that rounding (of counts from 10^12 on) or the edge of
    the family's domain stops the line search: a larger penalty, or leaving out ``full``, keeps away from the edge, more
    steps do not. A scan costs the sum over rows of (nonzero entries)^2 / 2, a Newton step one node log partition for
    every row that a feature of the working set touches.

    Args:
        data: (n, d) rows: SciPy sparse matrix, array, tensor, :class:`~pyro_hoim.data.CountTable` or data frame, of
            which identifiers, dates and free text are left out; or a
            :class:`~pyro_hoim.data.RowSource` of numbers (:func:`~pyro_hoim.data.open_rows`), whose distinct rows are
            held with their counts.
        family: ``auto``, which is ``poisson`` but for data frames; ``poisson``, ``exponential``, ``gaussian``, or a
            family object (truncated Poisson needs its maximum); or a sequence of such in the order of the columns, or a
            mapping from every column. Of a data frame the mapping says the families of some columns, as
            :func:`~pyro_hoim.generalized_root.choose_families` has them, such as ``{"visits": "count", "news":
            "bounded:7"}``, and the others are chosen.
        order: largest root k; 1 is the independent model. By default 3, and 2 where columns have several families, of
            which larger sets, searched whole, stand in for pairs.
        l1: penalty, nats per row, from 0; or one for each root order j from 2 to k. By default 0.01, and 0 for stated
            interactions.
        names: column names.
        full: all keys (j, l) with l <= j, in place of the strongest interactions l = j alone (equation 4); of columns
            of several families as far as they are different functions, as
            :meth:`~pyro_hoim.generalized_root.RootStructure.mixed` has them. A set with categories has a group of
            coefficients for every key.
        refit: ``none`` (the published convention), ``singles`` (best terms of single columns beside the joined tuples),
            or ``all`` (best coefficients of all terms found, never worse than independent columns on these rows); see
            :func:`~pyro_hoim.generalized_root.refit_roots`.
        settings: how to search, solve, join and refit.
        run: the file with the nodes that are done, rewritten about every 30 seconds and when the run is interrupted;
            whether to continue from it (rows and arguments must be the same); and progress.
        counts: how often each row was seen, whole numbers (n,): the fit is that of the rows repeated so often.
        columns: of a data frame ``exclude``, columns that are left out; ``centre``, as
            :func:`~pyro_hoim.generalized_root.choose_families` has it; and ``interactions``, the sets of columns that
            interact, as a formula such as ``"a*b + c:d"`` (:mod:`pyro_hoim.structure.formula`) or listed: then these
            are fitted, none is searched or tested, all terms are refitted together, and the order is the size of the
            largest set.

    Raises:
        InputError: values outside the family's support (the first one is named with its place), a negative penalty,
            arguments out of range, or a checkpoint of another run.
        InputTypeError: arguments of the wrong type.
        IntractableError: more tuples to list, or more work, than the limits allow; the message has the numbers.
        UnknownNameError: an unknown variable among the candidates, or an unknown family.

    Warns:
        ConvergenceWarning: a node's residual, or that of the refit, is above the tolerance, or a refit was shortened.
        CostWarning: the sets found are so many that they were not tested.
        DataWarning: columns of a data frame of one family that were left out; or Gaussian columns beside others that
            are far from 0, on which their interactions with counts and positive numbers depend; or levels of a category
            that one row alone has, or counts that one row alone has otherwise, where nothing is penalised.

    References:
        Paper 2 (generalized root models), section 4, equations (8) to (14). Cho-Jui Hsieh, Inderjit S. Dhillon, Pradeep
        Ravikumar and Matyas A. Sustik, Sparse inverse covariance matrix estimation using quadratic approximation,
        2011. Robert Tibshirani and others, Strong rules for discarding predictors in lasso-type problems, 2012. Jonas
        Haslbeck and Lourens Waldorp, mgm, 2020 (regressions of mixed columns). Ming Yuan and Yi Lin, Model selection
        and estimation in regression with grouped variables, 2006. Noah Simon and Robert Tibshirani, Standardization
        and the group Lasso penalty, 2012.

    Example:
        >>> fitted = fit_roots([[2, 1], [0, 0], [1, 3], [3, 2]], order=2, l1=0.01, names=["a", "b"])
        >>> fitted.structure.num_terms, bool((fitted.kkt_residual < 1e-6).all())
        (3, True)
        >>> rows = [[2, -0.5], [0, 0.1], [1, -0.2], [3, 0.6]]
        >>> mixed = fit_roots(rows, ["poisson", "gaussian"], order=2, names=["visits", "change"])
        >>> [key for key, names in mixed.structure.names if "change" in names]
        [(1, 1), (2, 1), (2, 2)]
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"ill": [False, True] * 20, "days": [0.5, 4.25, 1.75, 9.5, 4.75, 1.0, 2.25, 6.5] * 5})
        >>> fit_roots(frame, interactions="ill*days")
        RootFitResult: generalized root model, 2 variables, 1 interaction, 4 parameters
          40 rows, log pseudo-likelihood -114.21, penalised regressions, refit 'all'
          0/1: ill; real numbers: days
    """
    check_names(columns, list(FrameColumns.__annotations__), "fit_roots", noun="option")
    settings, penalty = checked_settings(settings), 0.01 if l1 is None else l1
    # A data frame says what its columns are; other rows are counts unless they are said to be something else.
    table = RootTable(data, "poisson" if family == "auto" else family, names, counts)
    if is_frame(data):
        table = read_table(data, family, columns, names, counts)
    elif beside := [name for name in columns if name != "interactions"]:
        raise conflict(beside[0], "is said of the columns of a data frame, and these are rows without one")
    if "interactions" in columns:
        settings, order = with_stated(table, columns["interactions"], settings)
        penalty, refit = 0.0 if l1 is None else l1, "all"
    [fitted] = _fit(table.data, [penalty], table.family, order, table.names, full, refit, settings, run, table.counts)
    return fitted if table.columns is None else fitted.with_columns(table.columns)


def fit_root_path(
    data: Any,
    l1s: Sequence[Penalty],
    family: FamilyChoice = "poisson",
    *,
    order: int | None = None,
    names: Sequence[str] | None = None,
    full: bool = False,
    refit: Refit = "none",
    settings: RootSettings | None = None,
    run: RunOptions | None = None,
    counts: Any = None,
) -> tuple[RootFitResult, ...]:
    """Fits for several penalties, each started from the one before (the strong rule chooses the first features).

    Arguments, errors and warnings are those of :func:`fit_roots`, with several penalties ``l1s``, best in falling
    order, in place of one. Results are one per penalty, in the order given, up to the tolerance those of single fits.

    Example:
        >>> path = fit_root_path([[2, 1], [0, 0], [1, 3], [3, 2]], [1.0, 0.1, 0.01], order=2)
        >>> [fitted.structure.num_terms for fitted in path]
        [2, 3, 3]
    """
    check_penalties(l1s)
    return _fit(data, list(l1s), family, order, names, full, refit, settings, run, counts)


def _fit(
    data: Any,
    l1s: Sequence[Penalty],
    family: FamilyChoice,
    order: int | None,
    names: Sequence[str] | None,
    full: bool,
    refit: Refit,
    given: RootSettings | None,
    run: RunOptions | None,
    counts: Any,
) -> tuple[RootFitResult, ...]:
    start = time.perf_counter()
    # The door: arguments, then rows, then the work that they make.
    families = checked_families(family)
    order = checked_order(order, families)
    penalties = [checked_l1(l1, order, "l1" if len(l1s) == 1 else f"l1s[{i}]") for i, l1 in enumerate(l1s)]
    check_choice(refit, get_args(Refit), "refit")
    settings = checked_settings(given)
    # Refuse options that families do not go with.
    several = families.values() if isinstance(families, Mapping) else families
    each = list(dict.fromkeys([several] if isinstance(several, NodeFamily) else several))
    bad = [family for family in each if isinstance(family, UserFamily | IndicatorFamily) or not family.is_discrete]
    if settings.stop == "published" and any(isinstance(family, IndicatorFamily) for family in each):
        problem = "the published rule is that of counts, and categories have groups of coefficients"
        raise conflict("stop", f"{problem}; pass stop='residual'")
    if settings.objective == "upper-bound" and bad:
        problem = f"the bounds of a regression are those of counts, and the {bad[0].name} family has none"
        raise conflict("objective", f"{problem}; pass objective='log-partition'")
    run = checked_run(run)
    file = run.file()
    if is_source(data):
        if counts is not None:
            raise conflict("counts", "belong to rows in memory, and a source has its own")
        data, counts = counted_numbers(data, kind_of_numbers(families))
    rows = prepare_rows(data, families, order, names, counts)
    if settings.objective == "upper-bound" and rows.values.max(initial=0.0) > LARGEST_COUNT:
        problem = f"bounds of a regression need counts up to {LARGEST_COUNT:g}"
        raise out_of_reach("objective", problem, "pass objective='log-partition'")
    # Search spaces: by penalty, and stage by stage where larger sets are cliques of the pairs found.
    listed = checked_candidates(settings.candidates, rows.units, order)
    stages = range(2, order + 1) if settings.stagewise and order > 2 else [order]
    first = search_space(len(rows.nodes), stages[0], penalties[0], full, listed)
    spaces = [first, *(first.with_l1(penalty) for penalty in penalties[1:])]
    _check_work(rows, first, len(penalties), settings.max_work)
    _warn_of_origins(rows, order)
    if any(0.0 in penalty.values() for penalty in penalties) or (refit == "all" and not settings.refit_share):
        _warn_of_rare_levels(rows)
    candidates = json.dumps({str(size): tuples.tolist() for size, tuples in sorted(listed.items())})
    header = {
        "order": order,
        "l1": [{str(j): value for j, value in penalty.items()} for penalty in penalties],
        "full": bool(full),
        "stagewise": bool(settings.stagewise),
        "symmetrize": settings.symmetrize if settings.stagewise else None,  # which pairs the next stage builds on
        "tolerance": settings.tolerance,
        "max_iterations": settings.max_iterations,
        "objective": [settings.objective, settings.num_subdomains if settings.objective == "upper-bound" else 0],
        "stop": settings.stop,
        "candidates digest": hashlib.sha256(candidates.encode()).hexdigest()[:32],
    }
    regressions = RegressionRun(rows, settings, run.progress, file, header)

    def joined(solutions: Sequence[NodeSolution], i: int) -> RootFitResult:
        seconds = time.perf_counter() - start
        return RootFitResult.from_solutions(rows, solutions, penalties[i], settings, full, seconds)

    if len(stages) == 1:
        by_penalty: list[Sequence[NodeSolution]] = list(zip(*regressions.solve("all", spaces), strict=True))
    else:
        by_penalty = []
        for i, space in enumerate(spaces):
            solutions = [path[0] for path in regressions.solve(f"{i}.{stages[0]}", [space])]
            for stage in stages[1:]:  # the cliques of the pairs, size by size
                graph = joined(solutions, i).pair_graph
                lists = {size: listed.get(size, clique_candidates(graph, size)) for size in range(3, stage + 1)}
                lists |= {2: listed[2]} if 2 in listed else {}
                larger = search_space(len(rows.nodes), stage, penalties[i], full, lists)
                solutions = [path[0] for path in regressions.solve(f"{i}.{stage}", [larger], solutions)]
            by_penalty.append(solutions)
    # From node solutions to joint models, which are refitted and confirmed where that is asked for.
    fits = [joined(solutions, i) for i, solutions in enumerate(by_penalty)]
    warn_regressions(fits)
    if refit != "none":
        fits = [regressions.refit(fitted, refit, f"{i}") for i, fitted in enumerate(fits)]
        warn_refits(fits)
    if settings.false_discovery_rate is not None:
        fits = [with_confirmed(fitted, rows, listed, settings) for fitted in fits]
        warn_refits([fitted.confirmed for fitted in fits if fitted.confirmed is not None])
    return tuple(fits)


def check_penalties(l1s: object) -> None:
    """Raise unless there is a sequence of penalties."""
    if isinstance(l1s, str) or not isinstance(l1s, Sequence | np.ndarray):
        raise wrong_type("l1s", "a sequence of penalties", l1s)
    if len(l1s) == 0:
        raise unexpected("l1s", "at least one penalty", received="none", code="empty")


def _check_work(rows: RootRows, space: SearchSpace, num_penalties: int, limit: float) -> None:
    """Refuse scans that would not come to an end."""
    # Pairs of entries for triples, listed tuples one by one.
    scanned = sum(size == 3 and 3 not in space.listed for _, size in space.keys)
    work = rows.pair_work * scanned
    statistics = [rows.num_statistics(node) if node in rows.category_of else 1 for node in rows.nodes]
    for size, tuples in space.listed.items():
        mean = float(np.diff(rows.indptr).mean())
        work += int(len(tuples) * size / len(rows.nodes) * mean) * sum(s == size for _, s in space.keys)
    total = work * sum(statistics) * _SCANS * num_penalties
    needed = 8 * rows.num_rows * max(statistics, default=1) ** 2
    if needed > MOST_BYTES:
        problem = (
            f"the regression of a category of {max(statistics) + 1} levels would need {size_text(needed, 'bytes')}; "
            f"the limit is {MOST_BYTES}"
        )
        raise out_of_reach("data", problem, "join rare levels of the category, or take fewer rows")
    if total > limit:
        problem = (
            f"scans of all tuples of {len(rows.domain)} columns and {rows.num_rows} rows would take "
            f"{size_text(total, 'multiplications')}, about {total / 1e9 / 3600:.2g} hours; the limit is "
            f"max_work={limit:.2g}. Give candidates, pass stagewise=True, take fewer columns, or raise max_work"
        )
        raise out_of_reach("order", problem)


def _quoted(names: Sequence[str]) -> str:
    """At most six names."""
    return ", ".join(map(repr, names[:6])) + (", ..." if len(names) > 6 else "")


def _warn_of_origins(rows: RootRows, order: int) -> None:
    """Warn of Gaussian columns far from 0 whose products depend on where 0 is."""
    # Pairs of 0/1 and Gaussian columns do not depend on it: the members' own terms make up for a shift.
    families = rows.families
    is_free = order < 3 and all(one.largest_value == 1.0 or one.name == GaussianFamily.name for one in families)
    if rows.scales is None or order == 1 or is_free:
        return
    weights = np.ones(rows.num_rows) if rows.counts is None else rows.counts
    free = [s for s in np.flatnonzero(~rows.is_fixed).tolist() if rows.has_mean(s)]
    means = {s: float(np.average(rows.column(s), weights=weights)) for s in free}
    names = [rows.domain.names[s] for s, mean in means.items() if abs(mean) > rows.scales[s, 1]]
    if names:
        problem = (
            f"the mean of {_quoted(names)} is more than a standard deviation from 0, and a Gaussian column acts on "
            "counts and positive numbers, and in sets of three, by its distance from 0; subtract the mean, or another "
            "origin"
        )
        warnings.warn(DataWarning(problem), stacklevel=caller_level())


def _warn_of_rare_levels(rows: RootRows) -> None:
    """Warn of levels that one row has, and of counts likewise, where nothing keeps their coefficients finite."""
    for category in rows.categories:
        times = category.shares * rows.total
        rare = [rows.domain.names[s] for s, count in zip(category.places, times, strict=True) if 0 < count < 1.5]
        if rare:
            problem = (
                f"one row alone has {_quoted(rare)}, so that coefficients without a penalty may have no finite "
                f"optimum; join rare levels, or take {option('l1')}{in_python(' and refit_share')} above 0"
            )
            warnings.warn(DataWarning(problem), stacklevel=caller_level())
    # Counts that one row alone has otherwise than all others.
    weights = np.ones(rows.num_rows) if rows.counts is None else rows.counts
    inside = {s for category in rows.categories for s in category.places.tolist()}
    alone = list[str]()
    for s in sorted({int(s) for s in np.flatnonzero(~rows.is_fixed)} - inside):
        if rows.families[s].is_discrete:
            times = np.bincount(np.unique(rows.column(s), return_inverse=True)[1].reshape(-1), weights)
            alone += [rows.domain.names[s]] if 0 < times.sum() - times.max() < 1.5 else []
    if alone and rows.total > 2:
        problem = (
            f"all rows but one have the same value of {_quoted(alone)}, so that coefficients without a penalty may "
            "have no finite optimum, and standard errors rest on one row; leave such columns out, or take "
            f"{option('l1')}{in_python(' and refit_share')} above 0"
        )
        warnings.warn(DataWarning(problem), stacklevel=caller_level())


def warn_regressions(fits: Sequence[RootFitResult]) -> None:
    """Warn of regressions that have not converged."""
    for fitted in fits:
        bad = [node for node in fitted.nodes if node.status not in ("converged", "fixed", "stopped")]
        if bad:
            worst = max(bad, key=lambda node: node.kkt_residual)
            warnings.warn(
                f"{len(bad)} of {len(fitted.nodes)} root regressions have not converged; the worst is "
                f"{worst.variable!r} (residual {worst.kkt_residual:.1e}, tolerance {fitted.tolerance:.1e}, "
                f"{worst.status}); {advice(worst.status, option('l1'), fitted.is_full)}",
                ConvergenceWarning,
                stacklevel=caller_level(),
            )
