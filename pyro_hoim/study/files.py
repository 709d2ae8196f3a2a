"""The files of a study: models, and posteriors where there are any."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..atomic import draft_of
from ..inference.structure.file import save_structure_posterior
from ..log_linear.file import ModelFile, save_model
from ..log_linear.goodness.summary import is_maximum
from ..log_linear.infinite import infinite_to_json
from ..log_linear.scores import column_shares, directions_of
from .analysis import Analysis
from .learned import LearnedAnalysis
from .posterior import file_stem

__all__ = ["STRUCTURE_FILE", "save_analysis", "save_learned"]

_ROOM = 2**18  # bytes for names, labels and the tables of HDF5
STRUCTURE_FILE = "structures.safetensors"
"""Name of the file of a posterior over structure."""


def save_analysis(analysis: Analysis, folder: Path) -> dict[str, str]:
    """Write ``model.safetensors`` and, with posteriors, ``posterior.nc`` into an existing folder.

    With several models every one is also written as ``model-<name>.safetensors`` and ``posterior-<name>.nc``; the
    files without a name are those of the model kept. Files of the same names are replaced. Returned are the names of
    the files beside the model by what they hold.

    Example:
        >>> import tempfile
        >>> from pyro_hoim import InteractionHypergraph, load_table
        >>> from pyro_hoim.study import analyse
        >>> rows = load_table("ucb_admissions")
        >>> found = analyse({"train": rows}, {"pairs": InteractionHypergraph.from_order(rows.domain, 2)})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     others = save_analysis(found, Path(folder))
        ...     names = [path.name for path in Path(folder).iterdir()]
        >>> names, others
        (['model.safetensors'], {})
    """
    for model in analysis.models:
        stored = ModelFile(
            model.hypergraph,
            model.fit.theta,
            model.fit.coding,
            {
                "name": model.name,
                "data": analysis.title,
                "rows": analysis.train.total_count,
                "independent": column_shares(analysis.train),
                "log_likelihood": model.fit.log_likelihood,
                "status": model.fit.status,
                "is_maximum": is_maximum(model.fit),
                "is_restricted": model.fit.restriction is not None,
                "num_parameters": model.fit.num_parameters_fitted,
                "infinite_interactions": [infinite_to_json(row) for row in model.interactions if row["is_infinite"]],
                "prior": str(analysis.prior or "none"),
                "seed": analysis.seed,
            },
            directions_of(model.fit),
            impossible=model.fit.impossible,
        )
        if model.uncertainty is not None:
            stored.info["uncertainty"] = list(model.uncertainty.kept)
        if analysis.constrained is not None:
            record = analysis.constrained
            parts = {f"part_{name}": part for name, part in record.result.parts.items()}
            info = {**stored.info, "penalty": record.constraint.text, "gap": record.result.gap}
            stored = ModelFile(model.hypergraph, record.result.theta, "corner", info, parts)
        endings = [""] if model is analysis.chosen else []
        endings += [f"-{file_stem(model.name)}"] if len(analysis.models) > 1 else []
        for ending in endings:
            save_model(folder / f"model{ending}.safetensors", stored)
            if model.posterior is not None:
                _leave_out_dates(model.posterior.data)
                with draft_of(folder / f"posterior{ending}.nc") as draft:
                    _reserve(draft, model.posterior.data)
                    model.posterior.data.to_netcdf(str(draft))
    record = {} if analysis.chosen.posterior is None else {"posterior": "posterior.nc"}
    if analysis.structures is not None:
        about = {"data": analysis.title, "seed": analysis.seed, "method": analysis.structures.route}
        save_structure_posterior(folder / STRUCTURE_FILE, analysis.structures.posterior, about)
        record["structure posterior"] = STRUCTURE_FILE
    return record


def _groups(data: Any) -> list[Any]:
    """Groups of a posterior of ArviZ, of either generation."""
    names: Any = data.groups() if callable(data.groups) else data.groups
    return [data[name] for name in names]


def _leave_out_dates(data: Any) -> None:
    """Take the time of its making out of a posterior of ArviZ, so that equal runs are equal."""
    for group in _groups(data):
        group.attrs.pop("created_at", None)


def _reserve(place: Path, data: Any) -> None:
    """OSError where a file has no room for a posterior; HDF5 would say so in many lines, and hold the file open."""
    if hasattr(os, "posix_fallocate"):
        with place.open("rb+") as file:
            os.posix_fallocate(file.fileno(), 0, sum(group.nbytes for group in _groups(data)) + _ROOM)


def save_learned(analysis: LearnedAnalysis, folder: Path) -> dict[str, str]:
    """Write ``model.safetensors``, and of a model with a structure ``predictive.safetensors``, the richer model.

    Returned are the names of the files beside the model by what they hold.

    Example:
        >>> import tempfile
        >>> from pyro_hoim import Domain, Observations, learn, load
        >>> from pyro_hoim.study import analyse_learned
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[40, 10], [10, 40]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     others = save_learned(analyse_learned(learn(rows, rows), {"train": rows}), Path(folder))
        ...     kept = load(Path(folder, "model.safetensors"))
        >>> kept.domain.names, list(others.values())
        (('a', 'b'), ['predictive.safetensors'])
    """
    models = {"model": analysis.model}
    if analysis.model is not analysis.learned:
        models["predictive"] = analysis.learned
    for name, model in models.items():
        about = {"name": "learned", "data": analysis.title, "status": model.training.status, "seed": analysis.seed}
        model.save(folder / f"{name}.safetensors", about)
    return {"predictive model": "predictive.safetensors"} if "predictive" in models else {}
