"""Problems of the inference competitions of UAI: log Z, the most probable state, and annealed estimates.

python tests/benchmarks/bench_uai.py [--append] [PART] [OPTIONS]

A folder holds files NAME.uai, with NAME.uai.evid and published results NAME.uai.PR and NAME.uai.MAP if any.
"""

import math
import multiprocessing
import os
import resource
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import torch
from harness import main, markdown, part

from pyro_hoim import AnnealedImportance, ConvergenceWarning, HoimError, read_uai
from pyro_hoim.datasets import FileInfo
from pyro_hoim.datasets.files import LOCAL_FOLDER, download
from pyro_hoim.interop import read_uai_evidence, read_uai_result
from pyro_hoim.log_linear import VariableElimination

_COMMIT = "22005844423f5bca62798548df808cc418fc0d7d"
_ADDRESS = f"https://raw.githubusercontent.com/mroavi/uai/{_COMMIT}/uai2014/MAP/"
_NONE = "5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9"  # evidence of no variable
_SHA256 = {
    "Grids_23.uai": "76d0379a5d008c7db51e5e3df6ea19ae2f7e4fb925974c26528a2e93ed76ae7f",
    "Grids_23.uai.MAP": "a591a301c4a5c5b1596049bf7d652afdda7cb02cb92ed3b6e81b5b6f80e46a37",
    "Grids_26.uai": "d5ed040b1ac0a27a32fe1759f5ebe152158ae1014952f176d90c3e7abd300c3f",
    "Grids_26.uai.MAP": "c8720dd0662fb0b0abeca064ad6f959258f238302566e8561f785bc00fc8d8a2",
    "Grids_30.uai": "fa38888996f5fb57d70c5dcced207c54a80cbe9cc60271737173e2b8c06fe25f",
    "Grids_30.uai.MAP": "32c074e48c2bbc712e24ef7f307b73096c39685b9eb5e6fdf99acb65f6e0dbf5",
    "ObjectDetection_11.uai": "e9c0e5e14a0f00209573ef427c50f26855de1b9b22af56a35660e85d404d6e5d",
    "ObjectDetection_11.uai.MAP": "1f1e67a79ec2bdd859619890125589efcb6f282efc77d0fd1ff159b78851a06a",
    "Promedas_55.uai": "bb5423e5210a3d13f64fb78d3179a97424fa4d373b8dcc6dd08c32267308c387",
    "Promedas_55.uai.MAP": "b7e6f0bf135e138eaca26785d18025d5b352b5a0a2e9dafa90f59c0c96e4364e",
    "Promedas_55.uai.evid": "279388fd48e41f573f24e41ebfedfb0a000e3a0ddfdbd2098f8c213a6f304e54",
}
_MORE = {
    "Grids_18.uai": "3ac4f32aaa9e086c64b0839a2ec6498643c8db4668c5aff3dbe4132cefa2a029",
    "Grids_19.uai": "539a51e1e668ddf17752560a9f2c507152a0fe8dd104a4997c82b690ff7fb13f",
    "Grids_20.uai": "62ef09aa1ef4f5c33fbf9055e9f38d281d01e0709d0eaf3ef1ff6a99f7a1b0e7",
    "Grids_21.uai": "f074a907fde9b4d6b97184b969a05faa4a1f7ecdbface8bc24e93a06b521ccc3",
    "Grids_22.uai": "639919debcdd7cc30c953149aae7f4cdd64a9fe42ceb1cec9e73dafd56201589",
    "Grids_24.uai": "e889bc5a3b17002db6537ecdeb88a124b0f5a2540b40efc79c64233a88805870",
    "Grids_25.uai": "bf4325b95afe74499bdd96d233be5e0ded746a0793a8cc6cab62778777f22a79",
    "Grids_27.uai": "adb9ede9f002f9f077d6d778eacb29f472e011e3f7396482e372e56958ded7ef",
    "Grids_28.uai": "0276aaa3c86d9859205862a626a4c75e6f77bd238808effc4d1a3fbdb03942bd",
    "Grids_29.uai": "fd06a06201dab3a31c6efe231c10e58947c9a5e9e38034d70554745167c6a69d",
}
HEAD = ("problem", "variables", "zeros", "log Z", "most probable state", "published", "annealed", "seconds", "MiB")


def fetched():
    """The folder of the five problems, downloaded unless they are there; their checksums are verified."""
    local = os.environ.get(LOCAL_FOLDER)
    if local and (Path(local) / "uai").is_dir():
        return Path(local) / "uai"
    evidence = {f"{name}.evid": _NONE for name in _SHA256 if name.endswith(".uai")}
    paths = [
        download(FileInfo("uai2014", _ADDRESS + name, "not stated", "UAI 2014", 0, "", sha256), name, 60.0)
        for name, sha256 in (evidence | _SHA256).items()
    ]
    return paths[0].parent


def grid(number):
    """One of the grids 18 to 30 of the competition, as a file, downloaded unless it is there."""
    name, local = f"Grids_{number}.uai", os.environ.get(LOCAL_FOLDER)
    if local and (Path(local) / "uai" / name).is_file():
        return Path(local) / "uai" / name
    sha256 = (_SHA256 | _MORE)[name]
    return download(FileInfo("uai2014", _ADDRESS + name, "not stated", "UAI 2014", 0, "", sha256), name, 60.0)


def brief(error):
    """The reason of a refusal, without what to do."""
    text = str(error).split(";")[0].split(" and 1024")[0]
    return text.removeprefix("elimination ").removeprefix("model: ").split(", the budget")[0]


def timed(call):
    """A result, or the refusal in its place, and seconds."""
    start = time.perf_counter()
    try:
        result = call()
    except HoimError as error:
        result = error
    return result, time.perf_counter() - start


def published_of(path, model, domain):
    """Published values: log Z, and the sum of the tables at the state."""
    found = []
    for task, file in (("log Z", Path(f"{path}.PR")), ("state", Path(f"{path}.MAP"))):
        if file.is_file():
            result = read_uai_result(file, domain)
            value = result.log_partition if result.state is None else float(-model.energy(torch.tensor(result.state)))
            found.append(f"{task} {value:.4f}")
    return ", ".join(found)


def measured(path, annealed, bits):
    """Cells of a row about one problem; run in a process of its own, whose memory is told."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ConvergenceWarning)
    exact = VariableElimination(max_cells=2**bits, max_slices=64, max_operations=2 ** (bits + 7))
    model, reading = timed(lambda: read_uai(path))
    if isinstance(model, HoimError):
        return [path.stem, brief(model), *[""] * 7]
    file = Path(f"{path}.evid")
    evidence = read_uai_evidence(file, model.domain) if file.is_file() else {}
    rest, constant = model.condition(evidence)
    log_z, summing = timed(lambda: float(exact.log_partition(rest).value + constant))
    best, searching = timed(lambda: float(exact.mode(rest)[1] + constant))
    estimate, drawing = ("", 0.0)
    if annealed:
        estimate, drawing = timed(lambda: AnnealedImportance(seed=1).log_partition(rest))
    if annealed and not isinstance(estimate, HoimError):
        error = "" if math.isinf(float(estimate.std_error)) else f" ± {float(estimate.std_error):.2g}"
        estimate = f"{float(estimate.value + constant):.2f}{error}, {estimate.verdict}"
    shown = [brief(v) if isinstance(v, HoimError) else v if isinstance(v, str) else f"{v:.4f}" for v in (log_z, best)]
    times = f"{reading:.2f}; {summing:.1f}; {searching:.1f}" + (f"; {drawing:.0f}" if annealed else "")
    return [
        path.stem,
        f"{len(rest.domain)} of {len(model.domain)}",
        f"{float(torch.isneginf(model.tables).double().mean()):.0%}",
        shown[0],
        shown[1] if not isinstance(best, HoimError) else "as log Z",
        published_of(path, model, model.domain),
        brief(estimate) if isinstance(estimate, HoimError) else estimate,
        times,
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f}",
    ]


@part("Problems of the UAI competition of 2014")
def problems(folder=None, pattern="*.uai", exact_only=False, bits=27):
    """Log Z and the most probable state, exact within 2^bits cells, and annealed estimates, in nats."""
    place = fetched() if folder is None else Path(folder)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as pool:
        rows = list(pool.map(partial(measured, annealed=not exact_only, bits=bits), sorted(place.glob(pattern))))
    words = "Seconds are those of reading; exact log Z; the most probable state; the annealed estimate. Variables are "
    return [words + "those that evidence leaves.", "", *markdown(HEAD, rows)]


if __name__ == "__main__":
    main(__doc__)
