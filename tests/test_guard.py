"""The guard of the test run itself: connections, public data and seeds, in this process and in its children."""

import inspect
import os
import socket
import subprocess
import sys
import textwrap

import numpy as np
import offline
import pyro
import pytest
import seed_shift
import torch

from pyro_hoim import InputError
from pyro_hoim.datasets import load_mushroom

OUTSIDE = ("192.0.2.1", 9)  # TEST-NET-1 (RFC 5737): nobody's address

ATTEMPTS = {
    "connect": "with socket.socket() as s: s.connect(outside)",
    "connect_ex": "with socket.socket() as s: s.connect_ex(outside)",
    "datagram": "with socket.socket(type=socket.SOCK_DGRAM) as s: s.sendto(b'x', outside)",
    "message": "with socket.socket(type=socket.SOCK_DGRAM) as s: s.sendmsg([b'x'], [], 0, outside)",
    "version 6": "with socket.socket(socket.AF_INET6) as s: s.connect(('2001:db8::1', 9))",
    "name": "socket.getaddrinfo('example.invalid', 80)",
    "old name": "socket.gethostbyname('example.invalid')",
    "address": "socket.gethostbyaddr('192.0.2.1')",
}


def run(code, *, options=(), **environment):
    return subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False,
        env={**os.environ, **environment}, timeout=120,
    )  # fmt: skip


@pytest.mark.parametrize("how", ATTEMPTS)
def test_a_connection_beyond_this_machine_is_refused(how):
    with pytest.raises(offline.OutsideConnectionError, match="this machine only"):
        exec(ATTEMPTS[how], {"socket": socket, "outside": OUTSIDE})


def test_child_processes_and_their_children_are_refused():
    attempts = "\n".join(
        f"try:\n {code}\nexcept PermissionError as error: refused.append(type(error).__name__)"
        for code in ATTEMPTS.values()
    )
    child = f"import socket\noutside, refused = {OUTSIDE}, []\n{attempts}\nprint(refused)"
    expected = f"{['OutsideConnectionError'] * len(ATTEMPTS)}\n"
    grandchild = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    spawned = f"import multiprocessing; multiprocessing.get_context('spawn').Process(target=exec, args=({child!r},))"
    for code in (child, grandchild, f"if __name__ == '__main__':\n    p = {spawned[24:]}; p.start(); p.join()"):
        done = run(f"import multiprocessing\n{code}" if "multiprocessing" in code else code)
        assert done.stdout == expected, done.stderr


def test_a_child_without_the_guard_does_not_start():
    for options, environment in [((), {"PYTHONPATH": ""}), (("-I",), {}), (("-E",), {}), (("-S",), {})]:
        with pytest.raises(offline.OutsideConnectionError, match="on PYTHONPATH"):
            run("print(1)", options=options, **environment)


def test_this_machine_is_reached():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for host in ("127.0.0.1", "localhost"):
            socket.create_connection((host, port)).close()
        done = run(f"import socket; socket.create_connection(('localhost', {port})).close(); print('reached')")
        assert done.stdout == "reached\n", done.stderr
    one, other = socket.socketpair()
    one.close(), other.close()


def test_public_data_is_seen_by_tests_that_ask_for_it_alone(request):
    with pytest.raises(InputError, match="PYRO_HOIM_DATA"):
        load_mushroom()
    request.getfixturevalue("shared_data")  # asked for too late: the test is not marked
    with pytest.raises(InputError, match="PYRO_HOIM_DATA"):
        load_mushroom()


@pytest.mark.usefixtures("shared_data")
def test_public_data_is_seen_by_tests_that_ask_for_it():
    assert load_mushroom().num_rows == 8124


# Seeds


def draws(seed):
    """One number of every kind of generator that the library and its tests seed."""
    from pyro_hoim.compute import lanes

    torch.manual_seed(seed)
    first = torch.rand(()).item()
    pyro.set_rng_seed(seed)
    return [
        first, torch.rand(()).item(), float(np.random.rand()),  # noqa: NPY002
        torch.rand((), generator=torch.Generator().manual_seed(seed)).item(),
        float(np.random.default_rng(seed).random()),
        float(np.random.Generator(np.random.Philox(key=seed)).random()),
        lanes.lane_seeds(seed, 1, 1, 16)[0, 0, 0].item(),
    ]  # fmt: skip


def test_a_shift_moves_every_generator_in_every_process():
    code = f"import numpy as np, pyro, torch\n{inspect.getsource(draws)}\nprint(draws(3))"
    done = run(code, **{seed_shift.VARIABLE: "2"})
    with seed_shift.unshifted(), torch.random.fork_rng():
        assert done.stdout == f"{draws(3 + 2 * seed_shift.STRIDE)}\n", done.stderr
        assert all(a != b for a, b in zip(draws(3), eval(done.stdout), strict=True))
    assert seed_shift.moved([3, 1]) == [3, 1] if not seed_shift.shift() else [3, 1, seed_shift.shift()]
    assert seed_shift.moved(None) is None


def test_a_generator_that_was_copied_is_a_generator():
    assert isinstance(torch.default_generator, torch.Generator)
    assert isinstance(torch.Generator().manual_seed(3).clone_state(), torch.Generator)
