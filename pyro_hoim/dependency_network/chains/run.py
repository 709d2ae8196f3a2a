"""Long runs of pseudo-Gibbs chains: running statistics, traces, progress, checkpoints."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from ...errors import ConvergenceWarning, conflict, unexpected
from ...runs.chain_run import ChainRun
from ...runs.jobs import checked_file, checked_parts, checked_sizes, follow, part_of
from ...runs.recorder import Recorder
from ..conditionals import DependencyConditionals
from .pseudo_gibbs import PseudoGibbsChains, Scan, WalkerName

__all__ = ["PseudoGibbsRun", "sample_pseudo_gibbs"]

_UPDATES_PER_CALL = 2**24
_UPDATES_PER_CALL_TORCH = 2**21
_LEAST_CHAINS = {"WalkerEngine": 16, "ConditionalEngine": 2**11}
_TRACE_PER_CALL = 2**24


@dataclass(frozen=True, eq=False)
class PseudoGibbsRun(ChainRun):
    """What a run of pseudo-Gibbs chains gave; the attributes are those of :class:`~pyro_hoim.runs.ChainRun`.

    ``eta`` has the probability of every cell of the edges that are counted: all single variables and those asked for,
    in the layout of ``chains.hypergraph.term_slices``. There is no batch, and ``energies`` is None, since a dependency
    network has no energy.
    """

    chains: PseudoGibbsChains

    def marginal(self, names: str | Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
        """Estimated law of some variables that were counted together, and its Monte Carlo standard errors.

        Args:
            names: a variable, or a set of variables that was among ``edges``, in any order.

        Shape:
            results (*cardinalities of the names, in schema order), float64.

        Raises:
            InputError: the names were not counted together, or no statistics were recorded.
        """
        if self.eta is None or self.std_error is None:
            raise conflict("marginal", "the run recorded no statistics", "run it with record='statistics'")
        domain = self.chains.domain
        wanted = (names,) if isinstance(names, str) else tuple(names)
        edge = tuple(domain.names[i] for i in sorted(domain.indices(wanted)))
        if edge not in self.chains.hypergraph.term_slices:
            raise conflict("marginal", f"{edge} were not counted together", f"pass edges=[{edge}] to the run")
        where = self.chains.hypergraph.term_slices[edge]
        shape = [domain[name].cardinality for name in edge]
        return self.eta[where].reshape(shape), self.std_error[where].reshape(shape)


class _PseudoGibbsJob:
    """Burn-in and sampling of chains, as a :class:`~pyro_hoim.runs.jobs.Job`."""

    def __init__(
        self, chains: PseudoGibbsChains, recorder: Recorder, sizes: tuple[int, int, int], parts: Sequence[str]
    ) -> None:
        self.done = 0
        self.burn_in, num_sweeps, self._thin = sizes
        self.total = self.burn_in + num_sweeps
        self._chains, self._recorder = chains, recorder
        self._kept = {"counts": "statistics" in parts, "codes": "codes" in parts}
        engine = type(chains._engine).__name__
        limit = _UPDATES_PER_CALL if engine == "WalkerEngine" else _UPDATES_PER_CALL_TORCH
        cost = max(1, len(chains.order)) * max(chains.num_chains, _LEAST_CHAINS[engine])
        self._unit = max(1, min(2**20, limit // cost))
        if recorder.bytes_per_record:
            self._unit = min(self._unit, max(1, _TRACE_PER_CALL // recorder.bytes_per_record) * self._thin)

    def advance(self) -> int:
        if self.done < self.burn_in:
            length = min(self._unit, self.burn_in - self.done)
            self._chains.sweep(length)
            return length
        to_record = self._thin - (self.done - self.burn_in) % self._thin
        if self._unit < to_record:
            self._chains.sweep(self._unit)
            return self._unit
        records = 1
        if to_record == self._thin:
            records = min(self._unit // self._thin, self._recorder.num_to_look)
        length = to_record + (records - 1) * self._thin
        if self._recorder.add(self._chains.sweep(length, thin=length // records, **self._kept)):
            self._recorder.look(self._chains.codes[None])
        return length

    def state(self) -> dict[str, torch.Tensor]:
        return {
            **{f"chains.{name}": value for name, value in self._chains.state_dict().items()},
            **{f"record.{name}": value for name, value in self._recorder.state().items()},
        }

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        self._chains.load_state_dict(part_of(state, "chains."))
        self._recorder.load_state(part_of(state, "record."))


def sample_pseudo_gibbs(
    conditionals: DependencyConditionals,
    num_chains: int,
    num_sweeps: int = 1000,
    *,
    burn_in: int = 0,
    thin: int = 1,
    record: Literal["statistics", "codes"] | Sequence[Literal["statistics", "codes"]] = "statistics",
    scan: Scan = "random",
    order: Sequence[str] | None = None,
    selection: Mapping[str, float] | None = None,
    clamped: Mapping[str, Any] | None = None,
    init: torch.Tensor | None = None,
    edges: Sequence[Sequence[str]] = (),
    seed: int = 0,
    engine: WalkerName = "auto",
    precision: torch.dtype = torch.float32,
    check: bool = True,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 30.0,
    resume: bool = False,
) -> PseudoGibbsRun:
    r"""Run pseudo-Gibbs chains for any number of sweeps: Monte Carlo marginals of a dependency network.

    Memory does not grow with the length of the run, unless codes are recorded. A run that was killed and is resumed
    from its checkpoint gives the same bits as one that was not. The estimates are those of the stationary law of the
    random scan, or of the law after whole sweeps of the sequential scan, which is another one where the conditionals
    belong to no joint law.

    Args:
        conditionals: the network, or a law that holds one as ``conditionals``.
        num_chains: number of chains.
        num_sweeps: sweeps after burn-in, a multiple of ``thin``.
        burn_in: sweeps before the first one that is recorded.
        thin: sweeps between two records.
        record: what is kept of every record: "statistics" (running sums for ``eta``) and "codes" (traces).
        scan: "random" or "sequential"; for this and all others up to ``check`` see
            :class:`~pyro_hoim.dependency_network.PseudoGibbsChains`.
        order: order of a sequential scan.
        selection: probabilities of a random scan.
        clamped: variables held fixed; the run then estimates :math:`\pi'(x \mid x_C)`.
        init: first states.
        edges: sets of variables whose joint laws are estimated, besides those of all single variables.
        seed: seed of everything random.
        engine: what moves the chains.
        precision: of the compiled conditionals.
        check: refuse networks without a single limiting law and evidence of probability zero.
        progress: show a progress bar on standard error.
        checkpoint: file to continue from; written now and then, at Ctrl-C and at the end.
        checkpoint_every: least number of seconds between two writes.
        resume: continue from ``checkpoint`` if it exists (of a finished run it gives the result); otherwise an
            existing file is refused.

    Returns:
        Estimates and the chains in their last states. The estimates are those of a Markov chain: biased by its start
        and autocorrelated. :func:`~pyro_hoim.interop.diagnose_chains` takes a run with codes for ESS and
        R-hat.

    Raises:
        InputError: sweeps that are no multiple of ``thin``, an unknown part to record, a checkpoint that exists, is
            damaged or belongs to a run with other arguments, and everything that the chains refuse.
        InputTypeError: arguments of the wrong type.

    Warns:
        ConvergenceWarning: chains differ from each other by more than chance, or it is not known whether the network
            has a single limiting law.

    Randomness:
        From ``seed`` only.

    References:
        Paper 5, equation (2) and algorithm 3.

    Example:
        >>> from pyro_hoim.dependency_network import TableConditional
        >>> from pyro_hoim.schema import Domain
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> a = TableConditional(domain, "a", ["b"], torch.tensor([[0.9, 0.1], [0.4, 0.6]]))
        >>> b = TableConditional(domain, "b", [], torch.tensor([0.3, 0.7]))
        >>> run = sample_pseudo_gibbs(DependencyConditionals([a, b]), 50, 400, burn_in=20, engine="torch")
        >>> probs, errors = run.marginal("a")
        >>> bool(((probs - torch.tensor([0.55, 0.45])).abs() < 5 * errors).all())
        True
    """
    sizes = checked_sizes(num_sweeps, burn_in, thin)
    parts = checked_parts(record)
    if "energy" in parts:
        found = "'energy', which a network does not have"
        raise unexpected("record", "'statistics' or 'codes'", received=found, code="unknown-choice")
    file = checked_file(checkpoint, checkpoint_every, resume)
    chains = PseudoGibbsChains(
        conditionals,
        num_chains,
        scan=scan,
        order=order,
        selection=selection,
        clamped=clamped,
        init=init,
        edges=edges,
        seed=seed,
        engine=engine,
        precision=precision,
        check=check,
    )
    recorder = Recorder(chains.hypergraph, 1, chains.num_chains, sizes[1] // sizes[2], parts, (chains.num_chains,))
    settings = {
        "kind": "pseudo-Gibbs chains",
        "burn_in": sizes[0],
        "num_sweeps": sizes[1],
        "thin": sizes[2],
        "record": list(parts),
        "precision": str(precision),
        "network, scan, clamped value, engine, seed or number of chains digest": chains.fingerprint,
        "initial state digest": hashlib.sha256(chains.codes.cpu().contiguous().numpy().tobytes()).hexdigest(),
    }
    seconds = follow(_PseudoGibbsJob(chains, recorder, sizes, parts), settings, file, progress)
    summary = recorder.summary()
    if summary is not None and summary.is_mixed is False:
        warnings.warn(
            ConvergenceWarning(
                "chains differ from each other by more than chance, so they have not mixed; make longer runs, or "
                "smooth the conditionals"
            ),
            stacklevel=2,
        )
    between = None if summary is None else summary.between_chains
    return PseudoGibbsRun(
        eta=None if summary is None else summary.eta[0],
        std_error=None if summary is None else summary.std_error[0],
        between_chains=None if between is None else between[0],
        is_mixed=None if summary is None else summary.is_mixed,
        energies=None,
        codes=None if recorder.codes is None else recorder.codes[:, 0],
        chains=chains,
        num_records=sizes[1] // sizes[2],
        num_sweeps=sizes[1],
        burn_in=sizes[0],
        thin=sizes[2],
        seconds=seconds,
    )
