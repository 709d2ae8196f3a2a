"""Refuse connections beyond this machine, in this process and, through the environment, in every Python started by it.

The folder of this file is put on ``PYTHONPATH``, where a starting interpreter finds ``sitecustomize`` and installs the
same audit hook; a hook cannot be removed. A Python process that would start without it is refused as well.
"""

import ipaddress
import os
import socket
import sys
from pathlib import Path

FOLDER = str(Path(__file__).resolve().parent)

_INTERNET = (socket.AF_INET, socket.AF_INET6)
_LOCAL = tuple(getattr(socket, name) for name in ("AF_UNIX",) if hasattr(socket, name))
_WITHOUT_SITE = ("-I", "-E", "-S")  # the options of the interpreter under which it reads no PYTHONPATH or no site


class OutsideConnectionError(PermissionError):
    """A connection beyond this machine, or a Python process that could open one."""


def install():
    """Put the hook into this process and its folder on the path of child processes; a second call does nothing."""
    add_to_path(os.environ)
    if not getattr(sys, "_offline_tests", False):
        sys._offline_tests = True  # outlives a second import under another name
        sys.addaudithook(_audit)


def add_to_path(environment):
    """Put the folder first on ``PYTHONPATH``."""
    if not _is_guarded(environment):
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [FOLDER, environment.get("PYTHONPATH")]))


def _is_guarded(environment):
    return FOLDER in environment.get("PYTHONPATH", "").split(os.pathsep)


def _check_address(place, address):
    if place.family in _LOCAL or address is None:
        return
    if place.family not in _INTERNET or not _is_local(address[0]):
        raise OutsideConnectionError(f"tests connect to this machine only, received {address!r}")


def _check_host(host, *others):
    if not _is_local(host):
        raise OutsideConnectionError(f"tests look up this machine only, received {host!r}")


def _is_local(host):
    """Loopback addresses, their name, and the wildcard that a server listens on."""
    name = bytes(host).decode() if isinstance(host, bytes | bytearray) else host
    if name in (None, "", "localhost"):
        return True
    try:
        found = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return found.is_loopback or found.is_unspecified


def _check_process(executable, command, environment):
    first, *options = [command] if isinstance(command, str | bytes | os.PathLike) else list(command)
    if not any("python" in os.path.basename(os.fsdecode(name)) for name in (executable or first, first)):
        return
    given = os.environ if environment is None else environment
    found = {os.fsdecode(key): os.fsdecode(value) for key, value in given.items()}
    if not _is_guarded(found) or any(os.fsdecode(option) in _WITHOUT_SITE for option in options):
        raise OutsideConnectionError(
            f"a Python process of a test needs {FOLDER} on PYTHONPATH and none of the options {_WITHOUT_SITE}"
        )


_CHECKS = {
    **dict.fromkeys(["socket.connect", "socket.sendto", "socket.sendmsg"], _check_address),
    **dict.fromkeys(["socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"], _check_host),
    **dict.fromkeys(["os.posix_spawn", "os.exec"], _check_process),
    "subprocess.Popen": lambda executable, command, folder, environment: _check_process(
        executable, command, environment
    ),
}


def _audit(event, arguments, checks=_CHECKS):
    """Called at every event, of which imports have many; the names of a module are None while its process ends."""
    if event in checks:
        checks[event](*arguments)
