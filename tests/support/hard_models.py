r"""Models whose log Z is known exactly and is hard to estimate.

Every model has a closed form, a sum over counts, a transfer matrix or a full enumeration behind its log Z, none of
which shares code with :mod:`pyro_hoim.log_linear.exact`. The published suite of them is
:mod:`support.hard_suite`.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from pyro_hoim import Domain, GeneralizedRootEnergy, InteractionHypergraph, LogLinearEnergy, RootStructure, Variable
from pyro_hoim.generalized_root.nodes.families import PoissonFamily

from .root_models import log_sum

Scope = tuple[int, ...]


@dataclass(frozen=True)
class HardModel:
    """A model with its exact log Z.

    Attributes:
        name: class of the model.
        parameters: what tells it from the others of its class.
        energy: the model, without a batch, float64.
        log_z: its exact log Z, nats.
    """

    name: str
    parameters: Mapping[str, Any]
    energy: LogLinearEnergy | GeneralizedRootEnergy
    log_z: float


def _log_binomial(size: int) -> np.ndarray:
    """Log binomial coefficients of ``size`` (size + 1,)."""
    return np.array([math.lgamma(size + 1) - math.lgamma(k + 1) - math.lgamma(size - k + 1) for k in range(size + 1)])


def log_linear_energy(cardinalities: Iterable[int], tables: Mapping[Scope, np.ndarray]) -> LogLinearEnergy:
    """The model with a table for every scope, a tuple of increasing variable numbers."""
    domain = Domain.from_cardinalities(list(cardinalities))
    ordered = sorted(tables, key=lambda scope: (len(scope), scope))
    edges = [tuple(domain.names[i] for i in scope) for scope in ordered]
    flat = np.concatenate(
        [np.zeros(0), *(np.asarray(tables[scope], dtype=np.float64).reshape(-1) for scope in ordered)]
    )
    graph = InteractionHypergraph(domain, edges, hierarchical=False)
    return LogLinearEnergy(graph, torch.from_numpy(flat))


def enumerated_log_z(energy: LogLinearEnergy) -> float:
    """Log Z by the sum over all states at once; 8 bytes a state."""
    graph, flat = energy.hypergraph, energy.tables.numpy()
    cards = graph.domain.cardinalities
    total = np.zeros(())
    for last, card in enumerate(cards):  # every interaction over no more variables than up to its last one
        total = np.repeat(total[..., None], card, -1)
        for edge, scope in zip(graph.edges, graph.edge_indices, strict=True):
            if scope[-1] == last:
                total += flat[graph.term_slices[edge]].reshape([cards[i] if i in scope else 1 for i in range(last + 1)])
    return log_sum(total)


def _signs(order: int) -> np.ndarray:
    """Product of ``order`` spins (2, ..., 2)."""
    return (1 - 2 * (np.indices((2,) * order).sum(0) % 2)) * (-1.0) ** order


def _spins(size: int, weights: Mapping[Scope, float]) -> LogLinearEnergy:
    """Spins of level 0 (down, -1) and 1 (up, +1); log q is the sum of weights times products of spins."""
    return log_linear_energy([2] * size, {scope: weight * _signs(len(scope)) for scope, weight in weights.items()})


def mean_field_spins(size: int, field: float = -4.0, pair: float = 14.0, triple: float = 27.0) -> HardModel:
    """Spins with equal fields, pairs ``pair`` / n and triples ``triple`` / n^2; log Z by the number of up spins."""
    strengths = (field, pair / size, triple / size**2)
    weights = {
        s: strengths[r - 1] for r in (1, 2, 3) for s in itertools.combinations(range(size), r) if strengths[r - 1]
    }
    total = 2.0 * np.arange(size + 1) - size
    pairs, triples = (total**2 - size) / 2, (total**3 - 3 * size * total + 2 * total) / 6
    levels = strengths[0] * total + strengths[1] * pairs + strengths[2] * triples
    parameters = {"size": size, "field": field, "pair": pair, "triple": triple}
    log_z = log_sum(levels + _log_binomial(size))
    return HardModel("spins of orders 1 to 3", parameters, _spins(size, weights), log_z)


def curie_weiss(size: int, coupling: float, field: float = 0.0) -> HardModel:
    """Spins with all pairs ``coupling`` / n; they order where the coupling exceeds 1."""
    model = mean_field_spins(size, field, coupling, 0.0)
    return HardModel("Curie-Weiss", {"size": size, "coupling": coupling, "field": field}, model.energy, model.log_z)


def two_wells(size: int, field: float, near: float, far: float) -> HardModel:
    r"""Two patterns, all up and half up: fields lead to the first, the second is deeper.

    .. math:: \log q(s) = h \sum_i s_i + \frac1n \sum_{i<j} (a + b\, p_i p_j)\, s_i s_j

    with field h, ``near`` a, ``far`` b and p = +1 for the first half, -1 for the second.
    """
    half = size // 2
    pattern = [1] * half + [-1] * (size - half)
    weights: dict[Scope, float] = {(i,): field for i in range(size)}
    for i, j in itertools.combinations(range(size), 2):
        weights[i, j] = (near + far * pattern[i] * pattern[j]) / size
    first = 2.0 * np.arange(half + 1)[:, None] - half
    second = 2.0 * np.arange(size - half + 1) - (size - half)
    levels = field * (first + second)
    levels = levels + near / (2 * size) * ((first + second) ** 2 - size)
    levels = levels + far / (2 * size) * ((first - second) ** 2 - size)
    log_z = log_sum(levels + _log_binomial(half)[:, None] + _log_binomial(size - half))
    parameters = {"size": size, "field": field, "near": near, "far": far}
    return HardModel("two wells", parameters, _spins(size, weights), log_z)


def condensing_level(size: int, levels: int, coupling: float) -> HardModel:
    """Every pair of variables gains ``coupling`` where both are at level 0; log Z by the number of these."""
    table = np.zeros((levels, levels))
    table[0, 0] = coupling
    energy = log_linear_energy([levels] * size, dict.fromkeys(itertools.combinations(range(size), 2), table))
    count = np.arange(size + 1)
    gains = coupling * count * (count - 1) / 2 + (size - count) * math.log(levels - 1)
    parameters = {"size": size, "levels": levels, "coupling": coupling}
    return HardModel("condensing level", parameters, energy, log_sum(gains + _log_binomial(size)))


def potts_complete(size: int, colours: int, coupling: float, field: float = 0.0) -> HardModel:
    """Every pair of equal colours gains ``coupling`` / n, the first colour ``field``; log Z by a sum over counts."""
    tables: dict[Scope, np.ndarray] = {
        s: coupling / size * np.eye(colours) for s in itertools.combinations(range(size), 2)
    }
    if field:
        tables |= {(i,): field * (np.arange(colours) == 0) for i in range(size)}
    count = np.arange(size + 1)
    one = coupling / size * count * (count - 1) / 2 - np.array([math.lgamma(k + 1) for k in count])
    total = one + field * count
    for _ in range(colours - 1):
        total = np.array([log_sum(total[: k + 1] + one[k::-1]) for k in count])
    parameters = {"size": size, "colours": colours, "coupling": coupling, "field": field}
    log_z = float(total[size]) + math.lgamma(size + 1)
    return HardModel("Potts, complete graph", parameters, log_linear_energy([colours] * size, tables), log_z)


def blocks_of_levels(
    size: int, widths: Sequence[int], gains: Sequence[float], fields: Sequence[float] = ()
) -> HardModel:
    r"""Levels in blocks: pairs in one block gain that block's number, variables in it that block's field.

    Block b has ``widths`` w levels, ``gains`` g and ``fields`` h, zero where none are given. Log Z by the numbers of
    variables in every block, one block after the other:

    .. math:: Z = n! \, [t^n] \prod_b \sum_k \frac{w_b^k}{k!} \exp\Bigl(h_b k + g_b \frac{k (k - 1)}2\Bigr) t^k
    """
    fields = [*fields, *[0.0] * (len(widths) - len(fields))]
    block = np.repeat(np.arange(len(widths)), widths)
    table = np.where(block[:, None] == block, np.asarray(gains, dtype=np.float64)[block], 0.0)
    tables: dict[Scope, np.ndarray] = dict.fromkeys(itertools.combinations(range(size), 2), table)
    if any(fields):
        tables |= {(i,): np.asarray(fields, dtype=np.float64)[block] for i in range(size)}
    count = np.arange(size + 1)
    total, factorials = np.where(count == 0, 0.0, -np.inf), np.array([math.lgamma(k + 1) for k in count])
    for width, gain, field in zip(widths, gains, fields, strict=True):
        one = count * (math.log(width) + field) + gain * count * (count - 1) / 2 - factorials
        total = np.array([np.logaddexp.reduce(total[: k + 1] + one[k::-1]) for k in count])
    parameters = {"size": size, "widths": tuple(widths), "gains": tuple(gains), "fields": tuple(fields)}
    log_z = float(total[size] + factorials[size])
    return HardModel("blocks of levels", parameters, log_linear_energy([len(block)] * size, tables), log_z)


def broad_phase(
    size: int, wide: int, peaks: int, lead: float, *, field: float = 7.0, own: float = 0.3, edge: float = 0.12
) -> HardModel:
    """Blocks of one level with a ``field``, of ``wide`` levels, and of one level each for some ``peaks``.

    All variables in the broad block weigh ``lead`` nats more than all in the first, whose gain is ``own``; the peaks
    gain ``edge`` more than the broad block, so that the most probable states are there.
    """
    pairs = size * (size - 1) / 2
    broad = (field * size + own * pairs + lead - size * math.log(wide)) / pairs
    model = blocks_of_levels(size, [1, wide] + [1] * peaks, [own, broad] + [broad + edge] * peaks, [field])
    parameters = {"size": size, "wide": wide, "peaks": peaks, "lead": lead, "field": field, "own": own, "edge": edge}
    return replace(model, parameters=parameters)


def condensate_and_dimers(size: int, levels: int, gain: float, dimer: float, against: float) -> HardModel:
    """Pairs at level 0 gain ``gain`` against a field; every pair has a cell of its own that gains ``dimer``.

    The best cell of every table is the pair's own one. No variable can be in two of these, as the level for a partner
    is its own; log Z by the numbers of variables at level 0 and of pairs matched among the others.
    """
    single = np.where(np.arange(levels) == 0, -against, 0.0)
    tables: dict[Scope, np.ndarray] = {(i,): single for i in range(size)}
    for i, j in itertools.combinations(range(size), 2):
        tables[i, j] = np.zeros((levels, levels))
        tables[i, j][0, 0], tables[i, j][j, i + 1] = gain, dimer
    parts = list[float]()
    for low in range(size + 1):
        for pairs in range((size - low) // 2 + 1):
            rest = size - low - 2 * pairs
            ways = math.lgamma(size + 1) - sum(math.lgamma(k + 1) for k in (low, rest, pairs)) - pairs * math.log(2)
            weight = gain * low * (low - 1) / 2 - against * low + rest * math.log(levels - 1)
            parts.append(ways + weight + pairs * math.log(math.expm1(dimer)))
    parameters = {"size": size, "levels": levels, "gain": gain, "dimer": dimer, "against": against}
    return HardModel(
        "condensate and dimers", parameters, log_linear_energy([levels] * size, tables), log_sum(np.array(parts))
    )


def shuffled(model: HardModel, seed: int) -> HardModel:
    """The same law with the levels of every variable in another order, at random; log Z is the same.

    Counts, whose order is part of the model, stay.
    """
    if isinstance(model.energy, GeneralizedRootEnergy):
        return model
    graph, rng = model.energy.hypergraph, np.random.default_rng(seed)
    orders = [rng.permutation(levels) for levels in graph.domain.cardinalities]
    flat = model.energy.tables.numpy()
    parts = [np.zeros(0)]
    for scope, piece, shape in zip(graph.edge_indices, graph.term_slices.values(), graph.edge_shapes, strict=True):
        parts.append(flat[piece].reshape(shape)[np.ix_(*(orders[i] for i in scope))].reshape(-1))
    energy = LogLinearEnergy(graph, torch.from_numpy(np.concatenate(parts)))
    return replace(model, energy=energy, parameters={**model.parameters, "shuffled": seed})


def _grid_log_z(colours: int, right: np.ndarray, down: np.ndarray) -> float:
    """Log Z of a grid where equal neighbours gain ``right`` (rows, cols - 1) or ``down`` (rows - 1, cols)."""
    rows, cols = len(right), right.shape[1] + 1
    weights, log_z = np.zeros((colours,) * cols), 0.0
    weights[(0,) * cols] = 1.0  # one state before the first row, with which nothing interacts
    for i, j in itertools.product(range(rows), range(cols)):
        gain = np.exp(down[i - 1, j] * np.eye(colours)) if i else np.ones((colours, colours))
        weights = np.moveaxis(np.tensordot(weights, gain, (j, 0)), -1, j)
        if j:
            shape = [colours if axis in (j - 1, j) else 1 for axis in range(cols)]
            weights = weights * np.exp(right[i, j - 1] * np.eye(colours)).reshape(shape)
        log_z += math.log(weights.max())
        weights = weights / weights.max()
    return log_z + math.log(weights.sum())


def _grid_edges(rows: int, cols: int) -> tuple[list[Scope], list[Scope]]:
    """Edges to the right and down, row after row."""
    right = [(i * cols + j, i * cols + j + 1) for i in range(rows) for j in range(cols - 1)]
    return right, [(i * cols + j, (i + 1) * cols + j) for i in range(rows - 1) for j in range(cols)]


def potts_grid(rows: int, cols: int, colours: int, coupling: float) -> HardModel:
    r"""Equal neighbours gain ``coupling``; on large grids the transition is at :math:`\log(1 + \sqrt q)`."""
    right, down = _grid_edges(rows, cols)
    energy = log_linear_energy([colours] * (rows * cols), dict.fromkeys(right + down, coupling * np.eye(colours)))
    log_z = _grid_log_z(colours, np.full((rows, cols - 1), coupling), np.full((rows - 1, cols), coupling))
    parameters = {"rows": rows, "cols": cols, "colours": colours, "coupling": coupling}
    return HardModel("Potts grid", parameters, energy, log_z)


def sign_grid(rows: int, cols: int, coupling: float, seed: int) -> HardModel:
    """Spins on a grid, neighbours coupled by ``coupling`` with random signs."""
    right, down = _grid_edges(rows, cols)
    values = coupling * np.random.default_rng(seed).choice([-1.0, 1.0], len(right) + len(down))
    energy = _spins(rows * cols, dict(zip(right + down, values.tolist(), strict=True)))
    across, below = values[: len(right)].reshape(rows, -1), values[len(right) :].reshape(-1, cols)
    log_z = _grid_log_z(2, 2 * across, 2 * below) - float(values.sum())
    parameters = {"rows": rows, "cols": cols, "coupling": coupling, "seed": seed}
    return HardModel("+-J grid", parameters, energy, log_z)


def spin_glass(size: int, coupling: float, seed: int) -> HardModel:
    """All pairs of spins with normal couplings of standard deviation ``coupling`` / sqrt(n); up to 22 spins."""
    pairs = list(itertools.combinations(range(size), 2))
    values = np.random.default_rng(seed).normal(0, coupling / math.sqrt(size), len(pairs))
    energy = _spins(size, dict(zip(pairs, values.tolist(), strict=True)))
    parameters = {"size": size, "coupling": coupling, "seed": seed}
    return HardModel("Sherrington-Kirkpatrick", parameters, energy, enumerated_log_z(energy))


def _independent_triples(size: int, rng: np.random.Generator) -> list[Scope]:
    """As many triples as variables, linearly independent over the field of two elements."""
    found, basis = list[Scope](), dict[int, int]()
    while len(found) < size:
        triple = tuple(sorted(rng.choice(size, 3, replace=False).tolist()))
        row = sum(1 << i for i in triple)
        while row and row.bit_length() in basis:
            row ^= basis[row.bit_length()]
        if row:
            basis[row.bit_length()] = row
            found.append(triple)
    return found


def xor_sat(size: int, weight: float, seed: int) -> HardModel:
    r"""Independent equations of three spins, as many as spins, with one solution: :math:`Z = (2 \cosh w)^n`.

    The products of the equations run through all sign vectors once, so they are independent coins; the states that
    satisfy nearly all equations are scattered, and no local move tells how near the solution is.
    """
    rng = np.random.default_rng(seed)
    triples, planted = _independent_triples(size, rng), rng.choice([-1.0, 1.0], size)
    energy = _spins(size, {t: float(weight * planted[list(t)].prod()) for t in triples})
    log_z = size * float(np.logaddexp(weight, -weight))
    return HardModel("XOR-SAT", {"size": size, "weight": weight, "seed": seed}, energy, log_z)


def needle(size: int, height: float, others: int = 0, seed: int = 0) -> HardModel:
    """One state of ``size`` spins, coupled by one interaction, gains ``height``; ``others`` are independent coins."""
    rng = np.random.default_rng(seed)
    table = np.zeros((2,) * size)
    table[tuple(rng.integers(0, 2, size))] = height
    tables: dict[Scope, np.ndarray] = {tuple(range(size)): table}
    fields = rng.normal(0, 0.5, others)
    tables |= {(size + i,): np.array([-value, value]) for i, value in enumerate(fields)}
    log_z = float(np.logaddexp(math.log(2.0**size - 1), height) + np.logaddexp(fields, -fields).sum())
    parameters = {"size": size, "height": height, "others": others, "seed": seed}
    return HardModel("needle", parameters, log_linear_energy([2] * (size + others), tables), log_z)


def hidden_needle(windows: int, width: int, gain: float, decoys: int, seed: int) -> HardModel:
    """Windows of spins that overlap by half; one planted state gains ``gain`` in each, and so do ``decoys`` cells.

    Nothing in a window tells the planted cell from the decoys, which do not fit together. Log Z by summing the windows
    out one after the other.
    """
    rng, half = np.random.default_rng(seed), width // 2
    size = half * (windows + 1)
    planted = rng.integers(0, 2, size)
    tables: dict[Scope, np.ndarray] = {}
    log_sums = np.zeros(2**half)
    for first in range(0, half * windows, half):
        table = np.zeros((2,) * (2 * half))
        table.reshape(-1)[rng.choice(table.size, decoys, replace=False)] = gain
        table[tuple(planted[first : first + 2 * half])] = gain
        tables[tuple(range(first, first + 2 * half))] = table
        joint = log_sums[:, None] + table.reshape(2**half, 2**half)
        log_sums = np.array([log_sum(column) for column in joint.T])
    parameters = {"windows": windows, "width": width, "gain": gain, "decoys": decoys, "seed": seed}
    return HardModel("hidden needle", parameters, log_linear_energy([2] * size, tables), log_sum(log_sums))


def root_counts(size: int, linear: float, pair: float) -> HardModel:
    r"""Poisson counts whose roots attract one another, all alike: log Z by a sum over a normal auxiliary variable.

    .. math:: Z = \int \mathcal N(z; 0, 1) \Bigl( \sum_x \tfrac1{x!}
        \exp((\eta - \psi) x + \sqrt{2 \psi x}\, z) \Bigr)^n dz

    for ``linear`` eta and positive ``pair`` psi, the exponent of each ordered pair's root product. The trapezoidal
    rule converges faster than any power here.
    """
    domain = Domain([Variable(f"x{i}", kind="count") for i in range(size)])
    structure = RootStructure.simplified(domain, itertools.combinations(domain.names, 2))
    psi = torch.tensor([linear] * size + [pair] * (structure.num_terms - size), dtype=torch.float64)
    energy = GeneralizedRootEnergy(structure, psi, PoissonFamily())
    top = math.ceil(20 + 4 * math.exp(linear + pair * (size - 1)) + 4 * math.exp(linear))
    counts = np.arange(top + 1)
    base = (linear - pair) * counts - np.array([math.lgamma(k + 1) for k in counts])
    step, reach = 0.01, 12 + 2 * math.sqrt(2 * pair * top) * size
    z = np.arange(-12, reach, step)
    each = base[:, None] + np.sqrt(2 * pair * counts)[:, None] * z
    highest = each.max(0)
    log_terms = size * (highest + np.log(np.exp(each - highest).sum(0))) - z**2 / 2
    log_z = log_sum(log_terms) + math.log(step) - math.log(2 * math.pi) / 2
    return HardModel("root counts", {"size": size, "linear": linear, "pair": pair}, energy, log_z)


def copies(size: int, coupling: float, is_ring: bool = False, cards: int = 2) -> LogLinearEnergy:
    """Columns that copy the one before, with so many nats for equal neighbours."""
    domain = Domain.from_cardinalities([cards] * size)
    pairs = [*itertools.pairwise(domain.names), *([(domain.names[0], domain.names[-1])] if is_ring else [])]
    graph = InteractionHypergraph(domain, pairs, hierarchical=False)
    return LogLinearEnergy(graph, torch.as_tensor(coupling * np.tile(np.eye(cards).reshape(-1), len(pairs))))


def subsets(rng: np.random.Generator, size: int, order: int, number: int) -> list[Scope]:
    """Different random sets of some of the variables 0, 1, ..., sorted."""
    chosen = set[Scope]()
    while len(chosen) < number:
        chosen.add(tuple(sorted(rng.choice(size, order, replace=False).tolist())))
    return sorted(chosen)
