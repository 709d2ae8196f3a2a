"""Markov networks of pgmpy and of mbi, from and to energies: variables by name, levels by label."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import torch

from ..core.partition import ExactBackend, PartitionBackend
from ..errors import check_positive, check_type, check_unique, refused, unexpected, wrong_shape, wrong_type
from ..log_linear.auto import Auto
from ..log_linear.energy import LogLinearEnergy
from ..schema import Domain
from ..structure.hypergraph import InteractionHypergraph


class _Factor(NamedTuple):
    """Variables, the levels of each in the order of its axis, and logs of weights."""

    names: tuple[Hashable, ...]
    levels: tuple[Sequence[Hashable], ...]
    logs: np.ndarray


def _energy(levels: Mapping[Hashable, Sequence[Hashable]], factors: Iterable[_Factor]) -> LogLinearEnergy:
    """The model of some factors; names and labels are texts, and each factor may have its own order of both."""
    labels = {str(name): [str(level) for level in known] for name, known in levels.items()}
    check_unique([str(name) for name in levels], "model", "give its variables names that differ as texts")
    domain = Domain.from_labels(labels)
    tables = dict[tuple[str, ...], np.ndarray]()
    for factor in factors:
        logs = factor.logs
        for axis, (name, states) in enumerate(zip(factor.names, factor.levels, strict=True)):
            if {*states} != {*levels[name]} or len(states) != len(levels[name]):
                expected = f"the levels {[*levels[name]]} of {name!r} in every factor"
                raise unexpected("model", expected, [*states], code="other-domain")
            logs = np.take(logs, [list(states).index(level) for level in levels[name]], axis)
        names = [str(name) for name in factor.names]
        order = sorted(range(len(names)), key=lambda axis: domain.index(names[axis]))
        edge = tuple(names[axis] for axis in order)
        tables[edge] = tables.get(edge, 0.0) + logs.transpose(order)
    constant = tables.pop((), np.zeros(()))
    if not tables and len(domain):
        tables[domain.names[0],] = np.zeros(domain.cardinalities[0])
    graph = InteractionHypergraph(domain, tables, hierarchical=False)
    flat = [tables[edge].ravel() for edge in graph.edges]
    flat[:1] = [part + constant for part in flat[:1]]
    return LogLinearEnergy(graph, torch.from_numpy(np.concatenate([np.empty(0), *flat])))


def _tables_of(energy: LogLinearEnergy) -> dict[tuple[str, ...], np.ndarray]:
    """Tables by edge, of one model."""
    check_type(energy, LogLinearEnergy, "energy")
    if energy.batch_shape:
        raise wrong_shape("energy", "(num_terms,), of one model", energy.tables)
    flat, graph = energy.tables.detach().double().cpu().numpy(), energy.hypergraph
    return {e: flat[graph.term_slices[e]].reshape(s) for e, s in zip(graph.edges, graph.edge_shapes, strict=True)}


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        problem, hint = f"the package {package} is not installed", f"pip install {package}"
        raise refused("model", problem, hint, code="missing-part") from None


def from_pgmpy(model: Any) -> LogLinearEnergy:
    """The energy of a ``DiscreteMarkovNetwork`` of pgmpy, logs of weights, minus infinity where one is zero.

    Names and states become texts. Factors may have their variables and states in any order; log Z is the log of
    pgmpy's partition function.

    Raises:
        InputError: names that are equal as texts, a variable in no factor, states that differ between factors, or
            negative, infinite or missing weights.
        InputTypeError: no such model; pgmpy converts a Bayesian network by ``to_markov_model``.

    Example:
        >>> from types import SimpleNamespace as Stand  # for objects of pgmpy, which need not be installed
        >>> factor = Stand(variables=["rain"], state_names={"rain": ["no", "yes"]}, values=[4.0, 0.0])
        >>> energy = from_pgmpy(Stand(nodes=["rain"], get_factors=lambda: [factor]))
        >>> energy.domain["rain"].labels, energy.tables.exp().tolist()
        (('no', 'yes'), [4.0, 0.0])
    """
    if not callable(getattr(model, "get_factors", None)) or not hasattr(model, "nodes"):
        hint = "convert it by model.to_markov_model()" if hasattr(model, "to_markov_model") else None
        raise wrong_type("model", "a DiscreteMarkovNetwork of pgmpy", model, hint)
    levels, factors = dict[Hashable, Sequence[Hashable]](), list[_Factor]()
    for factor in model.get_factors():
        names = tuple(factor.variables)
        states = tuple(tuple(factor.state_names[name]) for name in names)
        weights = np.asarray(factor.values, dtype=np.float64)
        if not bool(((weights >= 0) & (weights < np.inf)).all()):
            raise unexpected("model", "finite weights from 0", float(weights.min()), code="out-of-range")
        for name, known in zip(names, states, strict=True):
            levels.setdefault(name, known)
        with np.errstate(divide="ignore"):
            factors.append(_Factor(names, states, np.log(weights)))
    lost = [name for name in model.nodes if name not in levels]
    if lost:
        problem = f"{lost[0]!r} is in no factor, which alone would say its states"
        raise refused("model", problem, "add a factor of ones", code="missing-part")
    return _energy({name: levels[name] for name in model.nodes}, factors)


def to_pgmpy(energy: LogLinearEnergy) -> Any:
    """A ``DiscreteMarkovNetwork`` of pgmpy with the names and labels of the model and the weights of its tables.

    pgmpy needs a factor for every variable: those in no table have one of ones.

    Raises:
        InputError: pgmpy is not installed, a batch of models, or tables whose weights leave the range of float64.

    Example:
        >>> from pyro_hoim import Domain
        >>> graph = InteractionHypergraph(Domain.from_cardinalities([2]), [("x0",)])
        >>> to_pgmpy(LogLinearEnergy(graph, torch.zeros(3, 2)))
        Traceback (most recent call last):
            ...
        pyro_hoim.errors.InputError: energy: expected shape (num_terms,), of one model, received (3, 2)
    """
    tables, domain = _tables_of(energy), energy.domain
    discrete, models = _library("pgmpy.factors.discrete"), _library("pgmpy.models")
    network = models.DiscreteMarkovNetwork()
    network.add_nodes_from(domain.names)
    in_tables = {name for edge in tables for name in edge}
    tables |= {(name,): np.zeros(domain[name].cardinality) for name in domain.names if name not in in_tables}
    for edge, logs in tables.items():
        weights = np.exp(logs)
        if not np.isfinite(weights).all() or ((weights == 0) & np.isfinite(logs)).any():
            hint = "subtract a constant from the tables, or write it by to_uai"
            raise refused("energy", f"weights of {':'.join(edge)} leave the range of float64", hint, "out-of-range")
        network.add_edges_from((a, b) for i, a in enumerate(edge) for b in edge[i + 1 :])
        states = {name: list(domain[name].labels) for name in edge}
        network.add_factors(discrete.DiscreteFactor(list(edge), weights.shape, weights, state_names=states))
    return network


def from_mbi(model: Any) -> LogLinearEnergy:
    """The energy of a ``MarkovRandomField`` of mbi: its potentials, with minus infinity where a constraint excludes.

    Attributes without labels have the levels ``0``, ``1``, ...; the total is left out. mbi works in float32 unless JAX
    was told otherwise.

    Raises:
        InputError: attributes that are equal as texts, or potentials that are NaN or plus infinity.
        InputTypeError: no such model.

    Example:
        >>> from types import SimpleNamespace as Stand  # for objects of mbi, which need not be installed
        >>> domain = Stand(attributes=("rain",), shape=(2,), labels=None)
        >>> factor = Stand(domain=domain, values=[0.0, -1.0])
        >>> potentials = Stand(domain=domain, tables={("rain",): factor})
        >>> energy = from_mbi(Stand(potentials=potentials, constraints=()))
        >>> energy.domain["rain"].labels, energy.tables.tolist()
        (('0', '1'), [0.0, -1.0])
    """
    potentials: Any = getattr(model, "potentials", None)
    if not hasattr(potentials, "tables") or not hasattr(potentials, "domain"):
        check_type(model, (), "model", "a MarkovRandomField of mbi")
    domain: Any = potentials.domain
    labels = domain.labels or [range(size) for size in domain.shape]
    levels = dict(zip(domain.attributes, map(tuple, labels), strict=True))
    parts = [*potentials.tables.values(), *(constraint.potential for constraint in model.constraints)]
    factors = list[_Factor]()
    for part in parts:
        names = tuple(part.domain.attributes)
        factors.append(_Factor(names, tuple(levels[n] for n in names), np.asarray(part.values, dtype=np.float64)))
    return _energy(levels, factors)


def to_mbi(energy: LogLinearEnergy, total: float = 1.0, *, partition: ExactBackend | Auto | None = None) -> Any:
    """A ``MarkovRandomField`` of mbi with the names and labels of the model, its tables and their marginals.

    Minus infinity stays in the potentials, and is a constraint besides, which mbi's synthetic data obey.

    Args:
        energy: the model.
        total: number of records that the marginals add up to.
        partition: exact backend of the marginals; ``Auto()`` when None.

    Raises:
        InputError: mbi is not installed, a batch of models, a total that is no positive finite number, or a backend
            that estimates.
        IntractableError: the marginals exceed the budget of the backend.

    Example:
        >>> from pyro_hoim import Domain
        >>> graph = InteractionHypergraph(Domain.from_cardinalities([2]), [("x0",)])
        >>> to_mbi(LogLinearEnergy(graph, torch.zeros(3, 2)))
        Traceback (most recent call last):
            ...
        pyro_hoim.errors.InputError: energy: expected shape (num_terms,), of one model, received (3, 2)
    """
    tables, domain = _tables_of(energy), energy.domain
    check_positive(total, "total")
    backend = Auto() if partition is None else partition
    check_type(backend, PartitionBackend, "partition", "a partition backend")
    if not backend.is_exact:
        raise unexpected("partition", "an exact backend", partition)
    mbi = _library("mbi")
    eta = backend.expectations(energy).detach().double().cpu().numpy() * total
    theirs = mbi.Domain(domain.names, domain.cardinalities, [variable.labels for variable in domain])
    slices = energy.hypergraph.term_slices
    potentials, marginals, constraints = dict[Any, Any](), dict[Any, Any](), list[Any]()
    jax = _library("jax.numpy")
    for edge, logs in tables.items():
        part = theirs.project(edge)
        potentials[edge] = mbi.Factor(part, jax.asarray(logs))
        marginals[edge] = mbi.Factor(part, jax.asarray(eta[slices[edge]].reshape(logs.shape)))
        excluded = np.argwhere(np.isneginf(logs))
        if len(excluded):
            constraints.append(mbi.Constraint(part, invalid=excluded))
    vectors = [mbi.CliqueVector(theirs, list(parts), parts) for parts in (potentials, marginals)]
    return mbi.MarkovRandomField(
        potentials=vectors[0], marginals=vectors[1], total=total, constraints=tuple(constraints)
    )
