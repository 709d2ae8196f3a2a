"""Learning from columns that say one thing together, such as the indicators of a category."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TypedDict

import torch
from typing_extensions import Unpack

from ...core.partition import Verdict
from ...data.frames import DataLike
from ...data.joined import ColumnGroup, Join, JoinedColumns, find_exclusive_groups, join_columns
from ...data.observations import Observations
from ...data.sources.sourced import SourcedRows
from ...errors import DataWarning, caller_level, check_names, other_domain, out_of_reach
from ...runs.checkpoint import RunOptions, checked_run
from ..search.rounds import SelectionOptions
from ..training.sampled.trainer import SampledTraining
from ._session import TrainerName, told
from .learn import Regularisation, checked_parts, joint_rows, learn as learn_variables
from .model import LearnResult

__all__ = ["LearnOptions", "learn"]

_RARELY_NONE = 0.01
_SHOWN = 3


class LearnOptions(TypedDict, total=False):
    """Options of :func:`learn`, as :func:`pyro_hoim.log_linear.learning.learn.learn` describes them."""

    trainer: TrainerName
    sampling: SampledTraining | None
    regularisation: Regularisation | None
    refit: bool
    false_discovery_rate: float | None
    seed: int
    run: RunOptions | None


def learn(
    train: DataLike,
    validation: DataLike | None = None,
    search: SelectionOptions | None = None,
    *,
    join: Join | JoinedColumns = "exact",
    **options: Unpack[LearnOptions],
) -> LearnResult:
    r"""Learn interactions and their strengths, after columns that say one thing together were joined to one variable.

    Of the indicator (one-hot) columns of a category exactly one is set. Chains that change one column at a time never
    leave such a level, so that nothing that rests on them would be right. By default such columns are found and joined
    (:func:`~pyro_hoim.data.join_columns`), the model is learned of the joined variables by
    :func:`pyro_hoim.log_linear.learning.learn.learn`, and ``score``, ``predict``, ``sample`` and ``impute`` of the
    result and of its file speak of the columns. Interactions are those of the joined variables.

    Args:
        train: complete rows.
        validation: complete rows that decide when the search ends, as of the recipe; a quarter of ``train`` when None.
        search: as of the recipe; names in ``candidates`` are those of columns.
        join: ``exact``; ``exclusive``, which joins columns of which at most one is set, too; ``determined``, also
            columns that say nearly all of another; ``none``; or the groups. They are found from all rows given. Rows
            that a group does not describe, such as with two of its columns set, have probability zero in the model.
            Of rows beyond memory none are joined.
        options: ``trainer``, ``sampling``, ``regularisation``, ``refit``, ``false_discovery_rate``, ``seed`` and
            ``run`` of the recipe.

    Returns:
        The model that predicts best, with ``structure`` beside it, and with ``joined`` where columns were joined.

    Raises:
        UnknownNameError: an option that does not exist.
        InputError: as of the recipe; groups of other columns, or that rows do not keep to.
        MissingDataError: missing cells.
        IntractableError: exact training was asked for and is out of reach, or joined columns of rows beyond memory.

    Warns:
        DataWarning: columns that exclude each other are left apart and log Z is estimated; its verdict is then
            ``unreliable``.

    Example:
        >>> import torch
        >>> from pyro_hoim import Domain
        >>> code, wet = torch.arange(120) % 3, (torch.arange(120) % 3 == 0).long()
        >>> table = torch.cat([torch.eye(3, dtype=torch.long)[code], wet[:, None]], 1)
        >>> names = Domain.from_cardinalities({"sky=blue": 2, "sky=grey": 2, "sky=dark": 2, "dry": 2})
        >>> rows = Observations.from_tensor(table, names)
        >>> learned = learn(rows, rows)
        >>> learned.hypergraph.edges, learned.joined.groups[0].columns
        ((('sky',), ('dry',), ('sky', 'dry')), ('sky=blue', 'sky=grey', 'sky=dark'))
        >>> learned.sample(2, given={"dry": 1}, seed=0).values.tolist()
        [['1', '0', '0', '1'], ['1', '0', '0', '1']]
    """
    # The rows, and which of their columns say one thing together.
    check_names(options, list(LearnOptions.__annotations__), "learn", noun="option")
    parts = [train] if validation is None else [train, validation]
    parts_read = checked_parts(*parts)
    if any(isinstance(rows, SourcedRows) for rows in parts_read):
        if join not in ("exact", "none"):
            problem = "columns are joined in rows in memory alone, and there are more than 2^25 cells of different ones"
            raise out_of_reach("join", problem, "learn from rows.distinct(), or from some, rows.sample(10**6, seed=0)")
        join = "none"
    if isinstance(join, JoinedColumns):
        joined = join
    else:
        joined = join_columns(parts_read[0] if len(parts_read) == 1 else joint_rows(*parts_read), join)
    if joined.domain != parts_read[0].domain:
        raise other_domain("join", "groups of the columns of train", received="others")
    parts_joined = parts_read
    if joined:
        told(checked_run(options.get("run")), joined.sentence())
        # Missing cells are left for the recipe to refuse.
        parts_joined = [joined.read(rows).rows if rows.has_missing else joined.join(rows) for rows in parts_read]
        if search is not None and search.candidates is not None:
            search = replace(search, candidates=joined.sets(search.candidates))
    # The recipe learns the joined variables.
    learned = learn_variables(parts_joined[0], None if validation is None else parts_joined[1], search, **options)
    return columns_joined(learned, joined, parts_joined[0])


def columns_joined(learned: LearnResult, joined: JoinedColumns, rows: Observations) -> LearnResult:
    """A model of joined variables that knows the columns, and that says what columns left apart do to its log Z.

    The model was learned from ``rows`` over the joined variables.
    """
    frozen = _frozen(rows) if learned.log_partition.kind != "exact" else ()
    if frozen:
        names = ", ".join(group.name for group in frozen[:_SHOWN]) + (", ..." if len(frozen) > _SHOWN else "")
        columns = sum(len(group.columns) for group in frozen)
        problem = (
            f"{columns} columns exclude each other and are left apart ({names}): chains that change one column at a "
            "time do not move between their levels, and the checks of log Z rest on such chains"
        )
        warnings.warn(DataWarning(f"{problem}; join='exclusive' joins them"), stacklevel=caller_level())
        learned = _changed(learned, lambda model: _doubted(model, problem))
    if not joined:
        return learned
    return _changed(learned, lambda model: replace(model, joined=joined, notes=(*model.notes, joined.sentence())))


def _frozen(rows: Observations) -> tuple[ColumnGroup, ...]:
    """Groups of columns of which at most one is set, and nearly always one is."""
    groups: list[ColumnGroup] = []
    for group in find_exclusive_groups(rows, at_most_one=True):
        is_none = (rows.project(group.columns).codes == 0).all(1)
        if float(rows.counts[is_none].sum()) <= _RARELY_NONE * rows.total_count:
            groups.append(group)
    return tuple(groups)


def _changed(learned: LearnResult, change: Callable[[LearnResult], LearnResult]) -> LearnResult:
    """A model changed, and its structure likewise."""
    structure = None if learned.structure is None else _changed(learned.structure, change)
    return replace(change(learned), structure=structure)


def _doubted(learned: LearnResult, problem: str) -> LearnResult:
    """The model with a log Z that is not reliable for a reason."""
    log_z = learned.log_partition
    verdicts = torch.full_like(log_z.verdicts, int(Verdict.UNRELIABLE))
    log_z = replace(log_z, verdicts=verdicts, notes=(*log_z.notes, problem))
    return replace(learned, log_partition=log_z, notes=(*learned.notes, problem))
