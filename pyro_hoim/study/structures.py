"""What a report says of a posterior over structure. Nothing is computed here but formats."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pyro.ops.stats import split_gelman_rubin

from ..core.page import Section, cell
from ..core.words import fixed, listed, literal, number, plural, short_edge, shorten
from ..data.observations import Observations
from ..inference.structure.average import MAX_VARIABLES, average_decomposable
from ..inference.structure.chains import ChainSettings, posterior_of, sample_chain, sample_structures, theta_given
from ..inference.structure.evidence import StructureEvidence
from ..inference.structure.kernel import MAX_CELLS
from ..inference.structure.posterior import StructurePosterior, StructureProbability, enumerate_structures
from ..inference.structure.prior import StructurePrior
from ..interop.arviz import to_arviz
from ..interop.loo import loo_by_cell, loo_figures
from ..log_linear.fitting.result import FitResult
from ..log_linear.laws.law import HierarchicalLogLinear, cell_log_likelihood
from ..log_linear.named_priors import Prior
from ..plots.drawing import FAINT, INK, KINDS, WIDTH, axes_for, figure_of, legend_below, plain_axes, wrapped
from ..plots.hypergraph import plot_hypergraph
from ..runs.checkpoint import RunOptions
from ..structure.hypergraph import Edge, InteractionHypergraph
from .posterior import compare_data, in_processes

__all__ = [
    "STRUCTURE_FILE",
    "StructureRecord",
    "dots_figure",
    "find_structures",
    "record_structures",
    "structure_sections",
    "structure_sentence",
    "structure_warnings",
]


# A posterior over structure with what a reader needs to judge it: rival models, other priors, averaged cells.

STRUCTURE_FILE = "structures.safetensors"
"""Name of the file of a posterior over structure."""

Route = Literal["list", "junction-trees", "chains"]
_RIVALS = 5
_FACTORS = (0.25, 1.0, 4.0)


@dataclass(frozen=True)
class LeftOut:
    """Leave-one-out cross-validation of one collection.

    Attributes:
        elpd: expected log predictive density, nats.
        std_error: its standard error over rows.
        num_effective_parameters: the effective number of parameters.
        max_pareto_k: largest Pareto shape.
        max_r_hat: largest R-hat of the draws of theta that it rests on.
        weight: of the collection in the mixture that predicts rows left out with the largest density (stacking).
    """

    elpd: float
    std_error: float
    num_effective_parameters: float
    max_pareto_k: float
    max_r_hat: float
    weight: float = 1.0


@dataclass(frozen=True)
class RivalModel:
    """One of the most probable collections: its probability and evidence, and its leave-one-out where there is any."""

    hypergraph: InteractionHypergraph
    probability: float
    log_evidence: float
    left_out: LeftOut | None

    @property
    def name(self) -> str:
        """The generating class, such as ``[a b][c]``."""
        return "".join(f"[{' '.join(edge)}]" for edge in self.hypergraph.maximal_edges)


@dataclass(frozen=True, eq=False)
class StructureRecord:
    """A posterior over structure as a page and a file show it.

    Attributes:
        posterior: the posterior.
        route: how it was found: every collection in a list, independent draws of junction trees, or chains.
        prior: of theta.
        rivals: the five most probable collections.
        others: posteriors under a quarter, once and four times the information of the prior, by the prior.
        cells: mean probabilities of cells, (*cardinalities); None where the table has more than 4,096.
        reason: why leave-one-out is missing; empty where it is there.
    """

    posterior: StructurePosterior
    route: Route
    prior: Prior
    rivals: tuple[RivalModel, ...]
    others: dict[str, StructurePosterior]
    cells: torch.Tensor | None
    reason: str

    @cached_property
    def max_r_hat(self) -> float | None:
        """Largest R-hat of an indicator, infinite where chains are stuck apart; None without chains."""
        r_hat = self.posterior.inclusion.r_hat
        return None if r_hat is None else float(r_hat.max()) if len(r_hat) else 1.0

    def to_json(self, file: str) -> dict[str, Any]:
        """What a file of numbers holds of it, with the name of the posterior's own file."""
        posterior, inclusion = self.posterior, self.posterior.inclusion
        # A posterior that was listed has no chains to disagree.
        r_hats = [None] * len(inclusion.edges) if inclusion.r_hat is None else inclusion.r_hat.tolist()
        rows = zip(inclusion.edges, inclusion.mean.tolist(), inclusion.mcse.tolist(), r_hats, strict=True)
        return {
            "method": self.route,
            "evidence_method": posterior.method,
            "is_exact": posterior.is_exact,
            "status": posterior.status,
            "space": posterior.structure_prior.space.name,
            "prior": str(self.prior),
            "num_collections": posterior.num_structures,
            "inclusion": [
                {"edge": list(edge), "probability": mean, "mcse": mcse, "r_hat": r_hat}
                for edge, mean, mcse, r_hat in rows
            ],
            "models": [_rival_json(rival) for rival in self.rivals],
            "loo_missing": self.reason or None,
            "other_priors": [
                {"prior": name, "num_effective": other.num_effective, "inclusion": other.inclusion.mean.tolist()}
                for name, other in self.others.items()
            ],
            "max_r_hat": self.max_r_hat,
            "file": file,
        }


def _rival_json(rival: RivalModel) -> dict[str, Any]:
    """The keys of one collection."""
    left = rival.left_out
    return {
        "edges": [list(edge) for edge in rival.hypergraph.edges],
        "probability": rival.probability,
        "log_evidence": rival.log_evidence,
        "elpd_loo": left and left.elpd,
        "elpd_se": left and left.std_error,
        "p_loo": left and left.num_effective_parameters,
        "max_pareto_k": left and left.max_pareto_k,
        "stacking_weight": left and left.weight,
    }


def find_structures(
    rows: Observations,
    prior: Prior,
    law: StructurePrior,
    settings: ChainSettings | None,
    *,
    jobs: int = 1,
    seed: int,
    run: RunOptions,
) -> tuple[StructurePosterior, Route]:
    """The posterior over structure by the route that its space allows: a list, junction trees, or chains.

    With ``settings`` chains are run in any case. ``run`` names the checkpoint file of chains. In several ``jobs`` every
    chain has a process, and a file with its number, of its own; the draws are the same, and a run is continued from the
    files that it has, whatever the number of jobs.

    Example:
        >>> from pyro_hoim import Domain
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[6, 4], [3, 7]])
        >>> law, prior = StructurePrior(rows.domain, space="decomposable"), Prior("conjugate", 1.0)
        >>> posterior, route = find_structures(rows, prior, law, None, seed=1, run=RunOptions())
        >>> route, posterior.num_structures, round(posterior.inclusion["a", "b"], 2)
        ('list', 2, 0.26)
    """
    if settings is None and law.is_listed:
        return enumerate_structures(rows, prior, law, seed=seed), "list"
    is_closed = prior.kind == "conjugate" and law.space.name == "decomposable"
    if settings is None and is_closed and len(rows.domain) <= MAX_VARIABLES:
        return average_decomposable(rows, prior, law, seed=seed), "junction-trees"
    settings = ChainSettings() if settings is None else settings
    files = _files(run, settings.num_chains)
    has_own = any(path is not None and path.exists() for path in files)
    if not has_own and (jobs == 1 or (run.checkpoint is not None and Path(run.checkpoint).exists())):
        return sample_structures(rows, prior, law, settings, seed=seed, run=run), "chains"
    draw = partial(_own_chain, rows, prior, law, settings, files, seed, run.resume)
    numbers = dict(enumerate(range(settings.num_chains)))
    with closing(in_processes(draw, numbers, jobs, run.progress)) as results:
        drawn = dict(results)
    evidence = StructureEvidence(rows, law.space, prior, seed=seed)
    return posterior_of(evidence, law, [drawn[k] for k in numbers], None), "chains"


def _files(run: RunOptions, num: int) -> list[Path | None]:
    """The checkpoint of every chain that is drawn by itself."""
    if run.checkpoint is None:
        return [None] * num
    path = Path(run.checkpoint).absolute()  # a process may have another working directory
    return [path.with_name(f"{path.stem}-chain-{k}{path.suffix}") for k in range(num)]


def _own_chain(
    rows: Observations,
    prior: Prior,
    law: StructurePrior,
    settings: ChainSettings,
    files: list[Path | None],
    seed: int,
    resume: bool,
    number: int,
) -> list[int]:
    """The draws of one chain, in a process of its own."""
    evidence = StructureEvidence(rows, law.space, prior, seed=seed)
    return sample_chain(evidence, law, settings, number, seed=seed, run=RunOptions(files[number], resume))


def record_structures(
    posterior: StructurePosterior, route: Route, num_chains: int, num_draws: int, *, seed: int
) -> StructureRecord:
    """Set the rivals, other priors and averaged cells beside a posterior whose prior of theta has a name.

    Args:
        posterior: the posterior.
        route: how it was found.
        num_chains: chains of theta given each of the most probable collections.
        num_draws: draws of each.
        seed: of these draws.

    Example:
        >>> from pyro_hoim import Domain
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[6, 4], [3, 7]])
        >>> law, prior = StructurePrior(rows.domain, space="decomposable"), Prior("conjugate", 1.0)
        >>> posterior, route = find_structures(rows, prior, law, None, seed=1, run=RunOptions())
        >>> record = record_structures(posterior, route, 2, 20, seed=1)
        >>> record.cells.shape, round(float(record.cells.sum()), 6), record.reason
        (torch.Size([2, 2]), 1.0, '')
    """
    prior = posterior.evidence.prior
    assert isinstance(prior, Prior)
    # What is compared besides: leaving rows out, and other priors.
    models = posterior.models(_RIVALS)
    left_out, reason = _left_out(posterior, models, (num_chains, num_draws), seed)
    rivals = [RivalModel(*model, left) for model, left in zip(models, left_out, strict=True)]
    others = {str(prior.scaled(factor)): factor for factor in _FACTORS}
    is_small = posterior.structure_prior.space.domain.num_states <= MAX_CELLS
    return StructureRecord(
        posterior=posterior,
        route=route,
        prior=prior,
        rivals=tuple(rivals),
        others={name: posterior if f == 1 else posterior.reweighted(name) for name, f in others.items()},
        cells=posterior.cell_probabilities() if is_small else None,
        reason=reason,
    )


def _left_out(
    posterior: StructurePosterior, models: tuple[StructureProbability, ...], shape: tuple[int, int], seed: int
) -> tuple[list[LeftOut | None], str]:
    """Leave-one-out of every collection with stacking weights, or why there is none."""
    cells = posterior.data
    reason = ""
    if cells.domain.num_states > MAX_CELLS:
        reason = f"the table has more than {MAX_CELLS:,} cells"
    elif bool((cells.counts % 1 != 0).any()):
        reason = "the counts are not whole numbers"
    elif int((cells.counts > 0).sum()) < 2:
        reason = "all rows fall in one cell"
    if reason:
        return [None] * len(models), reason
    # Posterior draws of every collection under the same prior, from its own evidence.
    data: dict[str, Any] = {}
    records: list[LeftOut] = []
    for index, model in enumerate(models):
        mask = posterior.structure_prior.space.mask_of(model.hypergraph)
        theta = theta_given(posterior.evidence, mask, *shape, seed=seed + index)
        terms = cell_log_likelihood(model.hypergraph, theta, cells.codes).numpy()
        one = to_arviz(
            {"theta": theta.numpy()},
            hypergraph=model.hypergraph,
            log_likelihood={"cell": terms},
            cell_count=cells.counts.numpy().astype(np.int64),
        )
        r_hats = split_gelman_rubin(theta, chain_dim=0, sample_dim=1) if model.hypergraph.num_parameters else None
        r_hat = 1.0 if r_hats is None else float(r_hats.nan_to_num(1.0).max())
        # The largest Pareto k is part of the record.
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            figures = loo_figures(loo_by_cell(one))
        records.append(LeftOut(figures["elpd"], figures["se"], figures["p"], figures["max_pareto_k"], r_hat))
        data[str(index)] = one
    # Stacking weights need them side by side.
    if len(records) > 1:
        table = compare_data(data)
        weights = dict(zip(map(str, table.index), table["weight"].tolist(), strict=True))
        records = [replace(left, weight=weights[str(k)]) for k, left in enumerate(records)]
    return list(records), ""


# Pictures of a posterior over structure: probabilities by chain or by prior, and averaged cells.


def dots_figure(labels: Sequence[str], series: Mapping[str, np.ndarray], axis_label: str) -> Figure:
    """Probabilities (num_labels,) of several series as dots on one line a label, the first label on top."""
    figure = Figure()
    # Room for the labels, one line of dots each.
    texts = [wrapped(label, 20) for label in labels]
    num_lines = max((text.count("\n") + 1 for text in texts), default=1)
    axes = axes_for(figure, WIDTH, 0.8 + (0.14 + 0.16 * num_lines) * max(len(labels), 1))
    rows = np.arange(len(labels))[::-1]
    values = np.array(list(series.values())).reshape(len(series), len(labels))
    # A bar from the least to the greatest, then the dots of each series a little apart.
    for row, column in zip(rows, values.T, strict=True):
        axes.plot([column.min(), column.max()], [row, row], color=FAINT, linewidth=2.0, zorder=1)
    offsets = np.linspace(0.16, -0.16, len(series)) if len(series) > 1 else [0.0]
    for index, (name, points) in enumerate(zip(series, values, strict=True)):
        colour = KINDS[index % len(KINDS)]
        axes.plot(points, rows + offsets[index], "o", color=colour, markersize=5, label=literal(name), zorder=2)
    axes.set_yticks(rows, texts)
    axes.set_ylim(-0.7, len(labels) - 0.3)
    axes.set_xlim(-0.03, 1.03)
    axes.set_xlabel(axis_label, color=INK)
    plain_axes(axes)
    handles, _ = axes.get_legend_handles_labels()
    span = Line2D([], [], color=FAINT, linewidth=2.0, label="from the least to the greatest")
    legend_below(None, axes, [*handles, span])
    return figure


_SHOWN, _SHOWN_DOTS, _SHOWN_CELLS = 10, 12, 20
_MAX_SETS = 12
_LABEL = 56  # characters of an interaction in a picture or a sentence
_MAX_PARETO_K = 0.7  # as of fits with a posterior
_LEAST = 0.05  # probability of an interaction in the picture
_ROUTES = {
    "list": "Every collection was listed.",
    "junction-trees": "The collections are independent draws, by sums over all junction trees.",
    "chains": "The collections are draws of Markov chains.",
}


def structure_sentence(record: StructureRecord) -> str:
    """Which interactions the posterior takes for real."""
    likely = [(edge, mean) for edge, mean in _ranked(record) if mean > 0.5]
    if not likely:
        return "No interaction is more probable than not."
    num = plural(len(likely), "interaction is", "interactions are")
    shown = [f"{short_edge(edge, _LABEL, ' with ')} ({_chance(mean)})" for edge, mean in likely]
    return f"{num} more probable than not: {listed(shown, 3, 2 * _LABEL)}."


def _chance(probability: float) -> str:
    """A probability, never rounded to certainty."""
    return "above 0.999" if 0.9995 <= probability < 1 else number(probability)


def _evidence(record: StructureRecord) -> str:
    """How the evidence was found, and whether that is exact."""
    method = record.posterior.method
    if record.posterior.evidence.is_exact:
        return "in closed form"
    return "Laplace's approximation" if method == "laplace" else f"{method}, with a Monte Carlo error"


def structure_warnings(record: StructureRecord) -> list[str]:
    """What to know before reading on: chains that disagree, and leave-one-out that rests on few draws."""
    found: list[str] = []
    if record.posterior.status == "unconverged":
        found.append(
            f"The chains over collections disagree (largest R-hat of an interaction {number(record.max_r_hat)}): the "
            "probabilities of interactions and collections are not settled. Draw longer chains, or restrict the space."
        )
    worst = max((rival.left_out.max_pareto_k for rival in record.rivals if rival.left_out is not None), default=0.0)
    if worst > _MAX_PARETO_K:
        found.append(f"Leave-one-out is unreliable for some cells (largest Pareto k {worst:.2f}).")
    return found


def structure_sections(record: StructureRecord, fit: FitResult) -> list[Section]:
    """The sections in reading order; ``fit`` is that of the most probable collection.

    Example:
        >>> from pyro_hoim import Domain, Observations, fit
        >>> from pyro_hoim.inference import StructurePrior
        >>> from pyro_hoim.log_linear import Prior
        >>> from pyro_hoim.runs.checkpoint import RunOptions
        >>> from pyro_hoim.study import find_structures, record_structures
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[9, 1], [1, 9]])
        >>> law, prior = StructurePrior(rows.domain, space="decomposable"), Prior("conjugate", 1.0)
        >>> posterior, route = find_structures(rows, prior, law, None, seed=1, run=RunOptions())
        >>> record = record_structures(posterior, route, 2, 20, seed=1)
        >>> [section.title for section in structure_sections(record, fit(record.rivals[0].hypergraph, rows))]
        ['Which interactions exist', 'Most probable models', 'Other priors', 'Averaged cells']
    """
    found = [_interactions(record), _models(record), _chains(record), _others(record), _cells(record, fit)]
    return [section for section in found if section is not None]


def _ranked(record: StructureRecord) -> list[tuple[Edge, float]]:
    """Interactions by falling probability."""
    inclusion = record.posterior.inclusion
    pairs = zip(inclusion.edges, inclusion.mean.tolist(), strict=True)
    return sorted(pairs, key=lambda pair: -pair[1])


def _interactions(record: StructureRecord) -> Section:
    section = Section("Which interactions exist")
    top, num = record.rivals[0], plural(record.posterior.num_structures, "model")
    met = "" if record.route == "list" else " that the draws met"
    name, chance = shorten(top.name, 2 * _LABEL), _chance(top.probability)
    section.text(f"Of {num}{met} the most probable is {name}, with probability {chance}.", brief=True)
    section.note(f"{_ROUTES[record.route]} Prior: {record.prior}. Evidence: {_evidence(record)}.", brief=True)
    space, inclusion = record.posterior.structure_prior.space, record.posterior.inclusion
    # Pictures leave out what the rows all but exclude.
    weights = {edge: mean for edge, mean in _ranked(record) if mean >= _LEAST}
    follow = [edge for edge in weights if len(edge) > 2] if space.is_graphical else []
    if len(follow) > _MAX_SETS:
        weights = {edge: mean for edge, mean in weights.items() if len(edge) == 2}
    if weights:
        singles = [(name,) for name in space.domain.names]
        graph = InteractionHypergraph(space.domain, [*singles, *weights], hierarchical=False)
        section.figure(
            figure_of(plot_hypergraph, graph, weights, full=1.0, unit="probability"),
            "Variables on a circle; the wider an arc, the more probable the pair; larger sets are regions or stars",
        )
        section.note(
            "Widths are posterior probabilities; the widest line of a kind stands for 1. Interactions of probability "
            f"below {_LEAST:g} are left out."
        )
        if len(follow) > _MAX_SETS:
            section.note(f"{len(follow)} larger sets follow from the pairs and are not drawn.")
    # All interactions with their probability before and after the rows.
    position = {edge: k for k, edge in enumerate(inclusion.edges)}
    prior = record.posterior.structure_prior
    before = None if prior.unnormalised else prior.marginal_inclusion.tolist()
    columns = ["interaction", "probability", "prior probability"]
    is_drawn = record.route != "list"
    columns += ["Monte Carlo SE"] if is_drawn else []
    columns += ["R-hat"] if inclusion.r_hat is not None else []
    rows: list[list[object]] = []
    for edge, mean in _ranked(record):
        k = position[edge]
        row: list[object] = [":".join(edge), cell(mean), cell(None if before is None else before[k])]
        row += [cell(float(inclusion.mcse[k]))] if is_drawn else []
        row += [float(inclusion.r_hat[k])] if inclusion.r_hat is not None else []
        rows.append(row)
    if rows:
        section.table(columns, rows, first=_SHOWN, further="Further interactions", brief=10)
    else:
        section.text("One variable has no interactions.")
    if before is None:
        section.note("Prior probabilities need the list of the space, which is too large.")
    return section


def _beside(record: StructureRecord, rival: RivalModel) -> str:
    """The most probable collection by its generating class, another by what it has and lacks beside that one."""
    first, own = record.rivals[0].hypergraph.edges, rival.hypergraph.edges
    if rival is record.rivals[0]:
        return rival.name
    changes = [f"with {':'.join(edge)}" for edge in own if edge not in first]
    changes += [f"without {':'.join(edge)}" for edge in first if edge not in own]
    return ", ".join(changes)


def _two(value: float) -> str:
    return fixed(value, 2)


def _models(record: StructureRecord) -> Section:
    section = Section("Most probable models", is_folded=True)
    head = ["collection", "probability", "log evidence"]
    has_loo = not record.reason
    head += ["elpd (LOO)", "stacking weight", "SE of elpd", "p (LOO)", "largest Pareto k"] if has_loo else []
    rows: list[list[object]] = []
    # The most probable collection in full, the others by how they differ.
    for rival in record.rivals:
        left = rival.left_out
        row: list[object] = [_beside(record, rival), cell(rival.probability), cell(rival.log_evidence, _two)]
        if left is not None:
            figures = (left.elpd, left.weight, left.std_error, left.num_effective_parameters, left.max_pareto_k)
            row += [cell(value, _two) for value in figures]
        rows.append(row)
    section.table(head, rows, chosen=0, brief=len(rows))
    section.note("Collections after the first are named by the interactions that they have or lack compared with it.")
    # The generating classes, since the table names differences alone.
    if len(rows) > 1:
        generators = [[str(k + 1), rival.name] for k, rival in enumerate(record.rivals)]
        section.table(
            ["number", "largest interactions"],
            generators,
            folded=f"Their largest interactions, which imply the smaller ones ({len(rows)})",
        )
    section.note(
        "Log evidence: log of the probability of the rows under a collection, averaged over the prior of its "
        "coefficients, in nats. It depends on this prior even where the estimates hardly do."
    )
    # How far each predicts rows left out, where that could be found.
    if has_loo:
        worst = max(rival.left_out.max_r_hat for rival in record.rivals if rival.left_out is not None)
        section.note(
            "elpd is the expected log predictive density by leave-one-out cross-validation under the same prior, p "
            "(LOO) the effective number of parameters. Stacking weights mix these collections so that rows left out "
            "are predicted best. Largest R-hat of the draws of coefficients (1 where chains agree): "
            f"{number(worst)}."
        )
    else:
        section.note(f"There is no leave-one-out: {record.reason}.")
    return section


def _chains(record: StructureRecord) -> Section | None:
    inclusion = record.posterior.inclusion
    if inclusion.per_chain is None or inclusion.r_hat is None:
        return None
    section = Section("Where the chains disagree", is_folded=True)
    spread = (inclusion.per_chain.amax(0) - inclusion.per_chain.amin(0)).tolist()
    # Those that differ most between chains are looked at.
    order = sorted(range(len(spread)), key=lambda k: -spread[k])[:_SHOWN_DOTS]
    if not order:
        return None
    means = inclusion.per_chain.numpy()
    section.figure(
        dots_figure(
            [":".join(inclusion.edges[k]) for k in order],
            {f"chain {c + 1}": row[order] for c, row in enumerate(means)},
            "probability within a chain",
        ),
        "Probability of each interaction within every chain, those that differ most on top",
    )
    section.table(
        ["interaction", *(f"chain {c + 1}" for c in range(len(means))), "R-hat"],
        [[":".join(inclusion.edges[k]), *map(cell, means[:, k].tolist()), float(inclusion.r_hat[k])] for k in order],
        folded=f"Probabilities by chain ({len(order)})",
    )
    section.text(
        f"Status: {record.posterior.status}; largest R-hat of an interaction {number(record.max_r_hat)} (1 where "
        "chains agree). It is infinite where every chain is stuck, and not all at the same value."
    )
    return section


def _others(record: StructureRecord) -> Section | None:
    names = list(record.others)
    means = np.array([other.inclusion.mean.numpy() for other in record.others.values()])
    edges = record.posterior.inclusion.edges
    order = sorted(np.flatnonzero(means.max(0, initial=0) >= _LEAST), key=lambda k: -np.ptp(means[:, k]))[:_SHOWN_DOTS]
    if not order:
        return None
    section = Section("Other priors", is_folded=True)
    # Interactions whose probability the prior moves most.
    section.figure(
        dots_figure(
            [":".join(edges[k]) for k in order], dict(zip(names, means[:, order], strict=True)), "posterior probability"
        ),
        "Probability of each interaction under three priors, those that differ most on top",
    )
    section.table(
        ["interaction", *names],
        [[":".join(edges[k]), *map(cell, means[:, k].tolist())] for k in order],
        folded=f"Probabilities by prior ({len(order)})",
    )
    # The most probable collection under each prior.
    rows: list[list[object]] = []
    for name, other in record.others.items():
        top = other.models(1)[0]
        effective = [] if record.route == "list" else [other.num_effective or _num_draws(record)]
        generators = "".join(f"[{' '.join(edge)}]" for edge in top.hypergraph.maximal_edges)
        rows.append([name, generators, cell(top.probability), *effective])
    head = ["prior", "most probable collection", "its probability"]
    section.table(head + ([] if record.route == "list" else ["effective draws"]), rows)
    drawn = "" if record.route == "list" else " The draws are weighted; collections that none of them met stay unknown."
    section.note(
        "The prior of the coefficients with a quarter of its information, as asked, and with four times as "
        f"much.{drawn}"
    )
    return section


def _num_draws(record: StructureRecord) -> float:
    index = record.posterior.index
    return float("nan") if index is None else float(index.numel())


def _cells(record: StructureRecord, fit: FitResult) -> Section:
    section = Section("Averaged cells", is_folded=True)
    if record.cells is None:
        section.text("The table has more than 4,096 cells, and its averaged probabilities are not listed.")
        return section
    # Expected counts averaged over collections, beside those of the most probable one.
    rows = record.posterior.data
    total = float(rows.total_count)
    observed = rows.table().numpy().astype(float).reshape(-1)
    averaged = total * record.cells.numpy().reshape(-1)
    single = total * HierarchicalLogLinear(fit.hypergraph, fit.theta).probs.numpy().reshape(-1)
    # Cells that averaging changes most come first.
    apart = np.abs(averaged - single)
    order = np.argsort(-apart, kind="stable")
    domain = rows.domain
    levels = np.stack(np.unravel_index(order, domain.cardinalities), 1)
    section.table(
        [*domain.names, "observed", "averaged", "most probable collection"],
        [
            [
                *(v.labels[code] for v, code in zip(domain, codes, strict=True)),
                observed[cell],
                averaged[cell],
                single[cell],
            ]
            for cell, codes in zip(order, levels, strict=True)
        ],
        first=_SHOWN_CELLS,
        further="Further cells",
    )
    section.note(
        "Expected counts of cells, averaged over collections and their coefficients; beside them those of the most "
        "probable collection at its posterior mode. The cells that averaging changes most come first."
    )
    return section
