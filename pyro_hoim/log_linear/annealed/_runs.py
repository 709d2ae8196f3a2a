"""Forward and reverse runs of annealed importance sampling for one set of options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from ...annealing import runs as annealing
from ...annealing.seeds import derived, drawn_seed
from ...checks import is_transformed
from ...core.model import LogLinearModel
from ...errors import out_of_reach, refused, unexpected
from ...structure.hypergraph import InteractionHypergraph
from ..chains.gibbs import GibbsChains
from ..exact import perfect
from .reference import reference_normaliser, single_terms

if TYPE_CHECKING:
    from .importance import AnnealedImportance

_TEMPERED = 4  # temperatures of the run that stands in for perfect samples, per temperature of the estimate


@dataclass
class Plain:
    """Tables (*batch, num_terms) without a graph."""

    hypergraph: InteractionHypergraph
    tables: torch.Tensor

    @classmethod
    def of(cls, model: LogLinearModel) -> Plain:
        """The model's tables, detached.

        Raises:
            InputError: the tables are inside a torch.func transformation.
        """
        if is_transformed(model.tables):
            problem = "torch.func transformations cannot go through sampling"
            hint = "give a batch of tables instead of vmap and use backward() instead of torch.func.grad"
            raise refused("AnnealedImportance", problem, hint, code="no-method")
        return cls(model.hypergraph, model.tables.detach())


@dataclass(frozen=True)
class Run:
    """A forward run: chains, their states at its end (*batch, chains, d), log q and log q0 of these (*batch, chains).

    Log weights (*batch, chains), log Z0 (*batch), path, seed. A reverse run takes over the chains.
    """

    model: Plain
    chains: GibbsChains
    ends: torch.Tensor
    log_q: torch.Tensor
    log_q0: torch.Tensor
    log_weights: torch.Tensor
    log_z0: torch.Tensor
    betas: torch.Tensor
    seed: int


@dataclass(frozen=True)
class Reverse:
    """Log weights (*batch, chains) of a reverse run, where it started, how that was drawn, and its log q."""

    log_weights: torch.Tensor
    states: torch.Tensor
    log_q: torch.Tensor
    start: Literal["exact", "tempered"]


def make_chains(options: AnnealedImportance, model: Plain, num_chains: int, seed: int) -> GibbsChains:
    """Chains that start from the reference law."""
    return GibbsChains(
        model,
        num_chains,
        schedule=options.schedule,
        reference=reference_of(options, model),
        seed=seed,
        engine=options.engine,
        precision=options.precision,
    )


def reference_of(options: AnnealedImportance, model: Plain) -> torch.Tensor:
    """Log weights of the reference law, float64 (*batch, sum of cardinalities) or without the batch."""
    size = sum(model.hypergraph.domain.cardinalities)
    if isinstance(options.reference, str):
        if options.reference == "singles":
            return single_terms(model.hypergraph, model.tables)
        return model.tables.new_zeros(size, dtype=torch.float64)
    if len(options.reference) != size:
        expected = f"{size} log weights, one for every level of every variable"
        raise unexpected("AnnealedImportance reference", expected, received=len(options.reference), code="wrong-shape")
    return torch.as_tensor(options.reference, dtype=torch.float64, device=model.tables.device)


def forward(options: AnnealedImportance, model: LogLinearModel) -> Run:
    """A forward run along the path of the options."""
    plain = Plain.of(model)
    seed = drawn_seed(None) if options.seed is None else options.seed
    chains = make_chains(options, plain, options.num_chains, seed)
    reference = reference_of(options, plain)
    betas = _path(options, plain, seed)
    log_weights = annealing.forward_run(
        chains,
        betas,
        options.sweeps_per_step,
        islands=options.islands,
        below=options.resample_below,
        generator=torch.Generator().manual_seed(derived(seed, 1)),
        progress=options.progress,
    )
    log_z0 = reference_normaliser(plain.hypergraph, reference).expand(plain.tables.shape[:-1])
    ends = (chains.codes, -chains.energy, -chains.reference_energy)
    return Run(plain, chains, *ends, log_weights, log_z0, betas, seed)


def _path(options: AnnealedImportance, model: Plain, seed: int) -> torch.Tensor:
    """Inverse temperatures (steps + 1,): those given, or those that a pilot run finds."""
    if options.temperatures is None:
        return torch.linspace(0, 1, options.num_temperatures + 1, dtype=torch.float64)
    if not isinstance(options.temperatures, str):
        return torch.tensor(options.temperatures, dtype=torch.float64)
    pilot = make_chains(options, model, options.num_chains, derived(seed, 2))
    random = torch.Generator().manual_seed(derived(seed, 3))
    return annealing.adaptive_path(pilot, options.conditional_ess, options.sweeps_per_step, random)


def reverse(options: AnnealedImportance, run: Run) -> Reverse:
    """A reverse run, which takes over the chains of the forward run.

    Raises:
        IntractableError: both runs are to be combined and there are no perfect samples.
    """
    exact = perfect.perfect_backend(run.model.hypergraph)
    if exact is None and options.combine:
        problem = (
            "needs perfect samples, which elimination and enumeration cannot give for this structure within about a "
            "second"
        )
        raise out_of_reach("AnnealedImportance combine", problem, "use combine=False", code="no-method")
    if exact is None:
        states = _tempered_states(options, run)
    else:
        random = torch.Generator(run.model.tables.device).manual_seed(derived(run.seed, 4))
        states = exact.sample(run.model, (options.num_chains,), random).movedim(0, -2)
    run.chains.set_codes(states)
    log_q = -run.chains.energy
    log_weights = annealing.reverse_run(run.chains, states, run.betas, options.sweeps_per_step)
    return Reverse(log_weights, states, log_q, "tempered" if exact is None else "exact")


def _tempered_states(options: AnnealedImportance, run: Run) -> torch.Tensor:
    """States (*batch, chains, d) of a longer annealed run, resampled by weight and moved on at beta 1."""
    chains = make_chains(options, run.model, options.num_chains, derived(run.seed, 5))
    parts = torch.arange(_TEMPERED, dtype=torch.float64) / _TEMPERED
    steps = run.betas[:-1, None] + run.betas.diff()[:, None] * parts
    log_weights = chains.anneal(torch.cat([steps.reshape(-1), run.betas[-1:]]), options.sweeps_per_step)
    random = torch.Generator().manual_seed(derived(run.seed, 6))
    chains.gather(annealing.resampled(log_weights, 1, 1.0, random)[0])
    chains.sweep(options.burn_in)
    return chains.codes


def statistics(run: Run) -> torch.Tensor:
    """Self-normalised mean of the edge statistics at the end of a run, in the tables' dtype (*batch, num_terms)."""
    return run.chains.statistics(torch.softmax(run.log_weights, -1)).to(run.model.tables.dtype)
