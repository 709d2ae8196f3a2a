"""Gibbs chains and annealed importance sampling of the PyTorch engine on a device.

Models: A1, A2 and A3 of ``bench_gibbs.py``. Chains move by colour classes. Rates are updates of variables per second,
all chains counted: bare, recording counts and energies after every sweep, without CUDA graphs, with the step compiled
by ``torch.compile`` (``--compile``; its first call, which compiles, is not counted), and by the compiled engine of the
CPU. Log Z is estimated through ``--temperatures`` temperatures, checks left out. ``--iterations N`` trains all pairs of
mushroom (public data) with as many chains, checks left out. ``--peer`` adds thrml, in the
environment that PYRO_HOIM_PEER_THRML names: with ``jax[cuda12]`` there it runs on the same GPU.
The device is CUDA where there is one, else the CPU; ask for fewer chains and sweeps there:

    python tests/benchmarks/bench_gpu.py [--append] device [--device cuda] [--models A1 A2 A3]
        [--chains 4096 65536] [--sweeps 100] [--temperatures 200] [--iterations 1000] [--compile] [--peer]
"""

import tempfile
import time
from argparse import Namespace

import torch
from bench_gibbs import workload, write_workloads
from harness import CORES, Report, as_energy, main, median, part, run_peer

from pyro_hoim.datasets import load_mushroom
from pyro_hoim.log_linear import AnnealedImportance, GibbsChains, SampledTrainer, SampledTraining
from pyro_hoim.runs import GibbsSchedule
from pyro_hoim.structure import InteractionHypergraph


def energy_of(name, device):
    cards, scopes, tables, _, _ = workload(name)
    return as_energy((cards, list(zip(scopes, tables, strict=True)))).to(device=device)


def finished(device):
    """Wait for the device."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()


def gibbs_rate(energy, num_chains, sweeps, *, engine="torch", records=False, graphs=True, is_compiled=False):
    """Updates per second, most memory on CUDA in GiB and the means of all variables."""
    chains = GibbsChains(energy, num_chains, engine=engine, schedule=GibbsSchedule("colours"))
    device = energy.tables.device
    if engine == "torch":
        moving = chains._engine
        moving._graphs.is_on = graphs and device.type == "cuda"
        if is_compiled:
            moving._draw_chains = torch.compile(moving._draw_chains, dynamic=True)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()

    def call():
        chains.sweep(sweeps, thin=int(records), counts=records, energies=records)
        finished(device)

    chains.sweep(3)
    seconds, _ = median(call, 5, 1)
    peak = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else 0.0
    return len(energy.domain) * sweeps * num_chains / seconds, peak, chains.states.double().mean(0).cpu()


def measure_gibbs(report, name, num_chains, options):
    energy = energy_of(name, options.device)
    what = f"{name}, {num_chains} chains: per million updates"
    ways = {"bare": {}, "counts and energies after every sweep": {"records": True}}
    if energy.tables.device.type == "cuda":
        ways["bare, without graphs"] = {"graphs": False}
    if options.compile:
        ways["bare, compiled"] = {"is_compiled": True}
    host, _, wanted = gibbs_rate(energy_of(name, "cpu"), num_chains, options.sweeps, engine="auto")
    for how, settings in ways.items():
        rate, peak, means = gibbs_rate(energy, num_chains, options.sweeps, **settings)
        apart = float((means - wanted).abs().max())
        note = f"{rate / 1e6:.4g} million updates/s; {peak:.2g} GiB; means differ by up to {apart:.3f} from the CPU's"
        report.add(what, f"PyTorch on {options.device}, {how}", 1e6 / rate, rate / host, note)
    report.add(what, f"compiled for the CPU, {CORES} cores", 1e6 / host, note=f"{host / 1e6:.4g} million updates/s")


def measure_annealing(report, name, num_chains, options):
    found = {}
    for device, engine in ((options.device, "torch"), ("cpu", "auto")):
        energy = energy_of(name, device)
        backend = AnnealedImportance(
            num_chains=num_chains,
            num_temperatures=options.temperatures,
            reverse=False,
            seed=1,
            engine=engine,
            schedule=GibbsSchedule("colours"),
        )

        def call(backend=backend, energy=energy, found=found, engine=engine):
            found[engine] = backend.log_partition(energy)
            finished(energy.tables.device)

        found[engine + " seconds"] = median(call, 3, 1)[0]
    here, there = found["auto"], found["torch"]
    ratio = found["auto seconds"] / found["torch seconds"]
    note = f"log Z {float(there.value):.4f} ± {float(there.std_error):.4f}"
    what = f"{name}, {num_chains} chains: log Z through {options.temperatures} temperatures"
    report.add(what, f"PyTorch on {options.device}", found["torch seconds"], ratio, note)
    note = f"log Z {float(here.value):.4f} ± {float(here.std_error):.4f}"
    report.add(what, f"compiled for the CPU, {CORES} cores", found["auto seconds"], note=note)


def measure_training(report, num_chains, options):
    rows = load_mushroom()
    graph = InteractionHypergraph.from_order(rows.domain, 2)
    seconds = {}
    for device in dict.fromkeys([options.device, "cpu"]):
        settings = SampledTraining(
            num_chains=num_chains, num_iterations=options.iterations, refresh_every=None, device=device
        )
        trainer = SampledTrainer(rows, graph, settings=settings)
        start = time.perf_counter()
        trainer.train()
        seconds[device] = time.perf_counter() - start
    for device, found in seconds.items():
        what = f"mushroom, all pairs, {num_chains} chains, {options.iterations} steps"
        report.add(what, f"training on {device}", found, seconds["cpu"] / found)


def measure_peer(report, options):
    with tempfile.TemporaryDirectory() as folder:
        path = write_workloads(folder, options.models)
        for row in run_peer("gibbs_thrml", path, 5, 1, *options.chains):
            what = f"{row['model']}, {row['chains']} chains: per million updates"
            report.add(what, row["peer"], 1e6 / row["rate"], note=f"{row['rate'] / 1e6:.4g} million updates/s")


@part("Chains on a device")
def device(
    device=None,
    models=("A1", "A2", "A3"),
    chains=(4096, 65536),
    sweeps=100,
    temperatures=200,
    iterations=0,
    compile=False,  # noqa: A002
    peer=False,
):
    """The ratio is the time of the CPU's compiled engine over that of the line."""
    options = Namespace(**locals())
    options.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_num_threads(CORES)
    report = Report()
    for num_chains in chains:
        for name in models:
            measure_gibbs(report, name, num_chains, options)
            measure_annealing(report, name, num_chains, options)
        if iterations:
            measure_training(report, num_chains, options)
    if peer:
        measure_peer(report, options)
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    return [name, "", *report.lines()]


if __name__ == "__main__":
    main(__doc__)
