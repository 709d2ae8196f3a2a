"""Many Gibbs chains of a generalized root model as one object."""

from __future__ import annotations

import dataclasses
import hashlib
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from ...budgets import check_cells
from ...checks import check_finite
from ...compute.engine import Record
from ...core.model import Chains
from ...errors import (
    ConvergenceWarning,
    check_names,
    check_type,
    check_whole,
    other_domain,
    out_of_range,
    refused,
    unexpected,
    wrong_shape,
    wrong_type,
)
from ...runs.arguments import checked_states, checked_thin, seed_from
from ...runs.container import checksum
from ...schema import Domain
from ..energy import GeneralizedRootEnergy
from ..nodes.families import NodeFamily
from ..nodes.user_family import UserFamily, user_has_law
from ..normalizability.check import check_normalizable
from .draws import RootProgram

_TILE = 32
_SMALL = 2**12  # draws that are not worth a second thread
_MOST_CHECKED = 64
_UPDATES_PER_CALL = 2**18


class RootChains(Chains):
    r"""Gibbs chains of a generalized root model, in the order of the schema.

    .. math:: x_s \sim p(x_s \mid x_{-s}) \propto \exp\Bigl(\sum_j \eta_{js} T_j(x_s) + B(x_s)\Bigr)

    A sweep draws every variable once, from its conditional given the present values of the others, with natural
    parameters :meth:`~pyro_hoim.generalized_root.GeneralizedRootEnergy.node_natural`. At inverse
    temperature :math:`\beta` all terms of two and more variables are multiplied by :math:`\beta`; at 0 a sweep draws
    independent states of the *independent member*, the model with the terms of single variables alone. A sweep costs
    the number of members of all terms, times the chains, plus one draw per variable and chain.

    Draws are exact up to rounding: of counts that stay below 128 from sums of all probabilities (less than 1e-15 of the
    mass is neglected), of larger counts and of reals from rejection under a hat of tangents and chords above the
    density, or in closed form. Chains run in float64 on the CPU; :attr:`states` come back on the device of psi.

    Args:
        energy: the model, or a law that holds one as its ``energy_model``, without a batch.
        num_chains: number of chains.
        clamped: variables held fixed, ``{name: value}``, or one value per chain (num_chains,).
        init: first states, what broadcasts to (num_chains, d), clamped columns too; None draws the independent member.
        seed: of everything random, or what it is drawn from (None: the global generator).
        check: refuse models of reals that cannot be normalised. With clamped variables every distinct row of their
            values is checked, of more than 64 the extreme ones and others spread evenly.

    Raises:
        InputError: a batch, no chain, values outside the domain, an unknown clamped name, a model, an independent
            member without init, or, at a sweep, a conditional that cannot be normalised, or has its mode beyond 2^53.
        InputTypeError: an argument of another type.

    Warns:
        ConvergenceWarning: it is not known whether the model can be normalised, and nothing disproves it; once.

    Randomness:
        Chain c has a stream that depends on the seed and on c alone: neither more chains nor more threads change it.

    Example:
        >>> from pyro_hoim import RootStructure, Variable
        >>> from pyro_hoim.generalized_root import PoissonFamily
        >>> domain = Domain([Variable(name, kind="count") for name in "ab"])
        >>> structure = RootStructure.simplified(domain, [("a", "b")])
        >>> model = GeneralizedRootEnergy(structure, torch.tensor([0.5, 0.0, 0.25]), PoissonFamily())
        >>> chains = RootChains(model, 100, clamped={"b": 3}, seed=1)
        >>> record = chains.sweep(5)
        >>> chains.states.shape, chains.states[:, 1].unique().tolist()
        (torch.Size([100, 2]), [3.0])
    """

    def __init__(
        self,
        energy: GeneralizedRootEnergy,
        num_chains: int,
        *,
        clamped: Mapping[str, float | torch.Tensor] | None = None,
        init: torch.Tensor | None = None,
        seed: int | torch.Generator | None = 0,
        check: bool = True,
    ) -> None:
        # What is asked for, and what it starts from.
        energy = self._energy = checked_energy(energy)
        self._num_chains = check_whole(num_chains, "num_chains")
        check_cells(self._num_chains, len(energy.domain), "num_chains", "take fewer chains", "chains")
        self._program = RootProgram.of(self._energy)
        # Values of the clamped variables in every chain, (num_chains,) by position.
        clamped = clamped or {}
        check_type(clamped, Mapping, "clamped", "a mapping from names to values")
        check_names(clamped, energy.domain.names, "clamped")
        clamps: dict[int, NDArray[np.float64]] = {}
        for name, value in clamped.items():
            numbers = torch.as_tensor(value).detach().cpu().double()
            if numbers.ndim > 1 or (numbers.ndim == 1 and len(numbers) != self._num_chains):
                raise wrong_shape(f"clamped[{name!r}]", f"() or ({self._num_chains},)", numbers)
            position = energy.domain.index(name)
            energy.families[position].check_values(numbers, f"clamped[{name!r}]")
            clamps[position] = numbers.expand(self._num_chains).numpy()
        # Categories are clamped whole, at one of their levels.
        energy.families.check_whole(clamps, energy.domain, "clamped")
        for places in energy.families.blocks:
            if int(places[0]) in clamps:
                levels = torch.from_numpy(np.stack([clamps[s] for s in places.tolist()], 1))
                energy.families.at(places.tolist()).check_values(levels, "clamped")
        fixed = dict(sorted(clamps.items()))
        self._clamped = tuple(energy.domain.names[s] for s in fixed)
        self._free = np.array([s for s in range(len(energy.domain)) if s not in fixed], dtype=np.int64)
        first = None if init is None else self._checked_values(init, "init")
        arrays = {str(s): torch.from_numpy(value.copy()) for s, value in fixed.items()}
        self._init = checksum(arrays if first is None else {**arrays, "init": torch.from_numpy(first)})
        # Laws that no chain may be started for.
        if check:
            self._check_normalizable(fixed)
        if first is None:
            self._check_independent()
        # Tiles of chains, with clamped columns in their first states.
        self._seed = seed_from(seed)
        self._make_tiles()
        states = np.zeros((len(energy.domain), self._num_chains)) if first is None else first
        for s, value in fixed.items():
            states[s] = value
        self._set(states)
        if first is None:
            self._move(1, 0.0, self._free)

    recordable = ("energies", "draws")
    mixing_hint = "weaken the interactions"
    identity = "model, clamped variable, seed or number of chains"

    def __repr__(self) -> str:
        return (
            f"RootChains({len(self._free)} of {len(self.domain)} variables, {self._energy.families.name}, "
            f"chains={self._num_chains})"
        )

    def _checked_values(self, states: Any, argument: str) -> NDArray[np.float64]:
        """States of all chains, (d, num_chains)."""
        values = checked_states(states, (self._num_chains, len(self.domain)), argument).detach().cpu().double()
        self._energy.families.check_values(values, argument)
        return values.T.contiguous().numpy().copy()

    def _check_normalizable(self, fixed: Mapping[int, NDArray[np.float64]]) -> None:
        """Refuse a model of reals whose law given the fixed values cannot be normalised."""
        if all(_is_always_lawful(self._energy.families[s]) for s in self._free):
            return
        # Every distinct row of clamped values leaves a law of its own.
        values = np.stack([np.zeros(self._num_chains), *fixed.values()], axis=1)
        unknown = ""
        for row in _spread(np.unique(values, axis=0)):
            given = dict(zip(self._clamped, row[1:].tolist(), strict=True))
            rest = self._energy.condition(given)[0] if given else self._energy
            verdict = check_normalizable(rest)
            if verdict.verdict == "disproven":
                verdict.check()
            if verdict.verdict == "undecided":
                unknown = unknown or verdict.reason
        if unknown:
            message = f"energy: it is not known whether the model can be normalised ({unknown})"
            warnings.warn(ConvergenceWarning(message), stacklevel=3)

    def _check_independent(self) -> None:
        """Refuse to start from an independent member that cannot be normalised."""
        from ..nodes.integrability_kernels import is_integrable

        for s in self._free:
            natural, family = self._program.linear[s], self._energy.families[s]
            if _is_always_lawful(family):
                continue
            if user_has_law(family, natural) if isinstance(family, UserFamily) else is_integrable(family.code, natural):
                continue
            shown = f"{self.domain.names[s]!r} with natural parameters {self._program.linear[s].tolist()}"
            problem = f"the terms of single variables alone cannot be normalised ({shown}); no first state can be drawn"
            raise refused("init", problem, "pass one", code="not-normalizable")

    def _make_tiles(self) -> None:
        from ._draw_kernels import chain_words, small_counts
        from ._kernels import workspace

        # A stream per chain; as many tiles as keep all threads busy.
        size, order = len(self.domain), self._energy.order
        self._small = small_counts(order)
        every = chain_words(self._seed, self._num_chains)
        width = max(1, min(_TILE, -(-self._num_chains // torch.get_num_threads())))
        self._tiles: list[tuple[Any, ...]] = []
        for low in range(0, self._num_chains, width):
            words = every[low : low + width].copy()
            states, scratch = np.zeros((size, len(words))), workspace(order, len(words))
            self._tiles.append((low, states, np.zeros((order, *states.shape)), words, scratch))

    def _set(self, states: NDArray[np.float64]) -> None:
        """Replace all states (d, num_chains)."""
        from ._kernels import fill_roots, fill_user_roots

        families = self._energy.families
        for low, tile_states, roots, _, _ in self._tiles:
            tile_states[:] = states[:, low : low + tile_states.shape[1]]
            if families.has_user_family:
                fill_user_roots(families, tile_states, roots)
            else:
                fill_roots(self._program.codes, self._small, tile_states, roots)

    def _move(self, num_sweeps: int, beta: float, order: NDArray[np.int64]) -> None:
        from ...compute.lanes import run_threads
        from ._kernels import sweep, user_sweep

        # Whole tiles go to threads, for compiled code releases the interpreter lock.
        program, small, size, families = self._program, self._small, len(self.domain), self._energy.families
        terms = (program.linear, *program.visits)
        failures: dict[int, int] = {}

        def work(first: int, step: int) -> None:
            for i in range(first, len(self._tiles), step):
                low, states, roots, words, scratch = self._tiles[i]
                rest = (order, num_sweeps, small, scratch, words, states, roots)
                if families.has_user_family:
                    failed = user_sweep(families, program.laws, terms, beta, *rest)
                else:
                    failed = sweep(program.laws, terms, beta, *rest)
                if failed >= 0:
                    failures[low + failed // size] = failed % size

        # Failures are reported after all tiles are done, those of the first chain first.
        is_short = num_sweeps * len(order) * self._num_chains < _SMALL
        run_threads(work, len(self._tiles), 1 if is_short else None)
        if failures:
            chain = min(failures)
            name = self.domain.names[failures[chain]]
            problem = f"the conditional of {name!r} in chain {chain} cannot be normalised or has its mode beyond 2^53"
            hint = "weaken the interactions, or check the model with check_normalizable"
            raise refused("energy", problem, hint, code="not-normalizable")

    @property
    def energy(self) -> GeneralizedRootEnergy:
        """The model."""
        return self._energy

    @property
    @override
    def domain(self) -> Domain:
        return self._energy.domain

    @property
    @override
    def states(self) -> torch.Tensor:
        return torch.from_numpy(self._states()).to(self._energy.device)

    def _states(self) -> NDArray[np.float64]:
        return np.ascontiguousarray(np.concatenate([tile[1] for tile in self._tiles], axis=1).T)

    @override
    def set_states(self, states: torch.Tensor) -> None:
        values = self._checked_values(states, "states")
        self._init = checksum({"init": torch.from_numpy(values)})
        self._set(values)

    def set_model(self, energy: GeneralizedRootEnergy) -> None:
        """New entries of the same terms; states stay, and whether there is a normalised law is not checked."""
        energy = checked_energy(energy)
        if energy.structure != self._energy.structure or energy.families != self._energy.families:
            raise other_domain("energy", "the terms and the family of the chains", hint="make new chains for others")
        self._energy, self._program = energy, RootProgram.of(energy)

    def set_single_terms(self, natural: torch.Tensor) -> None:
        """Replace the natural parameters (d, k) of the terms of single variables; interactions and states stay."""
        linear = np.ascontiguousarray(natural.detach().cpu().double().numpy())
        self._program = dataclasses.replace(self._program, linear=linear)

    @override
    def sweep(
        self,
        num_sweeps: int = 1,
        beta: float = 1.0,
        *,
        thin: int = 0,
        energies: bool = False,
        states: bool = False,
        reverse_order: bool = False,
    ) -> Record:
        r"""Move all chains by whole sweeps; look at them after every ``thin`` sweeps.

        Args:
            num_sweeps: how many.
            beta: inverse temperature :math:`\beta` in [0, 1] of the terms of two and more variables.
            thin: sweeps between two records; at least 1 where something is recorded.
            energies: record minus log q of every chain, at beta 1, (records, num_chains).
            states: record the states (records, num_chains, d).
            reverse_order: from the last variable to the first, the time reversal of the usual sweep.

        Raises:
            InputError: a negative number, beta outside [0, 1], or a conditional that cannot be normalised.
        """
        num_sweeps, thin = check_whole(num_sweeps, "num_sweeps", 0), checked_thin(thin, energies, states)
        beta = _checked_beta(beta)
        order = np.ascontiguousarray(self._free[::-1]) if reverse_order else self._free
        # As many sweeps at a time as lie between two records, and what is left at the end.
        num_records = num_sweeps // thin if thin else 0
        shape = (num_records, self._num_chains)
        scores = torch.zeros(shape, dtype=torch.float64, device=self._energy.device) if energies else None
        recorded = torch.zeros((*shape, len(self.domain)), dtype=torch.float64) if states else None
        done = 0
        for record in range(num_records if energies or states else 0):
            self._move(thin, beta, order)
            done += thin
            if scores is not None:
                scores[record] = -self.log_q()
            if recorded is not None:
                recorded[record] = torch.from_numpy(self._states())
        if num_sweeps > done:
            self._move(num_sweeps - done, beta, order)
        self._num_sweeps += num_sweeps
        return Record(num_records, None, scores, None if recorded is None else recorded.to(self._energy.device))

    def _scores(self) -> tuple[torch.Tensor, torch.Tensor]:
        from ._kernels import score, user_score

        program, single, joint = self._program, np.zeros(self._num_chains), np.zeros(self._num_chains)
        families = self._energy.families
        for low, states, roots, _, _ in self._tiles:
            parts = (values[low : low + states.shape[1]] for values in (single, joint))
            if families.has_user_family:
                user_score(families, program.linear, program.terms, states, roots, *parts)
            else:
                score(program.codes, program.linear, program.terms, states, roots, *parts)
        device = self._energy.device
        return torch.from_numpy(single).to(device), torch.from_numpy(joint).to(device)

    def log_q(self, beta: float = 1.0) -> torch.Tensor:
        r"""Log unnormalised probability (num_chains,) of the states, in float64; beta as in :meth:`sweep`."""
        single, joint = self._scores()
        return single + _checked_beta(beta) * joint

    def interaction_score(self) -> torch.Tensor:
        r"""The part of log q in terms of several variables, :math:`\partial \log q_\beta / \partial \beta`; float64."""
        return self._scores()[1]

    @property
    @override
    def fingerprint(self) -> str:
        structure, digest = self._energy.structure, hashlib.sha256()
        names = [(key, tuple(members)) for key, members in structure.names]
        facts = (self.domain.names, structure.order, names, self._energy.families, self._clamped, self._seed)
        digest.update(repr((*facts, self._num_chains)).encode())
        digest.update(self._energy.psi.detach().cpu().double().numpy().tobytes())
        return digest.hexdigest()

    @property
    @override
    def sweeps_per_call(self) -> int:
        return max(1, min(2**16, _UPDATES_PER_CALL // max(1, len(self.domain) * self._num_chains)))

    @override
    def _state(self) -> dict[str, torch.Tensor]:
        words = np.concatenate([tile[3] for tile in self._tiles])
        return {
            "states": torch.from_numpy(self._states()),
            "words": torch.from_numpy(words.view(np.int64)),
            "num_sweeps": torch.tensor(self._num_sweeps),
        }

    @override
    def _load(self, state: Mapping[str, torch.Tensor]) -> None:
        words = state["words"].cpu().numpy().view(np.uint64)
        for low, states, _, held, _ in self._tiles:
            held[:] = words[low : low + states.shape[1]]
        self._set(np.ascontiguousarray(state["states"].cpu().numpy().T))
        self._num_sweeps = int(state["num_sweeps"])


def checked_energy(energy: object) -> GeneralizedRootEnergy:
    """The energy, that of a law that holds one, or an error unless it has no batch and finite entries."""
    model = getattr(energy, "energy_model", energy)
    if not isinstance(model, GeneralizedRootEnergy):
        raise wrong_type("energy", "a GeneralizedRootEnergy, or a law that holds one", energy)
    if model.batch_shape:
        raise unexpected("energy", "no batch", received=f"one of shape {tuple(model.batch_shape)}", code="wrong-shape")
    check_finite(model.psi.detach(), "energy")
    return model


def _is_always_lawful(family: NodeFamily) -> bool:
    """Whether every law of a variable has a finite constant: counts of a family of the library."""
    return family.is_discrete and not isinstance(family, UserFamily)


def _checked_beta(beta: float) -> float:
    """The inverse temperature, or an error unless it is in [0, 1]."""
    if not 0.0 <= float(beta) <= 1.0:
        raise out_of_range("beta", "an inverse temperature in [0, 1]", beta)
    return float(beta)


def _spread(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sorted distinct rows, of too many those with the extreme values of each column and others spread evenly."""
    if len(rows) <= _MOST_CHECKED:
        return rows
    even = np.linspace(0, len(rows) - 1, _MOST_CHECKED).round().astype(np.int64)
    return rows[np.unique(np.concatenate([even, rows.argmin(0), rows.argmax(0)]))]


def independent_samples(
    energy: GeneralizedRootEnergy, num_samples: int, *, generator: torch.Generator | None = None
) -> torch.Tensor:
    """Exact independent draws (num_samples, d) from the model without terms of two and more variables.

    Arguments, errors and type are those of :class:`RootChains`; the seed is drawn from the generator.

    Example:
        >>> from pyro_hoim import Domain, RootStructure, Variable
        >>> from pyro_hoim.generalized_root import PoissonFamily
        >>> structure = RootStructure.independent(Domain([Variable("a", kind="count")]))
        >>> energy = GeneralizedRootEnergy(structure, torch.tensor([4.0]).log(), PoissonFamily())
        >>> draws = independent_samples(energy, 10_000, generator=torch.Generator().manual_seed(0))
        >>> draws.shape, round(float(draws.mean()), 1)
        (torch.Size([10000, 1]), 4.0)
    """
    return RootChains(energy, num_samples, seed=generator, check=False).states
