"""``sample`` and ``score``: use a fitted model."""

from __future__ import annotations

import math
from pathlib import Path

import click
import torch
from tqdm import tqdm

from ...annealing.start_rows import chosen_rows
from ...core.rows import ClampedGibbs, RowMethod
from ...data.observations import Observations
from ...errors import IntractableError, conflict, out_of_range, unexpected
from ...log_linear.annealed.importance import AnnealedImportance
from ...log_linear.auto import Auto
from ...log_linear.energy import LogLinearEnergy
from ...log_linear.file import ModelFile
from ...log_linear.imputation import impute
from ...log_linear.scores import gain_over_columns, score_rows
from ...report.words import gain_sentence, plural
from ..impossible import check_evidence, num_impossible
from ..labels import read_known
from ..methods import LOG_Z_OPTIONS, describe_log_z, is_terminal, log_z_of
from ..model import (
    DATA,
    JSON,
    MISSING,
    MODEL,
    VOCAB,
    check_no_vocab,
    check_target_file,
    energy_of,
    is_network,
    is_roots,
    number_text,
    parse_given,
    read_model,
    write_rows,
)
from ..options import SEED, WholeNumber
from ..output import echo_json, whole
from ..seen import score_seen, seen_lines

__all__ = ["sample", "score"]

_BURN_IN = AnnealedImportance.burn_in
_PORTION = 1024  # rows drawn between two steps of the progress bar


@click.command()
@MODEL
@click.option("-n", "number", type=WholeNumber(1), required=True, metavar="N", help="How many rows.")
@click.option("--given", multiple=True, metavar="COL=VALUE", help="Fix a column; may be given several times.")
@click.option(
    "--method",
    type=click.Choice(["auto", "exact", "gibbs"]),
    default="auto",
    show_default=True,
    help="exact: perfect draws or none; gibbs: Markov chains, approximate; auto: exact where possible, else gibbs, "
    "and says so.",
)
@click.option(
    "--burn-in",
    type=WholeNumber(0),
    metavar="N",
    help=f"Sweeps of gibbs before a row.  [default: {_BURN_IN}; of a dependency network or a grm 200]",
)
@click.option(
    "--complete",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Fill the missing cells of the rows of this CSV file instead, each row N times, given its known cells.",
)
@click.option("--most-probable", is_flag=True, help="With --complete: the most probable cells instead of draws.")
@MISSING
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the draws.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE.csv", help="Write here instead of printing.")
def sample(
    model: Path,
    number: int,
    given: tuple[str, ...],
    method: RowMethod,
    burn_in: int | None,
    complete: Path | None,
    most_probable: bool,
    missing: tuple[str, ...],
    seed: int,
    out: Path | None,
) -> None:
    """Draw independent rows from MODEL as CSV, also given some columns, or fill the gaps of the rows of a file.

    The draws are exact (no Markov chain) where the model allows. Otherwise every row is the state of a Gibbs chain of
    its own, led to the model through a path of temperatures and then burnt in; one line on standard error says so.

    With --complete FILE every row of FILE comes back N times with its missing cells drawn given the others (multiple
    imputation; a first column "imputation" numbers the completed tables where N is above 1). Rows with a label that
    MODEL does not know are counted and left out; --missing LABEL makes the label missing.
    """
    if burn_in is not None and method == "exact":
        raise conflict("--burn-in", "belongs to --method gibbs, received --method exact")
    if complete is not None and given:
        raise conflict("--given", "cannot be combined with --complete", "write the value into the file")
    for name, is_used in (("--most-probable", most_probable), ("--missing", bool(missing))):
        if is_used and complete is None:
            raise conflict(name, "belongs to --complete FILE")
    if is_roots(model):
        from ..by_family.grm_use import sample_roots

        if complete is not None:
            raise conflict("--complete", "not for a generalized root model, whose rows are complete")
        sample_roots(model, number, given, method, burn_in, seed, out)
        return
    if is_network(model):
        from ..by_family.network_use import complete_with_network, sample_network

        if complete is None:
            sample_network(model, number, given, method, burn_in, seed, out)
        else:
            complete_with_network(model, complete, number, method, most_probable, missing, burn_in, seed, out)
        return
    stored = read_model(model)
    energy = energy_of(stored)
    if complete is not None:
        check_target_file(out)
        data, unseen = read_known(energy.domain, complete, missing)
        unseen.note("they are not completed and not written")
        check_evidence(stored, data, "--complete")
        _fill(energy, data, number, method, most_probable, burn_in, seed, out)
        return
    evidence = parse_given(given, energy.domain)
    known = torch.tensor([[evidence.get(name, -1) for name in energy.domain.names]], dtype=torch.long)
    check_evidence(stored, Observations.from_tensor(known, energy.domain), "--given")
    check_target_file(out)
    rest, _ = energy.condition(evidence)
    drawn = _draw(rest, number, method, burn_in, torch.Generator().manual_seed(seed))
    codes = torch.empty((number, len(energy.domain)), dtype=torch.long)
    for column, name in enumerate(energy.domain.names):
        codes[:, column] = evidence[name] if name in evidence else drawn[:, rest.domain.index(name)]
    write_rows(Observations.from_tensor(codes, energy.domain).to_pandas(count=None), out)


def _fill(
    energy: LogLinearEnergy,
    data: Observations,
    number: int,
    method: RowMethod,
    most_probable: bool,
    burn_in: int | None,
    seed: int,
    out: Path | None,
) -> None:
    """Write completions of rows, each repeated as often as its count says."""
    if number < 1:
        raise out_of_range("-n", "at least 1 completion of every row", received=number)
    if not data.has_whole_counts:
        raise out_of_range("--complete", "whole counts")
    each = torch.repeat_interleave(torch.arange(len(data.codes)), data.counts.long())
    data = Observations.from_tensor(data.codes[each], energy.domain)
    if not len(data.codes):
        raise unexpected("--complete", "at least one observation", received="counts that sum to zero", code="empty")
    found = impute(
        energy,
        data,
        number,
        how="most probable" if most_probable else "draws",
        method=method,
        gibbs=ClampedGibbs() if burn_in is None else ClampedGibbs(burn_in=burn_in),
        seed=seed,
    )
    note_approximate(int((~found.is_exact).sum()), "filled")
    write_rows(found.to_pandas(), out)


def note_approximate(number: int, verb: str) -> None:
    """One line on standard error about rows that needed Markov chains."""
    if number:
        miss, are = ("misses", "it is") if number == 1 else ("miss", "they are")
        click.echo(
            f"pyro-hoim: note: {plural(number, 'row')} {miss} so many cells that {are} {verb} approximately, by Gibbs "
            "chains that hold the known cells; --method exact refuses instead",
            err=True,
        )


def _draw(
    energy: LogLinearEnergy, number: int, method: str, burn_in: int | None, generator: torch.Generator
) -> torch.Tensor:
    """Rows (number, d), exact or by Gibbs, the latter with a line on standard error."""
    cost = Auto().plan(energy.hypergraph)
    if not number or not len(energy.domain):
        return torch.zeros((number, len(energy.domain)), dtype=torch.long)
    if cost.feasible and method != "gibbs":
        return Auto().sample(energy, (number,), generator)
    if method == "exact":
        raise IntractableError(
            f"{cost.reason}. At the command line: --method gibbs draws approximately, at any size, or fix columns "
            "with --given"
        )
    backend = AnnealedImportance(burn_in=_BURN_IN if burn_in is None else burn_in)
    click.echo(
        "pyro-hoim: note: the rows are approximate: each is the state of a Gibbs chain of its own, annealed and then "
        f"burnt in by {backend.burn_in} sweeps; compare with a longer --burn-in",
        err=True,
    )
    parts = [torch.empty((0, len(energy.domain)), dtype=torch.long)]
    with tqdm(total=number, unit="row", desc="gibbs", disable=not is_terminal(), leave=False) as bar:
        for start in range(0, number, _PORTION):
            parts.append(backend.sample(energy, (min(_PORTION, number - start),), generator))
            bar.update(len(parts[-1]))
    return torch.cat(parts)


def _rows(data: Observations) -> torch.Tensor:
    """Complete rows (n, d) that a search for modes starts from."""
    merged = data.drop_missing().unique()
    return chosen_rows(merged.codes, merged.counts)


def _gain(
    stored: ModelFile, energy: LogLinearEnergy, rows: Observations, log_z: float
) -> tuple[float | None, float | None]:
    """Gain over the independent columns of a model file and its standard error; None and None without them."""
    shares: dict[str, list[float]] | None = stored.info.get("independent")
    if shares is None:
        return None, None
    gain, error = gain_over_columns(energy, rows, log_z, shares)
    if num_impossible(stored, rows):
        return (None if gain in (None, math.inf) else -math.inf), None
    return gain, error


@click.command()
@MODEL
@DATA
@MISSING
@VOCAB
@LOG_Z_OPTIONS
@JSON
def score(
    model: Path,
    file: Path,
    missing: tuple[str, ...],
    vocab: Path | None,
    method: str,
    chains: int | None,
    temperatures: str | None,
    seed: int | None,
    as_json: bool,
) -> None:
    """Gain of MODEL over independent columns on the rows of FILE, and mean negative log-likelihood, in nats a row.

    Independent columns have the frequencies of the rows that MODEL was fitted to. Missing cells are summed over. Rows
    with a label that MODEL does not know are counted and left out. Where log Z is estimated, by the fit that wrote
    MODEL or by --method ais, both carry its error, which is the same for every row. --json has the KL divergence from
    the rows' empirical law too, of complete rows.

    Of a dependency network: the pseudo-likelihood, and the rest where its law can be enumerated (65,536 states). Of a
    generalized root model: the pseudo-likelihood, and the rest where log Z is exact, or estimated by --method ais.
    """
    if is_roots(model):
        from ..by_family.grm_use import score_with_roots

        if missing:
            raise conflict("--missing", "not for a generalized root model, whose rows must be complete")
        score_with_roots(model, file, vocab, method, chains, temperatures, seed, as_json)
        return
    check_no_vocab(vocab)
    if is_network(model):
        from ..by_family.network_use import score_with_network

        score_with_network(model, file, missing, method, chains, temperatures, seed, as_json)
        return
    stored = read_model(model)
    energy = energy_of(stored)
    data, unseen = read_known(energy.domain, file, missing)
    if not data.total_count > 0:
        raise unexpected(file, "at least one observation", received="counts that sum to zero", code="empty")
    log_z = log_z_of(stored, method, chains, temperatures, seed, _rows(data) if method == "ais" else None)
    values = score_rows(energy, data, log_z=float(log_z.value))
    impossible = num_impossible(stored, data)
    nll = math.inf if impossible else values.nll
    kl = math.inf if impossible and values.kl is not None else values.kl

    def of_part(part: Observations) -> dict[str, float | None]:
        found = score_rows(energy, part, log_z=float(log_z.value))
        own = math.inf if num_impossible(stored, part) else found.nll
        gained, its_error = _gain(stored, energy, part, float(log_z.value))
        return {"gain": gained, "gain_std_error": its_error, "nll": own, "pseudo_nll": found.pseudo_nll}

    gain, gain_error = _gain(stored, energy, data, float(log_z.value))

    parts = score_seen(stored.info, data, of_part)
    result = {
        "rows": whole(values.rows),
        "impossible_rows": whole(impossible),
        "gain": gain,
        "gain_std_error": gain_error,
        "nll": nll,
        "kl": kl,
        "nll_std_error": math.inf if impossible else values.nll_std_error,
        "log_z_std_error": float(log_z.std_error),
        "log_z_kind": log_z.kind,
        "log_z_method": log_z.method,
        "log_z_verdict": log_z.verdict,
        "log_z_notes": list(log_z.notes),
        "pseudo_nll": values.pseudo_nll,
        "parts": parts,
        **unseen.to_json(),
    }
    if as_json:
        echo_json(result)
        return
    if stored.info.get("independent"):
        click.echo(gain_sentence("file's", "model", gain, gain_error))
    else:
        click.echo("The gain over independent columns is not known: the model file does not hold their frequencies.")
    click.echo(f"rows                {values.rows:g}")
    for line in unseen.lines("with them the NLL would be infinite"):
        click.echo(line)
    if impossible:
        click.echo(f"impossible rows     {impossible:g} (a combination never seen when the model was fitted)")
    error = number_text(values.nll_std_error)
    click.echo(f"NLL per row         {number_text(nll)} nats (standard error over rows {error})")
    click.echo(f"pseudo-NLL per row  {number_text(values.pseudo_nll)} nats")
    for line in seen_lines(parts, *(["gain"] if stored.info.get("independent") else []), "nll"):
        click.echo(line)
    if log_z.kind != "exact":
        click.echo("\n".join(describe_log_z(log_z)))
