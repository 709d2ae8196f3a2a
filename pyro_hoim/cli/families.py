"""The families of models that come with the library, registered where the command line looks for them."""

from __future__ import annotations

from ..core.family import Family, families, register
from .by_family.grm import ROOT_OPTIONS, plan_roots
from .by_family.log_linear import LOG_LINEAR_OPTIONS, plan_log_linear
from .by_family.network import NETWORK_OPTIONS, NetworkPlan

__all__ = ["DEFAULT", "families"]

DEFAULT = "log-linear"
"""The family that is fitted where none is named."""

register(
    Family(
        kind="hierarchical-log-linear",
        name="log-linear model",
        short="log-linear",
        options=LOG_LINEAR_OPTIONS,
        plan=plan_log_linear,
    )
)
register(
    Family(
        kind="dependency-network",
        name="dependency network",
        short="dependency-network",
        options=NETWORK_OPTIONS,
        plan=NetworkPlan,
        instead={"prior": "its leaves have the Dirichlet prior of --alpha"},
    )
)
register(
    Family(
        kind="generalized-root",
        name="generalized root model",
        short="grm",
        options=ROOT_OPTIONS,
        plan=plan_roots,
        instead={
            "prior": "its coefficients are held back by --l1",
            "target": "fit without it, then pyro-hoim predict MODEL FILE --target COL",
            "missing": "fill empty cells or leave out their rows before the fit, which needs every number",
        },
    )
)
