"""What a report says of a posterior over structure. Nothing is computed here but formats."""

from __future__ import annotations

import numpy as np

from ...core.page import Section, cell
from ...core.words import fixed, number, plural, short_edge, shorten
from ...log_linear.fitting.result import FitResult
from ...log_linear.laws.law import HierarchicalLogLinear
from ...plots.drawing import figure_of
from ...plots.hypergraph import plot_hypergraph
from ...structure.hypergraph import Edge, InteractionHypergraph
from .figures import cells_figure, dots_figure
from .record import RivalModel, StructureRecord

__all__ = ["structure_sections", "structure_sentences", "structure_warnings"]

_SHOWN, _SHOWN_DOTS, _SHOWN_CELLS = 20, 15, 20
_MAX_SETS = 12
_LABEL = 56  # characters of an interaction in a picture or a sentence
_MAX_PARETO_K = 0.7  # as of fits with a posterior
_LEAST = 0.05  # probability of an interaction in the picture
_ROUTES = {
    "list": "Every collection was listed.",
    "junction-trees": "The collections are independent draws, by sums over all junction trees.",
    "chains": "The collections are draws of Markov chains.",
}


def structure_sentences(record: StructureRecord) -> list[str]:
    """What the posterior says, in a few sentences."""
    posterior = record.posterior
    top, num = record.rivals[0], plural(posterior.num_structures, "collection")
    space, met = posterior.structure_prior.space.name, "" if record.route == "list" else " met by the draws"
    sentences = [
        (
            f"Posterior over which interactions exist: {num} (sets of interactions that make a model){met}, in the "
            f"{space} space with the prior {record.prior}."
        ),
        f"{_ROUTES[record.route]} Evidence: {_evidence(record)}.",
        f"The most probable collection has probability {number(top.probability)}: {shorten(top.name, 4 * _LABEL)}.",
    ]
    likely = [edge for edge, mean in _ranked(record) if mean > 0.5]
    if likely:
        shown = ", ".join(f"{_label(edge)} ({number(posterior.inclusion[edge])})" for edge in likely[:6])
        more = f" and {len(likely) - 6} more" if len(likely) > 6 else ""
        sentences.append(f"Interactions with a probability above one half: {shown}{more}.")
    else:
        sentences.append("No interaction has a probability above one half.")
    return sentences


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


def _label(edge: Edge) -> str:
    return short_edge(edge, _LABEL)


def _ranked(record: StructureRecord) -> list[tuple[Edge, float]]:
    """Interactions by falling probability."""
    inclusion = record.posterior.inclusion
    pairs = zip(inclusion.edges, inclusion.mean.tolist(), strict=True)
    return sorted(pairs, key=lambda pair: -pair[1])


def _interactions(record: StructureRecord) -> Section:
    section = Section("Which interactions exist")
    space, inclusion = record.posterior.structure_prior.space, record.posterior.inclusion
    weights = {edge: mean for edge, mean in _ranked(record) if mean >= _LEAST}
    follow = [edge for edge in weights if len(edge) > 2] if space.is_graphical else []
    if len(follow) > _MAX_SETS:
        weights = {edge: mean for edge, mean in weights.items() if len(edge) == 2}
    if len(space.domain) <= 40:
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
    elif weights:
        section.note("With more than 40 variables the picture is left out.")
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
    section = Section("Most probable models")
    head = ["collection", "probability", "log evidence"]
    has_loo = not record.reason
    head += ["elpd (LOO)", "stacking weight", "SE of elpd", "p (LOO)", "largest Pareto k"] if has_loo else []
    rows: list[list[object]] = []
    for rival in record.rivals:
        left = rival.left_out
        row: list[object] = [_beside(record, rival), cell(rival.probability), cell(rival.log_evidence, _two)]
        if left is not None:
            figures = (left.elpd, left.weight, left.std_error, left.num_effective_parameters, left.max_pareto_k)
            row += [cell(value, _two) for value in figures]
        rows.append(row)
    section.table(head, rows, chosen=0, brief=len(rows))
    section.note("Collections after the first are named by the interactions that they have or lack compared with it.")
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
    section = Section("Where the chains disagree")
    spread = (inclusion.per_chain.amax(0) - inclusion.per_chain.amin(0)).tolist()
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
    section = Section("Other priors")
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
    section = Section("Averaged cells")
    if record.cells is None:
        section.text("The table has more than 4,096 cells, and its averaged probabilities are not listed.")
        return section
    rows = record.posterior.data
    total = float(rows.total_count)
    observed = rows.table().numpy().astype(float).reshape(-1)
    averaged = total * record.cells.numpy().reshape(-1)
    single = total * HierarchicalLogLinear(fit.hypergraph, fit.theta).probs.numpy().reshape(-1)
    section.figure(
        cells_figure(observed, averaged, single),
        "Averaged expected counts of cells against observed counts and against those of the most probable collection",
    )
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
        folded=f"The {plural(min(len(order), _SHOWN_CELLS), 'cell')} that averaging changes most",
        first=_SHOWN_CELLS,
        further="Further cells",
    )
    section.note(
        "Expected counts of cells, averaged over collections and their coefficients; beside them those of the most "
        "probable collection at its posterior mode."
    )
    return section
