"""Gibbs sampling by thrml, its chains sharded over the CPU cores; run by ../bench_gibbs.py in thrml's environment.

    python gibbs_thrml.py MODELS.npz REPEATS DEVICES CHAINS...

Prints one JSON line per measurement. Binary models of pure products run as spins in colour classes; others both with
padded square tables in colour classes and with tables of their own shapes, one variable a block. Only the last state
is kept and nothing is clamped.
"""

import json
import sys
import time
from importlib.metadata import version

import jax
import jax.numpy as jnp
import numpy as np

devices = int(sys.argv[3])
jax.config.update("jax_num_cpu_devices", devices)
jax.config.update("jax_enable_compilation_cache", False)

from thrml import Block, BlockGibbsSpec, CategoricalNode, SamplingSchedule, SpinNode, sample_states  # noqa: E402
from thrml.factor import FactorSamplingProgram  # noqa: E402
from thrml.models import (  # noqa: E402
    CategoricalEBMFactor,
    CategoricalGibbsConditional,
    SpinEBMFactor,
    SpinGibbsConditional,
    SquareCategoricalEBMFactor,
)


def classes(num_variables, scopes):
    """Variables by colour, largest degree first."""
    near = [set() for _ in range(num_variables)]
    for scope in scopes:
        for v in scope:
            near[v].update(u for u in scope if u != v)
    colour = {}
    for v in sorted(range(num_variables), key=lambda v: -len(near[v])):
        taken = {colour[u] for u in near[v] if u in colour}
        colour[v] = next(c for c in range(num_variables) if c not in taken)
    return [[v for v in colour if colour[v] == c] for c in range(max(colour.values()) + 1)]


def spin_program(cards, scopes, weights):
    nodes = [SpinNode() for _ in cards]
    groups = classes(len(cards), scopes)
    factors = []
    for size in sorted({len(s) for s in scopes}):
        chosen = [i for i, s in enumerate(scopes) if len(s) == size]
        blocks = [Block([nodes[scopes[i][k]] for i in chosen]) for k in range(size)]
        factors.append(SpinEBMFactor(blocks, jnp.array(weights[chosen], jnp.float32)))
    blocks = [Block([nodes[v] for v in group]) for group in groups]
    spec = BlockGibbsSpec(blocks, [], {SpinNode: jax.ShapeDtypeStruct((), jnp.bool_)})
    program = FactorSamplingProgram(spec, [SpinGibbsConditional() for _ in groups], factors, [])
    return program, nodes, groups, jnp.bool_


def table_program(cards, scopes, tables, *, is_padded):
    nodes = [CategoricalNode() for _ in cards]
    if is_padded:
        levels = max(cards)
        groups = classes(len(cards), scopes)
        factors = []
        for size in sorted({len(s) for s in scopes}):
            chosen = [i for i, s in enumerate(scopes) if len(s) == size]
            padded = np.zeros((len(chosen),) + (levels,) * size, np.float32)
            for row, i in enumerate(chosen):
                padded[(row, *(slice(0, n) for n in tables[i].shape))] = tables[i]
                if size == 1:
                    padded[row, cards[scopes[i][0]] :] = -1e9
            blocks = [Block([nodes[scopes[i][k]] for i in chosen]) for k in range(size)]
            factors.append(SquareCategoricalEBMFactor(blocks, jnp.array(padded)))
        samplers = [CategoricalGibbsConditional(levels) for _ in groups]
    else:
        groups = [[v] for v in range(len(cards))]
        factors = [
            CategoricalEBMFactor([Block([nodes[v]]) for v in s], jnp.array(t)[None])
            for s, t in zip(scopes, tables, strict=True)
        ]
        samplers = [CategoricalGibbsConditional(cards[v]) for v in range(len(cards))]
    spec = BlockGibbsSpec(
        [Block([nodes[v] for v in group]) for group in groups],
        [],
        {CategoricalNode: jax.ShapeDtypeStruct((), jnp.uint8)},
    )
    return FactorSamplingProgram(spec, samplers, factors, []), nodes, groups, jnp.uint8


def run(name, label, built, num_sweeps, num_chains, repeats):
    program, nodes, groups, kind = built
    observed = [Block(nodes)]

    def one(key, state):
        return sample_states(key, program, SamplingSchedule(num_sweeps, 1, 1), state, [], observed)

    step = jax.jit(lambda keys, state: jax.vmap(one)(keys, state))
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:devices]), ("chain",))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("chain"))
    keys = [jax.device_put(jax.random.split(jax.random.key(i), num_chains), split) for i in range(repeats + 1)]
    state = [jax.device_put(jnp.zeros((num_chains, len(group)), kind), split) for group in groups]
    start = time.perf_counter()
    jax.block_until_ready(step(keys[0], state))
    first = time.perf_counter() - start
    times = []
    for key in keys[1:]:
        start = time.perf_counter()
        out = jax.block_until_ready(step(key, state))
        times.append(time.perf_counter() - start)
    updates = len(nodes) * num_sweeps * num_chains
    result = {
        "model": name,
        "peer": f"thrml {version('thrml')}, jax {version('jax')}, {label}",
        "chains": num_chains,
        "first_call": first,
        "rate": updates / float(np.median(times)),
        "means": np.asarray(out[0], dtype=float)[:, 0].mean(0).tolist(),
    }
    print(json.dumps(result), flush=True)


stored = np.load(sys.argv[1], allow_pickle=False)
for name in json.loads(str(stored["names"])):
    cards = [int(n) for n in stored[f"{name}/cards"]]
    scopes = [tuple(s) for s in json.loads(str(stored[f"{name}/scopes"]))]
    sweeps = int(stored[f"{name}/sweeps"])
    if f"{name}/weights" in stored:
        programs = {"spins, colour classes": spin_program(cards, scopes, stored[f"{name}/weights"])}
    else:
        tables = [stored[f"{name}/{i}"] for i in range(len(scopes))]
        programs = {
            "own shapes": table_program(cards, scopes, tables, is_padded=False),
            "padded, colour classes": table_program(cards, scopes, tables, is_padded=True),
        }
    for num_chains in map(int, sys.argv[4:]):
        for label, built in programs.items():
            run(name, label, built, sweeps, num_chains, int(sys.argv[2]))
