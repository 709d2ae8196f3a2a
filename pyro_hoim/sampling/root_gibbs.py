"""Many Gibbs chains of a generalized root model as one object."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import ConvergenceWarning, InputError, InputTypeError, check_names
from ..models.generalized_root import GeneralizedRootEnergy
from ..models.node_families import NodeFamily
from ..models.node_log_partition import node_log_partition
from ..models.normalizability import check_normalizable
from ..schema import Domain
from ._root_program import RootProgram
from .arguments import count, positive, received

__all__ = ["RootChains", "draw_from_nodes", "independent_log_partition", "independent_samples"]

_TILE = 32
_SMALL = 2**12  # draws that are not worth a second thread
_MOST_CHECKED = 16


class RootChains:
    r"""Gibbs chains of a generalized root model, in the order of the schema.

    .. math:: x_s \sim p(x_s \mid x_{-s}) \propto \exp\Bigl(\sum_j \eta_{js} T_j(x_s) + B(x_s)\Bigr), \qquad
              \eta_{js} = \sum_{S \ni s} \ell!\,\psi_S \prod_{t \in S \setminus s} T_j(x_t)

    A sweep draws every variable once, from its conditional given the present values of the others. At inverse
    temperature :math:`\beta` all terms of two and more variables are multiplied by :math:`\beta`; at 0 a sweep draws
    independent states of the *independent member*, the model with the terms of single variables alone. A sweep costs
    the number of members of all terms, times the chains, plus one draw per variable and chain.

    Every draw is exact up to rounding. Counts that stay below 128 come from sums of all probabilities (the
    neglected tail has less than 1e-15 of the mass); larger counts, values of the exponential family and of the
    Gaussian with cube or higher roots from rejection under a hat of tangents and chords, which is above the density
    everywhere; without such roots the last two have closed forms. Chains run in float64 on the CPU whatever psi's type
    and device; :attr:`states` come back on that device.

    Args:
        energy: the model, without a batch.
        num_chains: number of chains.
        given: variables held fixed, ``{name: value}``, or one value per chain.
        start: first states, given variables included (they take their given values). None draws from the independent
            member.
        generator: what the seed is drawn from, once; PyTorch's global generator when None.
        check: refuse models of reals that cannot be normalised (given the values of the first 16 chains that differ,
            if there are any). Counts always can.

    Shape:
        start (num_chains, d) or what broadcasts to it; values of given () or (num_chains,).

    Raises:
        InputError: a batch, fewer than one chain, values outside the domain of the family, a model that cannot be
            normalised, an independent member that cannot while there is no start, or, at a sweep, a conditional
            that cannot or whose mode is beyond 2^53.
        InputTypeError: an argument of another type.
        UnknownNameError: a given variable that is not in the domain.

    Warns:
        ConvergenceWarning: it is not known whether the model can be normalised.

    Randomness:
        Chain c has its own stream, which depends on the seed and on c alone: neither more chains nor more threads
        change it. With a generator, global random state is left alone.

    References:
        Inouye, Ravikumar, Dhillon (2016), Generalized root models, equation 5.

    Example:
        >>> from pyro_hoim.models import PoissonFamily, RootStructure
        >>> from pyro_hoim.schema import Variable
        >>> domain = Domain([Variable(name, kind="count") for name in "ab"])
        >>> structure = RootStructure.simplified(domain, [("a", "b")])
        >>> model = GeneralizedRootEnergy(structure, torch.tensor([0.5, 0.0, 0.25]), PoissonFamily())
        >>> chains = RootChains(model, 100, given={"b": 3}, generator=torch.Generator().manual_seed(1))
        >>> chains.sweep(5)
        >>> chains.states.shape, chains.states[:, 1].unique().tolist()
        (torch.Size([100, 2]), [3.0])
    """

    def __init__(
        self,
        energy: GeneralizedRootEnergy,
        num_chains: int,
        *,
        given: Mapping[str, float | torch.Tensor] | None = None,
        start: torch.Tensor | None = None,
        generator: torch.Generator | None = None,
        check: bool = True,
    ) -> None:
        self._energy = checked_energy(energy)
        self._num_chains = positive(num_chains, "num_chains")
        self._program = RootProgram.of(self._energy)
        fixed = _checked_given(energy, given or {}, self._num_chains)
        self._given = tuple(energy.domain.names[s] for s in fixed)
        self._free = np.array([s for s in range(len(energy.domain)) if s not in fixed], dtype=np.int64)
        first = None if start is None else _checked_states(energy, start, self._num_chains, "start")
        if check:
            self._check_normalizable(fixed)
        if first is None:
            self._check_independent()
        self._seed = seed_from(generator)
        self._num_sweeps = 0
        self._make_tiles()
        states = np.zeros((len(energy.domain), self._num_chains)) if first is None else first
        for s, value in fixed.items():
            states[s] = value
        self._set(states)
        if first is None:
            self._move(1, 0.0, self._free)

    def __repr__(self) -> str:
        return (
            f"RootChains({len(self._free)} of {len(self.domain)} variables, {self._energy.family.name}, "
            f"chains={self._num_chains})"
        )

    def _check_normalizable(self, fixed: Mapping[int, NDArray[np.float64]]) -> None:
        """Refuse a model of reals whose law given the fixed values cannot be normalised."""
        if self._energy.family.is_discrete or not len(self._free):
            return
        names = [self.domain.names[s] for s in fixed]
        values = np.stack(list(fixed.values()), axis=1) if fixed else np.zeros((1, 0))
        for row in np.unique(values, axis=0)[:_MOST_CHECKED] if fixed else values:
            rest = self._energy.condition(dict(zip(names, row.tolist(), strict=True))) if fixed else self._energy
            found = check_normalizable(rest)
            if found.verdict == "disproven":
                found.check()
            elif found.verdict == "undecided":
                message = f"energy: it is not known whether the model can be normalised ({found.reason})"
                warnings.warn(ConvergenceWarning(message), stacklevel=3)
                return

    def _check_independent(self) -> None:
        """Refuse to start from an independent member that cannot be normalised."""
        wrong = _first_not_integrable(self._energy.family, self._program.linear[self._free])
        if wrong is not None:
            name = self.domain.names[self._free[wrong]]
            raise InputError(
                f"start: the terms of {name!r} alone cannot be normalised (natural parameters "
                f"{self._program.linear[self._free[wrong]].tolist()}), so no start can be drawn; pass one"
            )

    # Tiles

    def _make_tiles(self) -> None:
        from ._root_count_kernels import small_counts
        from ._root_kernels import workspace
        from ._root_random_kernels import chain_words

        size, order = len(self.domain), self._energy.order
        self._small = small_counts(order)
        words = chain_words(self._seed, self._num_chains)
        width = max(1, min(_TILE, -(-self._num_chains // torch.get_num_threads())))
        self._tiles: list[tuple[Any, ...]] = []
        for low in range(0, self._num_chains, width):
            high = min(low + width, self._num_chains)
            shape = (size, high - low)
            self._tiles.append(
                (low, np.zeros(shape), np.zeros((order, *shape)), words[low:high].copy(), workspace(order, high - low))
            )

    def _set(self, states: NDArray[np.float64]) -> None:
        """Replace all states (d, num_chains)."""
        from ._root_kernels import fill_roots

        for low, held, roots, _, _ in self._tiles:
            held[:] = states[:, low : low + held.shape[1]]
            fill_roots(self._program.code, self._small, held, roots)

    def _move(self, num_sweeps: int, beta: float, order: NDArray[np.int64]) -> None:
        from ._root_kernels import sweep
        from .lanes import run_threads

        program, size = self._program, len(self.domain)
        failures: dict[int, int] = {}

        def work(first: int, step: int) -> None:
            for i in range(first, len(self._tiles), step):
                low, states, roots, words, scratch = self._tiles[i]
                failed = sweep(
                    program.code,
                    program.maximum,
                    (program.linear, *program.visits),
                    beta,
                    order,
                    num_sweeps,
                    self._small,
                    scratch,
                    words,
                    states,
                    roots,
                )
                if failed >= 0:
                    failures[low + failed // size] = failed % size

        small = num_sweeps * len(order) * self._num_chains < _SMALL
        run_threads(work, len(self._tiles), 1 if small else None)
        if failures:
            chain = min(failures)
            raise InputError(
                f"energy: the conditional of {self.domain.names[failures[chain]]!r} in chain {chain} cannot be "
                "normalised or has its mode beyond 2^53; weaken the interactions, or check the model with "
                "check_normalizable"
            )

    # State

    @property
    def energy(self) -> GeneralizedRootEnergy:
        """The model."""
        return self._energy

    @property
    def domain(self) -> Domain:
        """The variables."""
        return self._energy.domain

    @property
    def num_chains(self) -> int:
        """Number of chains."""
        return self._num_chains

    @property
    def num_sweeps(self) -> int:
        """Sweeps so far."""
        return self._num_sweeps

    @property
    def given(self) -> tuple[str, ...]:
        """Names of the variables that are held fixed."""
        return self._given

    @property
    def states(self) -> torch.Tensor:
        """A copy of the states of all chains, float64 (num_chains, d), on psi's device."""
        return torch.from_numpy(self._states()).to(self._energy.device)

    def _states(self) -> NDArray[np.float64]:
        return np.ascontiguousarray(np.concatenate([tile[1] for tile in self._tiles], axis=1).T)

    def set_states(self, states: torch.Tensor) -> None:
        """Replace all states; given variables take the values given here.

        Shape:
            states (num_chains, d) or what broadcasts to it.

        Raises:
            InputError: a wrong shape or a value outside the domain.
        """
        self._set(_checked_states(self._energy, states, self._num_chains, "states"))

    # Moves

    def sweep(self, num_sweeps: int = 1, beta: float = 1.0, *, reverse_order: bool = False) -> None:
        r"""Move all chains by whole sweeps.

        Args:
            num_sweeps: how many.
            beta: inverse temperature :math:`\beta` in [0, 1] of the terms of two and more variables.
            reverse_order: from the last variable to the first, the time reversal of the usual sweep.

        Raises:
            InputError: a negative number, beta outside [0, 1], or a conditional that cannot be normalised.
        """
        num_sweeps, beta = count(num_sweeps, "num_sweeps"), _checked_beta(beta)
        if num_sweeps:
            self._move(num_sweeps, beta, np.ascontiguousarray(self._free[::-1]) if reverse_order else self._free)
        self._num_sweeps += num_sweeps

    # Scores

    def _scores(self) -> tuple[torch.Tensor, torch.Tensor]:
        from ._root_kernels import score

        single, joint = np.zeros(self._num_chains), np.zeros(self._num_chains)
        for low, states, roots, _, _ in self._tiles:
            where = slice(low, low + states.shape[1])
            score(
                self._program.code,
                self._program.linear,
                self._program.terms,
                states,
                roots,
                single[where],
                joint[where],
            )
        device = self._energy.device
        return torch.from_numpy(single).to(device), torch.from_numpy(joint).to(device)

    def log_q(self, beta: float = 1.0) -> torch.Tensor:
        r"""Log unnormalised probability of every chain's state, float64 (num_chains,).

        Args:
            beta: inverse temperature of the terms of two and more variables.

        Raises:
            InputError: beta outside [0, 1].
        """
        single, joint = self._scores()
        return single + _checked_beta(beta) * joint

    def interaction_score(self) -> torch.Tensor:
        r"""The part of log q in terms of two and more variables, :math:`\partial \log q_\beta / \partial \beta`.

        Shape:
            result (num_chains,), float64.
        """
        return self._scores()[1]

    # Checkpoints

    @property
    def fingerprint(self) -> str:
        """Hash of model, given names, seed and number of chains."""
        structure, digest = self._energy.structure, hashlib.sha256()
        names = [(key, tuple(members)) for key, members in structure.names]
        facts = (self.domain.names, structure.order, names, self._energy.family, self._given, self._seed)
        digest.update(repr((*facts, self._num_chains)).encode())
        digest.update(self._energy.psi.detach().cpu().double().numpy().tobytes())
        return digest.hexdigest()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Everything that :meth:`load_state_dict` needs to continue with the same bits."""
        words = np.concatenate([tile[3] for tile in self._tiles])
        return {
            "states": torch.from_numpy(self._states()),
            "words": torch.from_numpy(words.view(np.int64)),
            "num_sweeps": torch.tensor(self._num_sweeps),
        }

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Continue where chains of the same model, number and given variables were."""
        words = state["words"].cpu().numpy().view(np.uint64)
        for low, states, _, held, _ in self._tiles:
            held[:] = words[low : low + states.shape[1]]
        self._set(np.ascontiguousarray(state["states"].cpu().numpy().T))
        self._num_sweeps = int(state["num_sweeps"])


def draw_from_nodes(
    family: NodeFamily, natural: torch.Tensor, *, generator: torch.Generator | None = None
) -> torch.Tensor:
    r"""Independent exact draws of single variables, one per vector of natural parameters.

    .. math:: x \sim \exp\Bigl(\sum_j \eta_j T_j(x) + B(x)\Bigr) / Z(\eta)

    Args:
        family: the base family.
        natural: :math:`\eta_1, \dots, \eta_k`.
        generator: what the seed is drawn from; PyTorch's global generator when None.

    Shape:
        natural (\*batch, k); result (\*batch), in natural's type and on its device.

    Raises:
        InputError: natural parameters whose law cannot be normalised, or has its mode beyond 2^53.
        InputTypeError: an argument of another type.

    Example:
        >>> from pyro_hoim.models import ExponentialFamily
        >>> natural = torch.tensor([-2.0, 1.0, 0.5]).expand(1000, 3)
        >>> draws = draw_from_nodes(ExponentialFamily(), natural, generator=torch.Generator().manual_seed(0))
        >>> draws.shape, bool((draws > 0).all())
        (torch.Size([1000]), True)
    """
    if not isinstance(family, NodeFamily):
        raise InputTypeError(f"family: expected a NodeFamily, received {type(family).__name__}")
    if not isinstance(natural, torch.Tensor) or not natural.is_floating_point():
        raise InputTypeError(f"natural: expected a floating-point tensor, received {received(natural)}")
    if natural.ndim == 0 or not natural.shape[-1]:
        raise InputError(f"natural: expected shape (..., k) with k from 1, received {tuple(natural.shape)}")
    from ._root_count_kernels import small_counts
    from ._root_kernels import draw_nodes, workspace
    from ._root_random_kernels import chain_words

    order = natural.shape[-1]
    rows = np.ascontiguousarray(natural.detach().cpu().double().reshape(-1, order).numpy())
    drawn = np.empty(len(rows))
    words = chain_words(seed_from(generator), len(rows))
    draw_nodes(family.code, family.largest_value, rows, small_counts(order), workspace(order, 1), words, drawn)
    if np.isnan(drawn).any():
        wrong = int(np.isnan(drawn).argmax())
        raise InputError(
            f"natural: expected a law that can be normalised, with its mode below 2^53, received {rows[wrong].tolist()}"
        )
    return torch.from_numpy(drawn).reshape(natural.shape[:-1]).to(natural)


def independent_samples(
    energy: GeneralizedRootEnergy, num_samples: int, *, generator: torch.Generator | None = None
) -> torch.Tensor:
    """Exact independent draws from the independent member, the model without terms of two and more variables.

    Args:
        energy: the model, without a batch.
        num_samples: number of draws.
        generator: what the seed is drawn from; PyTorch's global generator when None.

    Shape:
        result (num_samples, d), float64 on psi's device.

    Raises:
        InputError: a batch, or an independent member that cannot be normalised.
        InputTypeError: an argument of another type.
    """
    return RootChains(energy, num_samples, generator=generator, check=False).states


def independent_log_partition(energy: GeneralizedRootEnergy) -> torch.Tensor:
    r"""Log partition function of the independent member, :math:`\sum_s A(\eta_s)` over the terms of single variables.

    Exact up to the error of :func:`~pyro_hoim.models.node_log_partition`; nats; differentiable in psi.

    Args:
        energy: the model.

    Shape:
        result (\*batch) of the energy.

    Raises:
        InputError: the independent member cannot be normalised.
        InputTypeError: an argument of another type.
    """
    if not isinstance(energy, GeneralizedRootEnergy):
        raise InputTypeError(f"energy: expected a GeneralizedRootEnergy, received {type(energy).__name__}")
    structure, coefficients = energy.structure, energy.coefficients
    natural = coefficients.new_zeros(*energy.batch_shape, len(structure.domain), structure.order)
    for j, num_members in structure.keys:
        if num_members == 1:
            positions = structure.positions((j, 1))[:, 0].to(coefficients.device)
            column = coefficients.new_zeros(*energy.batch_shape, len(structure.domain))
            column = column.index_copy(-1, positions, coefficients[..., structure.slices[j, 1]])
            natural = natural + torch.nn.functional.pad(column.unsqueeze(-1), (j - 1, structure.order - j))
    return node_log_partition(energy.family, natural).sum(-1)


def seed_from(generator: torch.Generator | None) -> int:
    """A seed from a generator of any device, or from the global one."""
    device = "cpu" if generator is None else generator.device
    return int(torch.randint(2**63 - 1, (), dtype=torch.int64, device=device, generator=generator))


def checked_energy(energy: object) -> GeneralizedRootEnergy:
    """The energy, or an error unless it is one without a batch and with finite entries."""
    if not isinstance(energy, GeneralizedRootEnergy):
        raise InputTypeError(f"energy: expected a GeneralizedRootEnergy, received {type(energy).__name__}")
    if energy.batch_shape:
        raise InputError(f"energy: expected no batch, received one of shape {tuple(energy.batch_shape)}")
    if not bool(torch.isfinite(energy.psi.detach()).all()):
        raise InputError("energy: expected finite psi, received NaN or an infinity")
    return energy


def _checked_beta(beta: float) -> float:
    value = float(beta)
    if not 0.0 <= value <= 1.0:
        raise InputError(f"beta: expected an inverse temperature in [0, 1], received {beta!r}")
    return value


def _checked_given(
    energy: GeneralizedRootEnergy, given: Mapping[str, float | torch.Tensor], num_chains: int
) -> dict[int, NDArray[np.float64]]:
    """Values of the given variables in every chain, (num_chains,) by position."""
    if not isinstance(given, Mapping):
        raise InputTypeError(f"given: expected a mapping from names to values, received {type(given).__name__}")
    check_names(given, energy.domain.names, "given")
    found: dict[int, NDArray[np.float64]] = {}
    for name, value in given.items():
        numbers = torch.as_tensor(value).detach().cpu().double()
        if numbers.ndim > 1 or (numbers.ndim == 1 and len(numbers) != num_chains):
            raise InputError(f"given[{name!r}]: expected shape () or ({num_chains},), received {tuple(numbers.shape)}")
        energy.family.check_values(numbers, f"given[{name!r}]")
        found[energy.domain.index(name)] = numbers.expand(num_chains).numpy()
    return dict(sorted(found.items()))


def _checked_states(energy: GeneralizedRootEnergy, states: Any, num_chains: int, argument: str) -> NDArray[np.float64]:
    """States of all chains, (d, num_chains)."""
    size = len(energy.domain)
    if not isinstance(states, torch.Tensor) or states.is_complex() or states.dtype == torch.bool:
        raise InputTypeError(f"{argument}: expected a tensor of values, received {received(states)}")
    if states.ndim == 0 or states.shape[-1] != size:
        raise InputError(f"{argument}: expected shape (..., {size}), received {tuple(states.shape)}")
    try:
        values = states.detach().cpu().double().expand(num_chains, size)
    except RuntimeError:
        raise InputError(
            f"{argument}: expected a shape that broadcasts to {(num_chains, size)}, received {tuple(states.shape)}"
        ) from None
    energy.family.check_values(values, argument)
    return values.T.contiguous().numpy().copy()


def _first_not_integrable(family: NodeFamily, natural: NDArray[np.float64]) -> int | None:
    """The first row whose law on the reals cannot be normalised: the first nonzero parameter must be negative.

    For the Gaussian family that parameter may not be the second, which grows on one side.
    """
    if family.is_discrete:
        return None
    for i, row in enumerate(natural):
        leading = next((j for j, value in enumerate(row) if value != 0.0), None)
        if leading is None or row[leading] >= 0.0 or (leading == 1 and family.name == "gaussian"):
            return i
    return None
