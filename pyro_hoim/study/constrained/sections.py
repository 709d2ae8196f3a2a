"""What a report says of a fit within norm balls. Nothing is computed here but formats and pictures."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ...core.page import Section
from ...core.words import number, plural
from ...plots.drawing import BLUE, FAINT, INK, ORANGE, plain_axes, wrapped
from .record import ConstrainedRecord

__all__ = ["constrained_section", "constrained_sentences", "constrained_warnings"]

_SHOWN = 20  # entries in a picture
_NORMS = {"sparse": "l1 norm", "low_rank": "overlapped Schatten 1 norm"}
_WORDS = {"sparse": "sparse", "low_rank": "low-rank"}


def constrained_sentences(record: ConstrainedRecord) -> list[str]:
    """What was fitted, and how near to the optimum."""
    result, radii = record.result, record.constraint.radii
    bounds = " and ".join(f"a {_WORDS[n]} part whose {_NORMS[n]} is at most {number(r)}" for n, r in radii.items())
    order = f"All interactions of up to {result.hypergraph.order} variables"
    sentences = [
        f"{order}, fitted by pseudo-likelihood as {bounds}, in corner coding.",
        f"The objective, {result.loss:.6f} nats a row, is at most {result.gap:.1g} above its minimum (duality gap).",
    ]
    if record.num_nonzero is not None:
        sentences.append(
            f"Of {result.hypergraph.num_parameters} parameters of the sparse part {record.num_nonzero} are not zero."
        )
    if "low_rank" in radii:
        sentences.append(f"The low-rank part has rank {record.rank} of {len(record.singular_values)}.")
    return sentences


def constrained_warnings(record: ConstrainedRecord) -> list[str]:
    """What to know before reading on."""
    if record.result.status == "converged":
        return []
    return [
        f"The fit stopped before its duality gap had fallen to the tolerance; it is {record.result.gap:.1g} nats a row."
    ]


def constrained_section(record: ConstrainedRecord) -> Section:
    """Parts, pictures and the certificate."""
    section = Section("Sparse and low-rank parts")
    figures = record.to_json()
    section.table(
        ["part", "norm", "radius", "gain per unit of radius"],
        [[_WORDS[p["part"]], p["norm"], p["radius"], p["multiplier"]] for p in figures["parts"]],
    )
    section.note(
        "Norms and radii in nats. Gain per unit of radius: the Lagrange multiplier, by how many nats a row a radius "
        "larger by one nat would improve the fit at first. The l1 norm is the sum of the absolute values of the "
        "parameters."
    )
    if "low_rank" in record.constraint.radii:
        section.note(
            "The overlapped Schatten 1 norm arranges the parameters as matrices, one for each direction of their "
            "tensor, and adds up the singular values of all of them; a small norm means few large singular values, "
            "that is a low rank."
        )
    if record.num_nonzero:
        section.figure(_sparse(record), "Entries of the sparse part in corner coding, the largest first")
    whose = "the low-rank part" if "low_rank" in record.constraint.radii else "the fitted tensor"
    section.figure(_spectrum(record.singular_values), f"Singular values of {whose}, unfolded to a matrix")
    section.figure(_gap(record.result.trace[:, 1]), "Duality gap over the steps, nats a row")
    section.note("The duality gap bounds how far the objective is above its minimum.")
    return section


def _sparse(record: ConstrainedRecord) -> Figure:
    values = record.result.parts["sparse"].numpy()
    largest = np.argsort(-np.abs(values), kind="stable")[:_SHOWN]
    largest = largest[values[largest] != 0][::-1]
    edges = record.result.hypergraph.edges
    figure = Figure(figsize=(6.2, 0.9 + 0.34 * len(largest)), layout="constrained")
    axes = figure.add_subplot()
    axes.barh(
        range(len(largest)), values[largest], color=[BLUE if values[i] > 0 else ORANGE for i in largest], height=0.7
    )
    axes.set_yticks(range(len(largest)), [wrapped(":".join(edges[i]), 34) for i in largest])
    axes.axvline(0, color=FAINT, linewidth=0.8)
    axes.set_xlabel(f"theta, nats ({plural(len(largest), 'entry', 'entries')})", color=INK, fontsize=9)
    plain_axes(axes)
    return figure


def _spectrum(values: np.ndarray) -> Figure:
    figure = Figure(figsize=(5.2, 2.6), layout="constrained")
    axes = figure.add_subplot()
    axes.bar(np.arange(1, len(values) + 1), values, color=BLUE, width=0.7)
    axes.set_xlabel("number", color=INK, fontsize=9)
    axes.set_ylabel("singular value, nats", color=INK, fontsize=9)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    plain_axes(axes)
    return figure


def _gap(gaps: np.ndarray) -> Figure:
    figure = Figure(figsize=(5.2, 2.6), layout="constrained")
    axes = figure.add_subplot()
    steps = np.arange(1, len(gaps) + 1)
    is_shown = np.isfinite(gaps) & (gaps > 0)
    axes.plot(steps[is_shown], gaps[is_shown], color=BLUE, linewidth=1.2, marker="o", markersize=2.5)
    axes.set_yscale("log")
    axes.set_xlabel("step", color=INK, fontsize=9)
    axes.set_ylabel("duality gap, nats a row", color=INK, fontsize=9)
    plain_axes(axes)
    return figure
