"""Higher-order Boltzmann machines over any collection of sets, trained as in paper 4 and exactly."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

import numpy as np
import torch

from ...checks import check_finite, check_shape, checked_floating
from ...core.law import Law
from ...core.partition import LogPartition, PartitionBackend
from ...data.frames import DataLike, as_observations
from ...data.observations import Observations
from ...errors import check_choice, check_positive, check_type, check_whole, refused, unexpected
from ...runs.checkpoint import RunOptions, checked_run, follow, part_of
from ...runs.container import checksum
from ...structure.hypergraph import InteractionHypergraph
from ..annealed.importance import AnnealedImportance
from ..auto import log_partition
from ..chains.gibbs import GibbsChains
from ..coding import parametrization
from ..energy import LogLinearEnergy
from ..fitting.design import check_data
from ..laws.law import HierarchicalLogLinear
from .law import _members, m_projection
from .poset import Poset

_METHODS = ("newton", "gradient", "gibbs")
_STEPS = 50  # between two looks at the clock
_MAX_LISTED = 20  # variables up to which states are counted by their number


@dataclass(frozen=True)
class MachineTraining:
    r"""Plain gradient steps of a machine, by default those of paper 4's experiments.

    Attributes:
        learning_rate: step along the gradient of the mean log-likelihood, per nat.
        num_iterations: steps, none of which is left out.
        temperature: constant C of the Boltzmann distribution: the law is that of :math:`\theta / C`, so a site is 1
            with log odds :math:`\Delta \Phi / C`.
        num_chains: Gibbs samples M of every step.
        burn_in: sweeps of every chain in every step.
        start: states before these sweeps: "rows" draws rows of the data anew in every step, as the authors' program
            does, which is short for chains that mix slowly; "persistent" goes on from the last step.
        num_temperatures: steps K of the annealed runs that estimate log Z at the end.
        seed: of everything random.

    Raises:
        InputError: an option outside its range.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.log_linear import train_machine
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[40, 10], [20, 30]])
        >>> training = MachineTraining(learning_rate=1.0, num_iterations=200, temperature=2.0)
        >>> train_machine(rows, [("a", "b")], training=training).theta.round(decimals=4).tolist()  # 2 log(0.9 / 0.7)
        [0.5026]
    """

    learning_rate: float = 0.1
    num_iterations: int = 10_000
    temperature: float = 1.0
    num_chains: int = 10_000
    burn_in: int = 3
    start: Literal["rows", "persistent"] = "rows"
    num_temperatures: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("learning_rate", "temperature"):
            check_positive(getattr(self, name), name)
        for name in ("num_iterations", "num_chains", "burn_in", "num_temperatures"):
            check_whole(getattr(self, name), name)
        check_whole(self.seed, "seed", 0, 2**62 - 1)
        check_choice(self.start, ("rows", "persistent"), "start")


@dataclass(frozen=True, eq=False)
class MachineResult:
    """A trained machine.

    Attributes:
        hypergraph: the collection B.
        theta: biases and weights in nats, (num_parameters,), by size and then schema order.
        method: "newton", "gradient" or "gibbs".
        temperature: the constant C that theta is divided by.
        num_iterations: steps made.
        gradient_norm: Euclidean norm of eta of the data less eta of the machine on B at the last step, for "gibbs" as
            counted.
        partition: backend of log Z; None is exact.
        seconds: time spent, earlier parts of a resumed run included.
    """

    hypergraph: InteractionHypergraph
    theta: torch.Tensor = field(repr=False)
    method: str
    temperature: float
    num_iterations: int
    gradient_norm: float
    partition: PartitionBackend | None = None
    seconds: float = 0.0

    @property
    def law(self) -> HierarchicalLogLinear:
        """The machine as a Pyro distribution, in corner coding."""
        theta = self.theta / self.temperature
        return HierarchicalLogLinear(self.hypergraph, theta, coding="corner", partition=self.partition)

    @property
    def log_partition(self) -> LogPartition:
        r"""Log Z of the machine, :math:`-\theta(\bot)`, exact or annealed (paper 4, equation 8)."""
        model = _model(self.hypergraph, self.theta / self.temperature)
        return log_partition(model, "corner", partition=self.partition)


def train_machine(
    data: DataLike | Law,
    collection: InteractionHypergraph | Iterable[Iterable[str]] | int,
    *,
    method: Literal["newton", "gradient", "gibbs"] = "gradient",
    training: MachineTraining | None = None,
    partition: PartitionBackend | None = None,
    run: RunOptions | None = None,
) -> MachineResult:
    r"""Train a Boltzmann machine of visible units with weights on any non-empty sets of them.

    .. math:: p(x) \propto \exp \Big( \frac1C \sum_{S \in B} \theta(S) \prod_{i \in S} x_i \Big), \qquad
        \theta(S) \leftarrow \theta(S) + \epsilon\, \big( \hat\eta(S) - \eta_\theta(S) \big)

    It is the log-linear model in corner coding of the collection, hierarchical or not, on which everything else of the
    library works.

    * "newton" finds the maximum-likelihood estimate (:func:`m_projection`).
    * "gradient" makes plain steps with exact eta, by two transforms of the :math:`2^n` states each. After finitely many
      steps every probability is positive, whatever the data.
    * "gibbs" is the paper's method: eta from Gibbs samples, and log Z by annealed importance sampling from the uniform
      law, :math:`\log Z_0 = n \log 2`. Energies of the chains are cached. It has no limit on n.

    Args:
        data: rows of binary variables, or a law, whose projection is then found (the paper's :math:`P^*_B`).
        collection: the sets B, of any sizes; an integer k is all sets of at most k variables.
        method: see above.
        training: rate, number of steps, chains and so on; by default those of the paper. Newton's method reads none.
        partition: backend of log Z of the result. None is exact, and for "gibbs" an annealed run with as many chains
            as in training.
        run: checkpoint and progress; Newton's method takes no time worth one. A resumed run has the same bits.

    Raises:
        InputError: variables that are not binary, another domain, no set, or data whose maximum-likelihood estimate is
            infinite with "newton".
        IntractableError: more than :math:`2^{20}` states with another method than "gibbs"; their number is named.
        MissingDataError: missing cells.

    Warns:
        ConvergenceWarning: Newton's method has not converged.

    References:
        Paper 4, section "Inferencing algorithm", equations (6) to (8), and the authors' program. That program lets the
        coordinate of the first variable start at -n log 2 and overwrites it with log Z at the end; this does neither.

    Example:
        >>> from pyro_hoim import Domain
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> rows = Observations.from_table(domain, [[40, 10], [20, 30]])
        >>> machine = train_machine(rows, [("a", "b")], method="newton")  # one weight and no bias
        >>> [round(float(p), 6) for p in machine.law.probs.reshape(-1)], round(float(machine.log_partition.value), 6)
        ([0.233333, 0.233333, 0.233333, 0.3], 1.455287)
    """
    rows = data.cells if isinstance(data, Law) else as_observations(data)
    check_choice(method, _METHODS, "method")
    check_type(training, MachineTraining | None, "training")
    settings = MachineTraining() if training is None else training
    # The collection over binary variables, as the family of corner coding.
    wide = [variable for variable in rows.domain if variable.cardinality != 2]
    if wide:
        raise unexpected("data", "binary variables", received=f"{wide[0].name!r} with {wide[0].cardinality} levels")
    if isinstance(collection, InteractionHypergraph):
        graph = collection
    elif isinstance(collection, Iterable):
        graph = InteractionHypergraph(rows.domain, [tuple(edge) for edge in collection], hierarchical=False)
    else:
        graph = InteractionHypergraph.from_order(rows.domain, collection)
    if not len(graph):
        raise unexpected("collection", "at least one set of variables", received="none", code="empty")
    graph = graph.in_coding("corner")
    check_data(graph, rows, "data")
    if method == "newton":
        # The maximum-likelihood estimate, refused where it is infinite
        poset = Poset.boolean_lattice(graph.domain, max_elements=2**_MAX_LISTED)
        projection = m_projection(poset, rows.table().reshape(-1), graph.edges)
        if projection.is_attained is False:
            problem = "the maximum-likelihood estimate is infinite: the data leave some states no probability"
            hint = "method='gradient' stops after finitely many steps; m_projection gives the limit"
            raise refused("data", problem, hint, code="impossible")
        gap = (
            poset.sums(projection.probs, "above")[projection.members]
            - poset.sums(rows.table().reshape(-1) / rows.total_count, "above")[projection.members]
        )
        return MachineResult(
            graph, projection.theta, "newton", 1.0, projection.num_iterations, float(gap.norm()), partition
        )
    # Steps along the gradient, as a job that a checkpoint can hold.
    target = parametrization(graph).corner_statistics(rows.marginal_counts(graph.edges) / rows.total_count)
    job = _ExactSteps(graph, target, settings) if method == "gradient" else _GibbsSteps(graph, target, settings, rows)
    if method == "gibbs" and partition is None:
        partition = AnnealedImportance(
            num_chains=settings.num_chains,
            num_temperatures=settings.num_temperatures,
            reference="uniform",
            seed=settings.seed,
        )
    same = asdict(settings) | {"kind": "machine", "method": method, "collection digest": graph.to_json()}
    same["data digest"] = checksum({"codes": rows.codes, "counts": torch.as_tensor(rows.counts)})
    options = checked_run(run)
    seconds = follow(job, same, options.file(), options.progress, ("training", "step"))
    norm = float(job.gradient.norm())
    return MachineResult(graph, job.theta, method, settings.temperature, job.done, norm, partition, seconds)


def gradient_steps(
    poset: Poset,
    members: Iterable[Hashable],
    eta: torch.Tensor,
    *,
    learning_rate: float = 0.1,
    num_iterations: int = 10_000,
    theta: torch.Tensor | None = None,
) -> torch.Tensor:
    r"""Plain gradient steps on the mean log-likelihood of many data sets at once, with exact eta of the machine.

    .. math:: \theta(x) \leftarrow \theta(x) + \epsilon\, \big( \hat\eta(x) - \eta_\theta(x) \big), \quad x \in B

    Args:
        poset: a poset with a bottom.
        members: the collection B.
        eta: mean coordinates of the data on B.
        learning_rate: the step.
        num_iterations: number of steps.
        theta: where to start; zeros when left out.

    Shape:
        eta and theta (*batch, m); returns theta (*batch, m), of the dtype of eta.

    Raises:
        InputError: wrong shapes, an eta that is not finite, the bottom among the members, or one of them twice.
        UnknownNameError: an unknown element.

    References:
        Paper 4, the gradient below equation (7).

    Example:
        >>> poset = Poset.boolean_lattice(["a", "b"])
        >>> eta = torch.tensor([[0.5, 0.5, 0.25], [0.8, 0.8, 0.64]], dtype=torch.float64)  # of two data sets
        >>> theta = gradient_steps(poset, [("a",), ("b",), ("a", "b")], eta, learning_rate=2.0, num_iterations=600)
        >>> theta.exp().round(decimals=3).tolist()  # odds of a, of b, and the odds ratio
        [[1.0, 1.0, 1.0], [4.0, 4.0, 1.0]]
    """
    check_type(poset, Poset, "poset")
    check_positive(learning_rate, "learning_rate")
    check_whole(num_iterations, "num_iterations", 0)
    where = _members(poset, members, "members")
    check_shape(checked_floating(eta, "eta"), (len(where),), "eta")
    check_finite(eta, "eta")
    start = torch.zeros_like(eta) if theta is None else theta
    check_shape(checked_floating(start, "theta"), (len(where),), "theta")
    with torch.no_grad():
        return _steps(poset, where, eta, start.expand_as(eta).clone(), learning_rate, num_iterations, 1.0)[0]


def _steps(
    poset: Poset,
    where: torch.Tensor,
    target: torch.Tensor,
    theta: torch.Tensor,
    rate: float,
    num_steps: int,
    temperature: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Theta after some steps, which changes in place, and the gradient at the last of them."""
    gradient = torch.zeros_like(target)
    spread = target.new_zeros(*target.shape[:-1], len(poset))
    for _ in range(num_steps):
        spread[..., where] = theta / temperature
        eta = poset._sums(poset._sums(spread, "below").softmax(-1), "above")[..., where]
        gradient = target - eta
        theta += rate * gradient
    return theta, gradient


class _ExactSteps:
    """Plain steps with exact gradients, as a :class:`~pyro_hoim.runs.checkpoint.Job`."""

    burn_in = 0

    def __init__(self, graph: InteractionHypergraph, target: torch.Tensor, settings: MachineTraining) -> None:
        self._poset = Poset.boolean_lattice(graph.domain, max_elements=2**_MAX_LISTED)
        self._where, self._target, self._settings = self._poset.indices(graph.edges), target, settings
        self.done, self.total = 0, settings.num_iterations
        self.theta = self.gradient = torch.zeros_like(target)

    def advance(self) -> int:
        length = min(_STEPS, self.total - self.done)
        options, start = self._settings, self.theta.clone()
        self.theta, self.gradient = _steps(
            self._poset, self._where, self._target, start, options.learning_rate, length, options.temperature
        )
        return length

    def state(self) -> dict[str, torch.Tensor]:
        return {"theta": self.theta, "gradient": self.gradient}

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        self.theta, self.gradient = state["theta"], state["gradient"]


class _GibbsSteps:
    """Plain steps with eta counted in states of Gibbs chains, as a :class:`~pyro_hoim.runs.checkpoint.Job`."""

    burn_in = 0

    def __init__(
        self, graph: InteractionHypergraph, target: torch.Tensor, settings: MachineTraining, rows: Observations
    ) -> None:
        self._graph, self._target, self._settings = graph, target, settings
        self.done, self.total = 0, settings.num_iterations
        self.theta = self.gradient = torch.zeros_like(target)
        unique = rows.unique()
        self._codes = torch.as_tensor(unique.codes)
        self._shares = np.asarray(unique.counts) / rows.total_count
        self._chains = GibbsChains(self._model(), settings.num_chains, init=self._rows(), seed=settings.seed)
        self._unit = max(1, min(_STEPS, self._chains.sweeps_per_call // settings.burn_in))
        num = len(graph.domain)
        self._poset = Poset.boolean_lattice(graph.domain) if num <= _MAX_LISTED else None
        self._strides = 2 ** torch.arange(num).flip(0)

    def _model(self) -> LogLinearEnergy:
        return _model(self._graph, self.theta / self._settings.temperature)

    def _rows(self) -> torch.Tensor:
        """Rows of the data for all chains, the same ones for a step whatever came before."""
        draws = np.random.default_rng([self._settings.seed, self.done])
        return self._codes[draws.choice(len(self._codes), self._settings.num_chains, p=self._shares)]

    def _eta(self) -> torch.Tensor:
        """Share of the chains that are 1 in all variables of every set."""
        if self._poset is None:
            return parametrization(self._graph).corner_statistics(self._chains.statistics() / self._chains.num_chains)
        numbers = self._chains.states.long() @ self._strides
        shares = torch.bincount(numbers, minlength=len(self._poset)).double() / self._chains.num_chains
        return self._poset.sums(shares, "above")[self._poset.indices(self._graph.edges)]

    def advance(self) -> int:
        # A step: chains of the model of the moment, and theta along what they count.
        first, length = self.done, min(self._unit, self.total - self.done)
        for _ in range(length):
            if self._settings.start == "rows":
                self._chains.set_states(self._rows())
            self._chains.sweep(self._settings.burn_in)
            self.gradient = self._target - self._eta()
            self.theta = self.theta + self._settings.learning_rate * self.gradient
            self._chains.set_model(self._model())
            self.done += 1
        self.done = first
        return length

    def state(self) -> dict[str, torch.Tensor]:
        chains = {f"chains.{name}": value for name, value in self._chains.state_dict().items()}
        return {"theta": self.theta, "gradient": self.gradient, **chains}

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        self.theta, self.gradient = state["theta"], state["gradient"]
        self._chains.set_model(self._model())
        self._chains.load_state_dict(part_of(state, "chains."))


def _model(graph: InteractionHypergraph, theta: torch.Tensor) -> LogLinearEnergy:
    """Energies whose log Z is that of the corner coding."""
    return LogLinearEnergy(graph, parametrization(graph).corner_tables(theta))
