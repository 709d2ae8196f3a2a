"""Entropy and multiple mutual information of many sets of variables, from counts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Literal

import numpy as np
import torch

from ..errors import MissingDataError, conflict, unexpected
from .bits import LevelBits
from .frames import DataLike, RowsLike, as_observations, is_source
from .observations import Observations

_LARGEST_KEY = 2**62
_ENTRIES_PER_CALL = 2**26
"""Work of one compiled call (sets x rows), a fraction of a second, so that Ctrl-C is answered."""
_SETS_PER_COUNT = 2**15
"""Sets whose tables are counted together."""
_SETS_PER_CALL = 2**19
"""Sets that are looked at together, with about a kilobyte each."""


class InformationTable:
    r"""Entropy H and multiple mutual information I and J of sets of variables under the empirical law, in nats.

    .. math::
        H(p_S) = -\sum_{x_S} p_S(x_S) \log p_S(x_S), \quad
        I(p_S) = \sum_{T \subseteq S} (-1)^{|T| - 1} H(p_T), \quad
        J(p_S) = \sum_{T \subseteq S} (-1)^{|S| - |T|} D(p_T; u_T)

    with the uniform law :math:`u_T`. J equals :math:`(-1)^{|S|} I` from two variables on; for a single variable it is
    the divergence from the uniform law. From three on, I and J may have either sign. An entropy is computed once, with
    one pass over the distinct rows whatever the number of cells, and kept, so a set of k variables costs O(distinct
    rows) and 2^k look-ups once the entropies of its subsets are known.

    Of rows that need not be in memory (:func:`~pyro_hoim.data.open_rows`) the margins of the sets and of their subsets
    are counted instead, all that a call needs in one pass over the rows; then the cells of the sets must fit.

    Args:
        data: complete observations. Fractional weights (a dense law) are fine without a correction.
        correction: None for the plug-in entropy, which is too low on sparse counts and makes J of pairs too high;
            ``miller-madow`` adds (occupied cells - 1) / 2N to each entropy, which removes the first order of the bias
            only: with fewer than two rows a cell a good part of it stays. J of a pair may then fall below zero.

    Raises:
        MissingDataError: there are missing cells.
        InputError: no observations, an unknown correction, or one with counts that are not whole.
        InputTypeError: ``data`` is not of class :class:`Observations`.

    References:
        Paper 1, equations (1) to (3); George Miller, Note on the bias of information estimates, 1955.

    Example:
        >>> from pyro_hoim import Domain, Observations
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
        >>> xor = Observations.from_tensor(torch.tensor([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]]), domain)
        >>> table = InformationTable(xor)
        >>> table.interaction_information([("a", "b"), ("a", "b", "c")]).numpy().round(6).tolist()
        [0.0, 0.693147]
        >>> table.mutual_information([("a", "b", "c")]).numpy().round(6).tolist()
        [-0.693147]
    """

    def __init__(self, data: DataLike, *, correction: Literal["miller-madow"] | None = None) -> None:
        source = data if is_source(data) else None
        data = as_observations(data) if source is None else source
        if correction not in (None, "miller-madow"):
            raise unexpected("correction", "None or 'miller-madow'", correction, code="unknown-choice")
        self.data: Observations | RowsLike = data
        self.correction: Literal["miller-madow"] | None = correction
        self._cardinalities = np.array(data.domain.cardinalities, dtype=np.int64)
        self._positions = {name: i for i, name in enumerate(data.domain.names)}
        self._known: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        if isinstance(data, Observations):
            self._read(data)

    def _read(self, data: Observations) -> None:
        """Keep the distinct rows."""
        correction = self.correction
        # Entropies are those of complete rows, at least one.
        if data.has_missing:
            hint = "use drop_missing(), missing_as_level(label) or project(names) first"
            raise MissingDataError(f"{data.num_missing_cells} missing cells", argument="data", hint=hint)
        if not data.total_count > 0:
            raise unexpected("data", "a positive total count", received="no observations", code="empty")
        if correction is not None and not data.has_whole_counts:
            problem = f"{correction!r} expects whole counts, received fractional weights"
            raise conflict("correction", problem, "use correction=None")
        self._total = data.total_count
        merged = data.unique()
        self._codes, self._counts = merged.narrow.numpy(), merged.counts.numpy()
        has_bits = LevelBits.serves(self._counts)
        self._bits = LevelBits(self._codes.T, data.domain.cardinalities, self._counts) if has_bits else None

    def __repr__(self) -> str:
        known = sum(len(keys) for keys, _ in self._known.values())
        return f"InformationTable({self.data!r}, correction={self.correction!r}, {known} entropies known)"

    def entropy(self, edges: Iterable[Sequence[str]]) -> torch.Tensor:
        """Entropy H of each set of names (paper 1, equation 1), in nats (number of sets,); 0 for the empty set."""
        return self._by_order(edges, self._entropies)

    def divergence(self, edges: Iterable[Sequence[str]]) -> torch.Tensor:
        r"""Divergence :math:`D(p_S; u_S) = \sum_{k \in S} \log I_k - H(p_S)` from the uniform law, in nats."""
        logs = np.log(self._cardinalities)
        return self._by_order(edges, lambda sets: logs[sets].sum(1) - self._entropies(sets))

    def mutual_information(self, edges: Iterable[Sequence[str]]) -> torch.Tensor:
        """Multiple mutual information I of each set (paper 1, equation 2), in nats; entropy for one variable."""
        return self._by_order(edges, lambda sets: -self._alternating(sets, 0))

    def interaction_information(self, edges: Iterable[Sequence[str]]) -> torch.Tensor:
        """J of each set (paper 1, equation 3), in nats; its absolute value is the paper's score of a candidate."""
        logs = np.log(self._cardinalities)

        def values(sets: np.ndarray) -> np.ndarray:
            signed = -self._alternating(sets, sets.shape[1])
            return signed + logs[sets[:, 0]] if sets.shape[1] == 1 else signed

        return self._by_order(edges, values)

    def _by_order(self, edges: Iterable[Sequence[str]], function: Callable[[np.ndarray], np.ndarray]) -> torch.Tensor:
        """Values of a function of (m, k) sorted schema positions, set after set in the order given."""
        wanted = [(edge,) if isinstance(edge, str) else tuple(edge) for edge in edges]
        sizes, values = np.array([len(names) for names in wanted], dtype=np.int64), np.zeros(len(wanted))
        for order in np.unique(sizes[sizes > 0])[::-1].tolist():
            places = np.flatnonzero(sizes == order)
            step = len(places) if is_source(self.data) else _SETS_PER_CALL  # of a source, a pass serves all sets
            for start in range(0, len(places), step):
                part = places[start : start + step]
                # Schema positions (m, k) of k names each, increasing; the domain says what is wrong with a name.
                sets = [wanted[i] for i in part.tolist()]
                try:
                    flat = [self._positions[name] for name in itertools.chain.from_iterable(sets)]
                except (KeyError, TypeError):
                    flat = [i for names in sets for i in self.data.domain.indices(names)]
                positions = np.sort(np.array(flat, dtype=np.int64).reshape(-1, order), axis=1)
                is_repeated = (np.diff(positions, axis=1) == 0).any(1)
                if is_repeated.any():
                    self.data.domain.indices(sets[int(is_repeated.argmax())])
                values[part] = function(positions)
        return torch.from_numpy(values + 0.0)

    def _alternating(self, sets: np.ndarray, order: int) -> np.ndarray:
        r"""Sum over non-empty subsets T of :math:`(-1)^{order - |T|} H(p_T)`."""
        total = np.zeros(len(sets))
        width = sets.shape[1]
        if is_source(self.data):
            chosen = [c for size in range(1, width + 1) for c in itertools.combinations(range(width), size)]
            self._count(self.data, {tuple(one[list(c)].tolist()) for one in sets for c in chosen})
        for size in range(1, width + 1):
            chosen = list(itertools.combinations(range(width), size))
            values = self._entropies(sets[:, np.array(chosen)].reshape(-1, size)).reshape(len(sets), len(chosen))
            total += (-1.0) ** (order - size) * values.sum(1)
        return total

    def _keys(self, sets: np.ndarray) -> np.ndarray:
        """One sortable key per set, in lexicographic order."""
        base, order = len(self._positions), sets.shape[1]
        if base**order < _LARGEST_KEY:
            keys = np.zeros(len(sets), dtype=np.int64)
            for j in range(order):
                keys = keys * base + sets[:, j]
            return keys
        return np.ascontiguousarray(sets.astype(">i8")).view(f"S{8 * order}").ravel()

    def _entropies(self, sets: np.ndarray) -> np.ndarray:
        """Entropies of sets of one size (m, k), those not yet known computed and kept."""
        keys = self._keys(sets)
        distinct, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        known, values = self._known.get(sets.shape[1], (distinct[:0], np.zeros(0)))
        is_new = ~np.isin(distinct, known, assume_unique=True)
        if is_new.any():
            new = sets[first[is_new]]
            if is_source(self.data):
                self._count(self.data, set(map(tuple, new.tolist())))
            else:
                self._keep(new, self._total, *self._sums(new).T)
            known, values = self._known[sets.shape[1]]
        return values[np.searchsorted(known, distinct)][inverse.reshape(-1)]

    @cached_property
    def _columns(self) -> np.ndarray:
        """Codes column by column, as the compiled sums read them."""
        return np.ascontiguousarray(self._codes.T)

    def _sums(self, sets: np.ndarray) -> np.ndarray:
        """Sums of c log c over the cells of distinct sets in lexicographic order, and how many are occupied, (m, 2)."""
        from .kernels import cell_sums

        # Small tables are counted by bits, others row by row; a portion at a time.
        out, sizes = np.zeros((len(sets), 2)), self._cardinalities[sets].prod(1)
        is_fast = np.zeros(len(sets), dtype=bool)
        if self._bits is not None:
            is_fast = np.array([self._bits.is_fast(size) for size in sizes.tolist()])
            for part in np.array_split(np.flatnonzero(is_fast), -(-int(is_fast.sum()) // _SETS_PER_COUNT) or 1):
                counts = self._bits.cells(sets[part])
                starts = np.cumsum([0, *sizes[part]])[:-1]
                if len(part):
                    out[part, 0] = np.add.reduceat(counts * np.log(np.maximum(counts, 1)), starts)
                    out[part, 1] = np.add.reduceat(counts > 0, starts, dtype=np.float64)
        rest = np.flatnonzero(~is_fast)
        step = max(1, _ENTRIES_PER_CALL // max(1, len(self._counts)))
        for start in range(0, len(rest), step):
            part = rest[start : start + step]
            sums = np.zeros((len(part), 2))
            cell_sums(self._columns, self._counts, self._cardinalities, sets[part], sums)
            out[part] = sums
        return out

    def _keep(self, sets: np.ndarray, total: float, sums: np.ndarray, occupied: np.ndarray) -> None:
        """Add the entropies of sets of one size that were not known, from sums of c log c and numbers of cells."""
        fresh = np.where(occupied == 1, 0.0, math.log(total) - sums / total)  # a constant is free of rounding
        if self.correction is not None:
            fresh += (occupied - 1) / (2 * total)
        keys = self._keys(sets)
        known, values = self._known.get(sets.shape[1], (keys[:0], np.zeros(0)))
        known, values = np.concatenate([known, keys]), np.concatenate([values, fresh])
        order = np.argsort(known, kind="stable")
        self._known[sets.shape[1]] = (known[order], values[order])

    def _count(self, source: RowsLike, wanted: set[tuple[int, ...]]) -> None:
        """Entropies of the sets that are not known, from the margins of all of them in one pass."""
        # Sets of one size lie together, as the keys of known entropies do.
        groups: list[np.ndarray] = []
        for size in sorted({len(one) for one in wanted}):
            sets = np.array(sorted(one for one in wanted if len(one) == size), dtype=np.int64)
            known, _ = self._known.get(size, (self._keys(sets)[:0], None))
            groups.append(sets[~np.isin(self._keys(sets), known)])
        names = source.domain.names
        edges = [tuple(names[i] for i in one) for sets in groups for one in sets]
        if not edges:
            return
        # One pass counts the cells of all sets, whose entropies are sums over parts of one vector.
        counts = source.marginal_counts(edges).double().numpy()
        ends = np.cumsum([int(self._cardinalities[one].prod()) for sets in groups for one in sets])
        starts = np.concatenate([[0], ends[:-1]])
        total = float(counts[: ends[0]].sum())
        if not total > 0:
            raise unexpected("data", "a positive total count", received="no observations", code="empty")
        sums = np.add.reduceat(counts * np.log(np.maximum(counts, 1)), starts)
        occupied = np.add.reduceat(counts > 0, starts, dtype=np.float64)
        bounds = np.cumsum([len(sets) for sets in groups])[:-1]
        for sets, *figures in zip(groups, np.split(sums, bounds), np.split(occupied, bounds), strict=True):
            if len(sets):
                self._keep(sets, total, *figures)
