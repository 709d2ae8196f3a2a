"""What a refit of root regressions did."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "RootRefit",
]


@dataclass(frozen=True)
class RootRefit:
    """How the joint model was refitted, and what came of it. Pseudo-NLLs are those of the training rows.

    Attributes:
        method: ``singles`` or ``all``.
        share: share of the regressions' penalties that was kept.
        status: ``converged``, ``max_iterations``, ``stalled`` (rounding, or the edge of the family's domain, stops the
            line search), or ``shortened``: the optimum has no normalising constant, and the coefficients stop on the
            way there.
        way: how far they go from independent columns (or from the joined values, where these have a constant and are
            better) to the optimum; 1 unless shortened.
        verdict: whether the refitted law has a normalising constant: ``proven`` or ``undecided``.
        objective: pseudo-NLL plus penalties, nats per row.
        pseudo_nll: nats per row, over the columns that are not fixed.
        joined_pseudo_nll: before the refit; infinite where some row had no conditional law.
        independent_pseudo_nll: of independent columns by maximum likelihood.
        kkt_residual: largest distance of a subgradient of the pseudo-NLL from zero at the optimum.
        num_steps: Newton steps (``singles``: most of any column).
        seconds: time taken.
    """

    method: str
    share: float
    status: str
    way: float
    verdict: str
    objective: float
    pseudo_nll: float
    joined_pseudo_nll: float
    independent_pseudo_nll: float
    kkt_residual: float
    num_steps: int
    seconds: float

    @property
    def is_converged(self) -> bool:
        """Whether the optimum was found, though a law without a constant was not kept."""
        return self.status in ("converged", "shortened")
