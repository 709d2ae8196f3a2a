"""Log Z and expectations at any size by annealed importance sampling, with an error bar and a verdict on it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch

from ...annealing.autograd import constant, log_z_with_eta
from ...checks import checked_sample_shape
from ...core.model import LogLinearModel
from ...core.partition import Cost, LogPartition
from ...errors import ConvergenceWarning, out_of_reach
from ...runs.schedule import GibbsSchedule
from ...structure.hypergraph import InteractionHypergraph
from ..chains.gibbs import EngineName
from . import _runs as runs
from ._options import check_options
from ._search import rows_of
from .reference import log_frequencies
from .result import annealing_cost, estimate, judged

__all__ = ["AnnealedImportance", "log_frequencies"]

_MAX_CHAINS = 2**16  # chains of one call of sample
_SAMPLE_TEMPERATURES = 100  # of the path that leads draws to the model
_THIN = 20  # sweeps between two draws of one chain


@dataclass(frozen=True)
class AnnealedImportance:
    r"""Annealed importance sampling: Gibbs chains led from a product law to the model, and weighted.

    .. math:: \log \hat Z = \log Z_0 + \log \frac1M \sum_{c=1}^M w_c, \qquad
        \log w_c = \sum_k (\beta_k - \beta_{k-1}) \bigl(\log q(x_{c,k-1}) - \log q_0(x_{c,k-1})\bigr)

    For models whose exact constant is out of reach. :math:`\hat Z` has no bias, so :math:`\log \hat Z` is low on
    average, by about half its squared error. Time is ``num_chains * num_temperatures`` sweeps; memory that of the
    chains. The weighted chains give eta, so that log Z is differentiable, once; ``expectations``, ``marginal`` and
    ``log_marginal`` come from the same kind of run (self-normalised, bias of order 1 / M) and carry no gradient.

    *What the error bar means.* ``std_error`` allows for few chains and for skewed weights, for rounding in the chains,
    and is at least the distance to the estimate that combines forward and reverse run, where there is one. It is
    infinite where the weights do not support any: few effective weights, a heavy tail, or a reverse run that disagrees.

    *States are bounds.* Log Z is at least the log of the sum of q over any distinct states. The result keeps the
    states that the runs met, adds the ends of ascents from many starts (chain ends, overdispersed states, the best
    cells of the strongest interactions, rows given as ``starts``; single variables move, then whole interactions where
    that is cheap), and reports their sum as ``lower_bound``. Within the error it raises ``value`` and ``lower``; of all
    states it is log Z; beyond the upper limit it makes the estimate unreliable, and a note shows the state.

    *Forward and reverse.* The reverse run starts from the model and estimates 1 / Z. ``lower`` and ``upper`` are
    one-sided limits at ``level``, from the forward and from the reverse run. Where the weights are well-behaved they
    hold for independent weights of any law, and allow for the share of it that so many draws cannot be sure to meet: a
    mode of share p escapes M perfect samples with probability :math:`(1 - p)^M`. Else they are those of Markov's
    inequality, ``log(1 / (1 - level))`` away. They hold with the stated rate, they are not bounds. Without a reverse
    run, or where it started from tempered runs instead of perfect samples, the upper limit rests on the sampler having
    found all modes; a note says so.

    *Runs from modes.* Without perfect samples, up to four of the states that the ascents found, far from one another,
    begin chains of the model; product laws fitted to these are the references of further forward runs. Every such run
    estimates the sum of q over any set without bias, so it must agree with the main run about the neighbourhood of its
    mode. Where it finds more, the main run has missed a mode; where it supports no estimate of a mode in which the main
    run hardly ended, the note says "modes found, not weighed". These checks take about as long as one forward run.

    *Verdict.* "verified": every state was met, or the reverse run started from perfect samples and all checks agree;
    the limits then hold at ``level``, and ``std_error`` is at least 1 / M. "consistent": all checks agree, without
    proof; a mode that no search finds stays unseen. "unreliable", with a note and a
    :class:`~pyro_hoim.errors.ConvergenceWarning`: otherwise.

    Args:
        num_chains: independent chains, 16 or more for an error bar.
        num_temperatures: steps of the path, equally spaced in beta, where ``temperatures`` is None.
        temperatures: inverse temperatures that rise from 0 to 1, or ``"adaptive"``: a pilot run with random numbers
            of its own finds steps of equal difficulty, and the estimate then uses them as given, without bias.
        conditional_ess: effective share of the chains that an adaptive step must leave.
        sweeps_per_step: sweeps at every temperature.
        schedule: blocks and scan of the sweeps; ``GibbsSchedule("interactions")`` moves whole interactions.
        reference: the product law at beta 0: ``"singles"`` (the model's own single-variable terms), ``"uniform"``, or
            log weights of all levels, one variable after the other (see :func:`log_frequencies`).
        resample_below: resample islands of chains whose effective share falls below it (sequential Monte Carlo); the
            error then comes from the ``islands``. None never resamples.
        islands: independent groups of chains when resampling.
        reverse: make the reverse run, and without perfect samples the runs from modes. ``"auto"`` does, except where
            a gradient is asked for; it starts from perfect
            samples where elimination or enumeration gives them within about a second, otherwise from runs through
            four times as many temperatures. True also does it under a gradient, False never.
        combine: report Bennett's acceptance ratio of both runs instead of the forward estimate: much better where
            one run alone is poor. Needs perfect samples, so models within reach of exact methods.
        level: of the one-sided limits.
        seed: None draws a fresh one from PyTorch's global generator in every call. A number fixes all randomness:
            the estimate is then the same function of the whole batch of tables in every call (streams belong to rows,
            so that equal tables in two rows, or in another row, get other numbers), as Hamiltonian samplers need. Its
            error biases their results. The function jumps where a state changes, and its gradient is the eta of the
            weighted chains, the slope of the true log Z as chains are added: Hamiltonian samplers stay valid with
            any such force, but accept less.
        starts: states, such as rows of data, that count as met and that ascents start from, too: a mode that holds one
            is not missed. Of more than 256 distinct rows the 128 most frequent are taken and 128 evenly spaced among
            the others, in lexicographic order. All other random numbers stay as they are without.
        burn_in: sweeps at beta 1 before :meth:`sample` takes a state, and before a tempered reverse run.
        engine: of the chains, see :class:`~pyro_hoim.log_linear.GibbsChains`.
        precision: of their conditionals.
        progress: show a bar on standard error.

    Shape:
        starts (rows, d), level codes.

    Raises:
        InputError: an option outside its range, or a missing cell in ``starts``.
        InputTypeError: an option of the wrong type.

    References:
        Radford Neal, Annealed importance sampling, Statistics and Computing 11, 2001.
        Roger Grosse, Zoubin Ghahramani and Ryan Adams, Sandwiching the marginal likelihood using bidirectional Monte
        Carlo, 2015.
        James Enouen and Mahito Sugiyama, A Complete Decomposition of KL Error using Refined Information and Mode
        Interaction Selection, 2024, appendix B.5.

    Example:
        >>> from pyro_hoim.log_linear import LogLinearEnergy
        >>> from pyro_hoim.schema import Domain
        >>> hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 5), 2)
        >>> model = LogLinearEnergy(hypergraph, torch.linspace(-1, 1, hypergraph.num_terms, dtype=torch.float64))
        >>> backend = AnnealedImportance(num_chains=64, num_temperatures=50, seed=1, engine="torch")
        >>> result = backend.log_partition(model)
        >>> bool(result.lower < result.value < result.upper), result.verdict, result.sandwich.start
        (True, 'verified', 'exact')
    """

    num_chains: int = 512
    num_temperatures: int = 1000
    temperatures: Sequence[float] | Literal["adaptive"] | None = None
    conditional_ess: float = 0.999
    sweeps_per_step: int = 1
    schedule: GibbsSchedule = field(default_factory=GibbsSchedule)
    reference: Sequence[float] | torch.Tensor | Literal["singles", "uniform"] = "singles"
    resample_below: float | None = None
    islands: int = 32
    reverse: bool | Literal["auto"] = "auto"
    combine: bool = False
    level: float = 0.99
    seed: int | None = None
    starts: torch.Tensor | Sequence[Sequence[int]] | None = field(default=None, repr=False)
    burn_in: int = 200
    engine: EngineName = "auto"
    precision: torch.dtype = torch.float32
    progress: bool = False

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def is_exact(self) -> bool:
        """Always false: results are random estimates."""
        return False

    def plan(
        self, hypergraph: InteractionHypergraph, evidence_names: Sequence[str] = (), keep: Sequence[str] = ()
    ) -> Cost:
        """Cost of a forward run after conditioning on ``evidence_names``; an adaptive path counts as 1,000 steps.

        Raises:
            UnknownNameError: a name is not in the domain.
            InputError: a name is repeated.
        """
        if evidence_names:
            hypergraph.domain.indices(evidence_names)
            hypergraph = hypergraph.restrict(evidence_names)
        hypergraph.domain.indices(keep)
        return annealing_cost(self, hypergraph, tuple(keep))

    def log_partition(self, model: LogLinearModel) -> LogPartition:
        """Estimated log Z in nats, value (*batch), differentiable once in the tables.

        Raises:
            InputError: tables that are not finite, a reference of the wrong length, or starts that are no states.
            IntractableError: a block too large to be drawn at once; ``combine`` without perfect samples; a second
                derivative.

        Warns:
            ConvergenceWarning: the verdict is "unreliable".

        Randomness:
            ``seed``, or PyTorch's global generator when it is None.
        """
        self.plan(model.hypergraph).check()
        rows_of(self, model.hypergraph)
        differentiable = torch.is_grad_enabled() and model.tables.requires_grad
        run = runs.forward(self, model)
        eta = runs.statistics(run) if differentiable else None
        wanted = self.combine or (not differentiable if self.reverse == "auto" else self.reverse)
        result = judged(self, run, runs.reverse(self, run) if wanted else None)
        if eta is not None:
            result = replace(result, value=log_z_with_eta(model.tables, result.value, eta))
        if result.verdict == "unreliable":
            _warn()
        return result

    def _weighted(self, model: LogLinearModel, keep: Sequence[str] = ()) -> runs.Run:
        """A forward run, with a warning where its weights are degenerate."""
        self.plan(model.hypergraph, keep=keep).check()
        run = runs.forward(self, model)
        if not bool(estimate(self, run.log_weights).is_reliable.all()):
            _warn(4)
        return run

    def expectations(self, model: LogLinearModel) -> torch.Tensor:
        """Estimated eta, flat (*batch, num_terms); its bias is of order one over the number of chains.

        With a fixed seed this is what autograd gives for :meth:`log_partition`, an estimate of the gradient of the
        true log Z; the random value itself jumps in the tables. It has no gradient itself.

        Raises:
            InputError: tables that are not finite, or a reference of the wrong length.

        Warns:
            ConvergenceWarning: the weights are degenerate.
        """
        eta = runs.statistics(self._weighted(model))
        return constant(model.tables, eta) if model.tables.requires_grad else eta

    def marginal(self, model: LogLinearModel, names: Sequence[str]) -> torch.Tensor:
        """Estimated probabilities of ``names`` (*batch, *cardinalities), axes in the order given; no gradient.

        Raises:
            IntractableError: a table of more than 2^26 cells.
            UnknownNameError: a name is not in the domain.
            InputError: a name is repeated.

        Warns:
            ConvergenceWarning: the weights are degenerate.
        """
        indices = model.hypergraph.domain.indices(names)
        shape = [model.hypergraph.domain.cardinalities[i] for i in indices]
        run = self._weighted(model, names)
        codes = run.chains.codes
        index = torch.zeros_like(run.log_weights, dtype=torch.long)
        for i, levels in zip(indices, shape, strict=True):
            index = index * levels + codes[..., i]
        table = run.log_weights.new_zeros(*index.shape[:-1], math.prod(shape))
        table.scatter_add_(-1, index, torch.softmax(run.log_weights, -1))
        probs = table.to(model.tables.dtype).reshape((*index.shape[:-1], *shape))
        return constant(model.tables, probs) if model.tables.requires_grad else probs

    def log_marginal(self, model: LogLinearModel, names: Sequence[str]) -> torch.Tensor:
        """Logarithms of :meth:`marginal`, in nats; minus infinity where no chain ended."""
        return self.marginal(model, names).log()

    @torch.no_grad()
    def sample(
        self, model: LogLinearModel, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> torch.Tensor:
        """States, long (*sample_shape, *batch, d), one from each of as many chains: close to the model, not exact.

        Every chain runs through 100 temperatures and then ``burn_in`` sweeps at beta 1. Beyond 65,536 chains, chains
        give several states, 20 sweeps apart.

        Raises:
            InputError: tables that are not finite, or a reference of the wrong length.

        Randomness:
            One seed from ``generator`` or, if it is None, PyTorch's global generator; ``seed`` is not used.
        """
        sample_shape = checked_sample_shape(sample_shape)
        self.plan(model.hypergraph).check()
        plain = runs.Plain.of(model)
        batch, d = plain.tables.shape[:-1], len(model.hypergraph.domain)
        draws = math.prod(sample_shape)
        if not draws or not batch.numel():
            return torch.zeros(*sample_shape, *batch, d, dtype=torch.long, device=plain.tables.device)
        num_chains = min(draws, max(1, _MAX_CHAINS // batch.numel()))
        chains = runs.make_chains(self, plain, num_chains, runs.drawn_seed(generator))
        chains.anneal(torch.linspace(0, 1, _SAMPLE_TEMPERATURES + 1, dtype=torch.float64))
        chains.sweep(self.burn_in)
        parts = [chains.codes]
        for _ in range(math.ceil(draws / num_chains) - 1):
            chains.sweep(_THIN)
            parts.append(chains.codes)
        states = torch.cat(parts, -2).narrow(-2, 0, draws).movedim(-2, 0)
        return states.reshape(*sample_shape, *batch, d)

    def mode(self, model: LogLinearModel) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ARG002
        """Not available.

        Raises:
            IntractableError: always; exact backends find the mode.
        """
        problem = "AnnealedImportance draws states and cannot say which is the most probable"
        hint = "use an exact backend such as VariableElimination(max_cells=...)"
        raise out_of_reach("mode", problem, hint, code="no-method")


def _warn(stacklevel: int = 3) -> None:
    warnings.warn(
        "AnnealedImportance: the estimate is unreliable (see notes of log_partition); use more temperatures, block "
        "moves or resampling, or an exact backend with a larger budget",
        ConvergenceWarning,
        stacklevel=stacklevel,
    )
