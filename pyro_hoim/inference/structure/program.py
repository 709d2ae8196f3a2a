"""The Pyro program of which interactions exist and how strong they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyro
import torch
from numpy.typing import NDArray
from pyro.distributions import Independent, Normal

from ...core.partition import PartitionBackend
from ...data.frames import DataLike
from ...data.observations import check_complete
from ...errors import check_type, conflict, is_real, other_domain, out_of_range, wrong_type
from ...log_linear.laws.normal import normal_prior, unit_information_prior
from ...log_linear.laws.priors import DiaconisYlvisaker
from ...log_linear.laws.statistics import LogLinearStatistics, statistics_of
from ...log_linear.named_priors import Prior
from ...structure.hypergraph import InteractionHypergraph
from ..posterior import prior_in_double
from .prior import StructurePrior, rows_and_prior

# Priors of theta given the collection, however they are written, as distributions in double precision.

ThetaPrior: TypeAlias = (
    "float | str | Prior | torch.distributions.Distribution | Callable[[InteractionHypergraph], Any]"
)
"""A scale, a :class:`~pyro_hoim.log_linear.Prior` or its text, a distribution, or a function of the collection."""


def checked_prior(prior: Any) -> Any:
    """A prior with texts and numbers made a named one; refuses what is none."""
    if isinstance(prior, str):
        prior = Prior.parse(prior)
    elif is_real(prior):
        prior = Prior.parse(f"normal:{float(prior)!r}")
    elif not isinstance(prior, Prior | torch.distributions.Distribution) and not callable(prior):
        expected = "a number, a text such as 'unit', a Prior, a distribution or a function of the hypergraph"
        raise wrong_type("prior", expected, prior)
    if isinstance(prior, Prior) and prior.is_flat:
        raise conflict("prior", "the evidence needs a proper prior, received none", "use unit, normal:S or conjugate:N")
    return prior


def resolved_prior(prior: Any, hypergraph: InteractionHypergraph) -> Any:
    """The distribution of a checked prior over the free coordinates of a collection, float64."""
    if isinstance(prior, Prior):
        match prior.kind:
            case "unit":
                return unit_information_prior(hypergraph, prior.rows, dtype=torch.float64)
            case "conjugate":
                return DiaconisYlvisaker.uniform(hypergraph, prior.number or 1.0, dtype=torch.float64)
            case _:
                return normal_prior(hypergraph, prior.scale, dtype=torch.float64)
    law = prior if isinstance(prior, torch.distributions.Distribution) else prior(hypergraph)
    if not isinstance(law, torch.distributions.Distribution):
        raise wrong_type("prior", "a function that returns a distribution", law)
    return prior_in_double(hypergraph, law)


def normal_parts(law: Any) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Precision and centre of independent normals, (P,) each; None for another law."""
    if not (isinstance(law, Independent) and isinstance(law.base_dist, Normal)):
        return None
    loc, scale = law.base_dist.loc.detach(), law.base_dist.scale.detach()
    return scale.reciprocal().square().numpy(), np.broadcast_to(loc.numpy(), scale.shape)


@dataclass(frozen=True, eq=False, repr=False)
class StructureProgram:
    """A Pyro program without arguments, made by :func:`structure_model`; it returns theta, zero where absent.

    Attributes:
        structure_prior: law of the site ``gamma``.
        theta_prior: law of the site ``theta``, event shape (largest.num_parameters,), float64.
        counts: observed at the site ``counts``, marginal counts of the largest collection, (largest.num_terms,).
        total_count: number of rows N.
        partition: exact backend; ``Auto()`` when None.
    """

    structure_prior: StructurePrior
    theta_prior: Any
    counts: torch.Tensor
    total_count: float
    partition: PartitionBackend | None = None

    def __call__(self) -> torch.Tensor:
        """Run it once."""
        gamma = pyro.sample("gamma", self.structure_prior)
        theta = pyro.sample("theta", self.theta_prior)
        present = theta * self.structure_prior.parameter_mask(gamma)
        law = LogLinearStatistics(
            self.structure_prior.largest, present, self.total_count, partition=self.partition, validate_args=False
        )
        pyro.sample("counts", law, obs=self.counts)
        return present


def structure_model(
    data: DataLike,
    structure_prior: StructurePrior | None = None,
    prior: ThetaPrior = "unit",
    *,
    partition: PartitionBackend | None = None,
) -> StructureProgram:
    r"""The Pyro program with sites ``gamma``, ``theta`` and, observed, ``counts``, for every method over structure.

    .. math:: \gamma \sim p(\gamma), \qquad \theta \sim p(\theta), \qquad
        \log p(x \mid \theta, \gamma) = (\theta \odot \gamma) \cdot t - N \log Z(\theta \odot \gamma)

    Collections are masks over the parameters of the largest one: where an interaction is absent its parameters stay in
    the program, follow their prior and change nothing. So one law over the statistics t of the largest collection
    serves all, the dimension never changes, and the posterior of ``gamma`` is that of
    :func:`~pyro_hoim.inference.enumerate_structures`. For ``AutoStructure``, for ``MixedGibbs`` (which draws gamma from
    its full conditional, of all collections together where these are few and else one indicator at a time), and for
    what Pyro has beside them. :class:`~pyro_hoim.inference.BirthDeath` draws from the same posterior without it.

    Args:
        data: complete rows; weights are allowed where their sum is whole, and no rows at all.
        structure_prior: prior over collections; every hierarchical one with the same probability when None.
        prior: prior of theta: a name such as ``unit`` or ``normal:0.5``, a scale, a distribution over the free
            coordinates of the largest collection, or a function of a collection, asked for the largest one. The prior
            given a collection is the marginal law of its coordinates.
        partition: exact backend; ``Auto()`` when None.

    Returns:
        The program; it takes no arguments.

    Raises:
        InputError: another domain, a sum of weights that is not whole, a flat prior, or the conjugate prior, whose
            marginal laws are not conjugate.
        InputTypeError: arguments of the wrong type.
        MissingDataError: missing cells.

    References:
        Lynn Kuo and Bani Mallick, Variable selection for regression models, Sankhya B 60, 1998, for masks over
        independent coordinates.

    Example:
        >>> from pyro_hoim import load_table
        >>> from pyro_hoim.inference import AutoStructure
        >>> table = load_table("czech_autoworkers")
        >>> program = structure_model(table, StructurePrior(table.domain, space="pairwise"))
        >>> trace = pyro.poutine.trace(program).get_trace()
        >>> {name: tuple(trace.nodes[name]["value"].shape) for name in ("gamma", "theta")}
        {'gamma': (15,), 'theta': (21,)}
        >>> guide = AutoStructure(program)
    """
    data, structure_prior = rows_and_prior(data, structure_prior)
    check_type(partition, PartitionBackend | None, "partition", "a backend")
    largest = structure_prior.largest
    if data.domain != largest.domain:
        raise other_domain("data", "rows over the domain of the structure prior", received="another domain")
    # The law of the statistics is multinomial: complete rows, and a whole number of them.
    check_complete(data, "the program")
    if not float(data.total_count).is_integer():
        raise out_of_range("data", "weights that sum to a whole number of rows", data.total_count)
    law = resolved_prior(checked_prior(prior), largest)
    if isinstance(law, DiaconisYlvisaker):
        problem = "the conjugate prior of a collection is not a marginal law of that of the largest one"
        raise conflict("prior", problem, "use 'unit' or 'normal:S', or BirthDeath(collapsed=False)")
    return StructureProgram(structure_prior, law, statistics_of(data, largest), data.total_count, partition)
