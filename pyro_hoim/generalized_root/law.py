"""Generalized root models as Pyro distributions over vectors of counts or reals."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from pyro.distributions import constraints
from torch.distributions import register_kl
from typing_extensions import override

from ..checks import broadcast_shapes, check_finite, is_hidden, refuse_transforms
from ..core.laws.expansion import check_cells, enumerated_states
from ..core.laws.parameter_cache import ParameterCache
from ..core.laws.shared import EnergyLaw
from ..core.laws.traces import check_seed, refuse_traced
from ..core.partition import LogPartition
from ..errors import (
    ConvergenceWarning,
    InputError,
    IntractableError,
    check_whole,
    other_domain,
    out_of_reach,
    wrong_type,
)
from ..runs.container import GENERALIZED_ROOT
from .annealed import RootAnnealed
from .auto import RootAuto, draws_exactly
from .energy import GeneralizedRootEnergy
from .exact.base import RootBackend
from .nodes.columns import Families, NodeFamilies
from .nodes.families import NodeFamily
from .normalizability.check import Normalizability, check_normalizable
from .structure import RootStructure

# What distributions that differ by a broadcast batch shape share: a model, and what is computed from it once.


class RootLaw(ParameterCache):
    """A model and its backend, with a cache of log Z and expectations."""

    def __init__(
        self,
        model: GeneralizedRootEnergy,
        partition: RootBackend | None,
        num_sweeps: int,
        *,
        is_lenient: bool,
        is_checked: bool,
    ) -> None:
        if partition is not None and not (hasattr(partition, "plan_energy") and hasattr(partition, "is_exact")):
            expected = "a backend such as RootAuto(), RootEnumeration() or RootAnnealed()"
            raise wrong_type("partition", expected, received=repr(partition))
        check_whole(num_sweeps, "num_sweeps")
        self.partition: RootBackend = RootAuto() if partition is None else partition
        self.model = model
        self.domain = model.domain
        self.batch_shape = model.batch_shape
        self.num_sweeps = num_sweeps
        self.is_lenient = is_lenient
        self._is_checked = is_checked
        self._forget()

    @property
    @override
    def parameters(self) -> torch.Tensor:
        return self.model.psi

    @override
    def _examine(self, values: torch.Tensor) -> None:
        self._is_usable: bool | None = None
        if torch.jit.is_tracing() or is_hidden(values):
            return  # neither an answer nor an error of this moment holds for the psi of later calls
        self._is_usable = bool(torch.isfinite(values).all())
        if not self._is_usable:
            if not self.is_lenient:
                check_finite(values, "psi")
            return
        # A lenient law answers NaN where a strict one refuses.
        if self.is_lenient:
            self._is_usable = self.normalizability.verdict != "disproven"
        elif self._is_checked and self.normalizability.verdict == "disproven":
            self.normalizability.check()

    @property
    def is_usable(self) -> bool:
        """Whether psi is finite and, for a lenient law, not known to have no normalised law."""
        self.look()
        if self._is_usable is None:
            refuse_traced("psi", "whether the model can be normalised")
            refuse_transforms("psi", self.parameters)
            self._forget()  # made in a traced program, used outside
        return bool(self._is_usable)

    def require_usable(self) -> None:
        """Raise for a psi that a lenient law has let pass."""
        if not self.is_usable:
            check_finite(self.parameters.detach(), "psi")
            self.normalizability.check()

    @property
    def normalizability(self) -> Normalizability:
        """Whether the law can be normalised."""
        return self._cached("normalizability", lambda: check_normalizable(self.model.detach()), is_plain=True)

    def _watched_model(self) -> GeneralizedRootEnergy:
        """The energy, through a hook that empties the cache when its graph is used up."""
        if not self.has_graph:
            return self.model
        return GeneralizedRootEnergy(self.model.structure, self._source, self.model.families, validate=False)

    @property
    def log_partition(self) -> LogPartition:
        """Normalising constant, value (*batch)."""
        return self._cached("log_partition", lambda: self._normaliser().log_partition(self._watched_model()))

    @property
    def expectations(self) -> torch.Tensor:
        """Expectations of the statistics of all terms (*batch, num_terms)."""
        return self._cached("expectations", lambda: self._normaliser().expectations(self._watched_model()))

    @property
    def moments(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance of every variable, both (*batch, d)."""
        return self._cached("moments", self._compute_moments)

    def _compute_moments(self) -> tuple[torch.Tensor, torch.Tensor]:
        refuse_traced("mean", "moments, which grids and chains give,")
        return self.partition.moments(self._watched_model())

    @property
    def is_exact(self) -> bool:
        """Whether log Z and expectations of this law are exact."""
        if isinstance(self.partition, RootAuto):
            return self.partition.is_exact or self.partition.is_exact_for(self.model.detach())
        return self.partition.is_exact

    @property
    def draws_exactly(self) -> bool:
        """Whether draws are perfect and independent: no Markov chain."""
        return self._cached("draws_exactly", lambda: self.is_usable and self._is_drawn_exactly(), is_plain=True)

    def _is_drawn_exactly(self) -> bool:
        energy, backend = self.model.detach(), self.partition
        if isinstance(backend, RootAuto):
            return backend.draws_exactly(energy)
        return draws_exactly(backend, energy) and backend.plan_energy(energy).feasible

    def draw(self, shape: torch.Size) -> torch.Tensor:
        """States (*shape, *batch, d), exact where :attr:`draws_exactly`."""
        energy = self.model.detach()
        if self.draws_exactly:
            return self.partition.sample(energy, shape)
        # Else chains, with as many sweeps as the law was given.
        allowed = bool(getattr(self.partition, "allow_undecided", False))
        chains = RootAnnealed(burn_in=self.num_sweeps, allow_undecided=allowed)
        if isinstance(self.partition, RootAuto):
            return replace(self.partition, annealed=chains).sample(energy, shape)
        return chains.sample(energy, shape)

    def _normaliser(self) -> RootBackend:
        """The backend, refused where log Z would spoil the answer: an estimate inside HMC, any value while tracing."""
        refuse_traced("log_prob", "log Z, which grids and chains give,")
        if not self.partition.is_exact:
            backend = self.partition.annealed if isinstance(self.partition, RootAuto) else self.partition
            instead = "put the pseudo-likelihood in by pyro.factor(name, law.log_pseudo_prob(x).sum()), or infer by SVI"
            check_seed(backend, "RootAuto()", "psi", instead, is_exact=lambda: self.is_exact)
        return self.partition


class GeneralizedRoot(EnergyLaw):
    r"""The law of d counts or reals whose log-probability is a sum of products of roots.

    .. math:: \log p(x) = -E(x; \psi) - \log Z(\psi)

    with the energy of :class:`~pyro_hoim.generalized_root.GeneralizedRootEnergy`. A value is a vector in schema order,
    so the event shape is (d,). The law is an ordinary Pyro site. A latent site of bounded counts is summed out by
    ``TraceEnum_ELBO`` and NUTS, or drawn by :class:`~pyro_hoim.inference.MixedGibbs`; other latent counts cannot be
    inferred in a program.

    Energies, pseudo-likelihoods and :meth:`condition` are exact always; log Z (to 1e-10), :meth:`log_prob`, moments and
    draws where :class:`~pyro_hoim.generalized_root.RootAuto` finds closed forms or sums within its budget, except that
    interacting reals beyond Gaussian pairs are drawn by Gibbs chains. With
    :class:`~pyro_hoim.generalized_root.RootAnnealed` they are estimates, :meth:`log_prob` biased high; without it a law
    beyond the budget is refused on the first use of log Z. Kullback-Leibler divergences are exact, for equal
    structures, or refused. Draws, and estimates of a backend without a seed, use PyTorch's global generator.

    Rows of many variables enter a program, without log Z, by ``pyro.factor("rows", law.log_pseudo_prob(x).sum())``.

    One law makes one estimate of log Z and keeps it. HMC, NUTS and importance weights need one function of psi
    and would go wrong silently, so inside them a ``log_prob`` with fresh randomness raises
    :class:`~pyro_hoim.errors.InputError`; give the backend a ``seed``, use the pseudo-likelihood, or use SVI.

    Args:
        structure: the terms.
        psi: entries of the super-symmetric tensors (*batch, num_terms), whose dtype draws have too.
        family: Poisson, truncated Poisson, exponential, Gaussian or a user's, for all variables; or a family for every
            variable, as a mapping from names or a sequence in schema order.
        partition: backend; ``RootAuto()``, which is exact, when None.
        num_sweeps: sweeps of a Gibbs chain, after a path of 100 temperatures, to a draw where draws are not exact.
        validate_args: check values given to :meth:`log_prob`; default is Pyro's global setting. Where validation is
            switched off globally, as inside Pyro's MCMC, a psi that is not finite or has no normalised law has the
            log-probability NaN, which HMC treats as a divergence; with False it is refused on use. So has, with a
            warning, a psi whose log Z alone is beyond a budget that the structure is within: a posterior that reaches
            there would be cut off, so raise the budget if the warning comes after the first trial steps.

    Raises:
        InputError: psi of the wrong shape or not finite; variables of another kind than their families'; a psi that is
            known to have no normalised law, with the direction in which q grows.
        IntractableError: on use, when an exact computation exceeds the backend's budget, or it is not known whether
            the law can be normalised and the backend has not ``allow_undecided``.

    References:
        Inouye, Ravikumar and Dhillon, Generalized Root Models, 2016, equations 1 to 5.

    Example:
        >>> from pyro_hoim import Domain, Variable
        >>> from pyro_hoim.generalized_root import PoissonFamily
        >>> domain = Domain([Variable("boundary", kind="count"), Variable("layer", kind="count")])
        >>> structure = RootStructure.simplified(domain, [("boundary", "layer")])
        >>> law = GeneralizedRoot(structure, torch.tensor([-1.0, -1.0, 0.8]), PoissonFamily())
        >>> law.log_prob(torch.tensor([1.0, 1.0])), law.mean
        (tensor(-1.6070), tensor([0.7758, 0.7758]))
    """

    model_kind: ClassVar[str] = GENERALIZED_ROOT

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {  # type: ignore[override]
        "psi": constraints.real_vector,
    }
    _arguments = "structure", "psi"
    _law: RootLaw

    max_enumerated_states: int = 2**16
    """Most states for which :meth:`enumerate_support` is offered; a subclass may raise it."""

    def __init__(
        self,
        structure: RootStructure,
        psi: torch.Tensor,
        family: Families,
        *,
        partition: RootBackend | None = None,
        num_sweeps: int = 100,
        validate_args: bool | None = None,
    ) -> None:
        is_validation_off = validate_args is None and not torch.distributions.Distribution._validate_args
        model = GeneralizedRootEnergy(structure, psi, family, validate=False)
        is_checked = validate_args is not False
        self._law = RootLaw(model, partition, num_sweeps, is_lenient=is_validation_off, is_checked=is_checked)
        self._settle(self._law.batch_shape, len(structure.domain), validate_args)

    @classmethod
    def from_coefficients(
        cls, structure: RootStructure, coefficients: torch.Tensor, family: Families, **options: Any
    ) -> GeneralizedRoot:
        r"""The law with coefficients :math:`\ell!\,\psi_S` (*batch, num_terms), as fits report them."""
        energy = GeneralizedRootEnergy.from_coefficients(structure, coefficients, family, validate=False)
        return cls(structure, energy.psi, family, **options)

    @property
    def structure(self) -> RootStructure:
        """The terms."""
        return self._law.model.structure

    @property
    def family(self) -> NodeFamily:
        """The base family of all variables; an :class:`InputError` where they have several, see :attr:`families`."""
        return self._law.model.family

    @property
    def families(self) -> NodeFamilies:
        """The base family of every variable, in schema order."""
        return self._law.model.families

    @property
    def psi(self) -> torch.Tensor:
        """Tensor entries, (*batch, num_terms)."""
        return self._expanded(self._law.parameters, 1)

    @property
    def coefficients(self) -> torch.Tensor:
        r"""Multipliers :math:`\ell!\,\psi_S` of the products of roots, (*batch, num_terms)."""
        return self._expanded(self._law.model.coefficients, 1)

    @property
    def normalizability(self) -> Normalizability:
        """Whether the law can be normalised: proven, disproven with a direction, or undecided, with the reason."""
        return self._law.normalizability

    @constraints.dependent_property(event_dim=1)
    def support(self) -> constraints.Constraint:  # type: ignore[override]
        """Vectors of counts, of nonnegative reals or of reals, entry by entry as their families have them."""
        return constraints.independent(self.families.support, 1)

    def __repr__(self) -> str:
        return self._repr(repr(self.structure), repr(self.families))

    def _validate_sample(self, value: torch.Tensor) -> None:
        self._law.model.families.check_values(self._check_value(value, "numbers"), "value")

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """Log-probability (counts) or log-density (reals) in nats, differentiable in psi; see the class.

        Shape:
            value, integer or floating, broadcasts with (*sample, *batch, d); the result is (*sample, *batch).

        Raises:
            InputError: a value that does not fit, when validating; a random estimate in HMC or NUTS; any when traced.
            IntractableError: log Z exceeds the backend's budget; or its estimate gives counts more than probability 1.

        Warns:
            ConvergenceWarning: the result is NaN as the class says; or an estimate has no error bar.
        """
        if self._validate_args:
            self._validate_sample(value)
        if not self._law.is_usable:
            return self._undefined(value)
        # Minus energy less log Z, as far as that is within reach.
        energy = self._law.model.energy(value, validate=False)
        try:
            log_z = self._law.log_partition
        except IntractableError as error:
            if not self._law.is_lenient or not self.partition.plan(self.structure, self.families).feasible:
                raise
            problem = f"log_prob: NaN, a divergence for HMC, where log Z is beyond the budget ({error})"
            warnings.warn(ConvergenceWarning(problem), stacklevel=2)
            return self._undefined(value)
        return self._normalised(-energy - log_z.value, log_z, value, is_discrete=self.families.is_discrete)

    def log_pseudo_prob(self, value: torch.Tensor) -> torch.Tensor:
        r"""Log pseudo-likelihood :math:`\sum_s \log p(x_s \mid x_{-s})`, differentiable in psi; it needs no log Z.

        Shape:
            value (*sample, *batch, d) -> (*sample, *batch), in nats.

        Raises:
            InputError: a value of the wrong shape or outside the support, when validating; a conditional that cannot
                be normalised, unless validation is off globally: then the result is NaN; what is traced or transformed.
        """
        if self._validate_args:
            self._validate_sample(value)
        refuse_transforms("log_pseudo_prob", self._law.parameters, value)
        if not self._law.is_usable:
            return self._undefined(value)
        try:
            values = self._law.model.log_pseudo_prob(value, validate=False)
        except InputError:
            if not self._law.is_lenient:
                raise
            return self._undefined(value)
        return values.expand(self._sample_batch(value))

    def sample(self, sample_shape: Sequence[int] = torch.Size()) -> torch.Tensor:
        """Draws (*sample_shape, *batch, d) of the dtype of psi: perfect and independent where :attr:`sample_is_exact`.

        Otherwise every draw is the end of a Gibbs chain of its own, led from the independent member through 100
        temperatures and then moved by :attr:`sample_burn_in` sweeps; with ``RootAuto`` only in those connected
        components of the terms that have no exact draws. Nothing here can tell how near its law is; compare energies
        for shorter and longer burn-in. For long chains use :func:`~pyro_hoim.runs.sample_chains`.

        Raises:
            InputError: a law without a finite constant.
            IntractableError: it is not known whether there is one.
        """
        self._law.require_usable()
        return self._drawn(sample_shape, self._law.draw, self._law.parameters.detach())

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]
        """Whether the counts are bounded, with at most :attr:`max_enumerated_states` joint states."""
        model = self._law.model
        return model.is_bounded and math.prod(model.require_finite("support")) <= self.max_enumerated_states

    def enumerate_support(self, expand: bool = True) -> torch.Tensor:
        """Every state of bounded counts once, the last variable fastest, of the dtype of psi.

        Counts that a family's base measure makes impossible, and all but one indicator of a category, are left out, as
        :meth:`log_prob` refuses them.

        Args:
            expand: give (num_states, *batch, d), else (num_states, 1, ..., 1, d).

        Raises:
            InputError: counts or reals without a bound.
            IntractableError: more than :attr:`max_enumerated_states` states.
        """
        cards = self._law.model.require_finite("enumerate_support")
        check_cells(math.prod(cards), self.max_enumerated_states, "enumerate_support", "max_enumerated_states")
        states = enumerated_states(cards, self.batch_shape, expand, self.psi.device).to(self.psi.dtype)
        if not (self.families.has_user_family or self.families.blocks):
            return states
        return states[self.families.is_possible(enumerated_states(cards, torch.Size(), False, states.device).double())]

    @property
    def expectations(self) -> torch.Tensor:
        """Expectations of the statistics of all terms, (*batch, num_terms), and gradient of log Z in coefficients."""
        return self._expanded(self._law.expectations, 1)

    def condition(self, evidence: Mapping[str, float | torch.Tensor]) -> GeneralizedRoot:
        """The law of the remaining variables given the values of some, at the cost of one product per term.

        Evidence, what becomes of the terms and errors are as for
        :meth:`~pyro_hoim.generalized_root.GeneralizedRootEnergy.condition`. All variables leave the law of the empty
        vector.
        """
        self._law.require_usable()
        # The same options for the rest.
        rest, _ = self._law.model.condition(evidence)
        options: dict[str, Any] = {"partition": self.partition, "validate_args": self._own_validation}
        law = type(self)(rest.structure, rest.psi, rest.families, num_sweeps=self._law.num_sweeps, **options)
        return self._in_batch(law)


@register_kl(GeneralizedRoot, GeneralizedRoot)
def _kl_generalized_root(p: GeneralizedRoot, q: GeneralizedRoot) -> torch.Tensor:
    """D(p, q) in nats for equal structures, (*broadcast batch); exact or refused."""
    if p.structure != q.structure or p.families != q.families:
        raise other_domain("kl_divergence", "laws with the same structure and family")
    if not (p._law.is_exact and q._law.is_exact):
        problem = "needs exact log Z of both laws"
        raise out_of_reach("kl_divergence", problem, "use RootAuto() without estimates", code="no-method")
    # In an exponential family: expectations times the change of parameters, less that of log Z.
    difference = p._law.model.coefficients - q._law.model.coefficients
    value = (p._law.expectations * difference).sum(-1) - p._law.log_partition.value + q._law.log_partition.value
    return value.expand(broadcast_shapes(p.batch_shape, q.batch_shape))
