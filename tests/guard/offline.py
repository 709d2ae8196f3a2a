"""Refuse connections beyond this machine, in this process and, through the environment, in every Python started by it.

The folder of this file is put on ``PYTHONPATH``, where a starting interpreter finds ``sitecustomize`` and installs the
same audit hook; a hook cannot be removed. A Python process that would start without it is refused as well.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

FOLDER = str(Path(__file__).resolve().parent)

_INTERNET = (socket.AF_INET, socket.AF_INET6)
_LOCAL = tuple(getattr(socket, name) for name in ("AF_UNIX",) if hasattr(socket, name))
_ADDRESS = {"socket.connect": 1, "socket.sendto": 1, "socket.sendmsg": 1}
_HOST = {"socket.getaddrinfo": 0, "socket.gethostbyname": 0, "socket.gethostbyaddr": 0}
_PROCESS = {"subprocess.Popen": (0, 1, 3), "os.posix_spawn": (0, 1, 2), "os.exec": (0, 1, 2)}
_WITHOUT_SITE = ("-I", "-E", "-S")  # the options of the interpreter under which it reads no PYTHONPATH or no site


class OutsideConnectionError(PermissionError):
    """A connection beyond this machine, or a Python process that could open one."""


def install() -> None:
    """Put the hook into this process and its folder on the path of child processes; a second call does nothing."""
    add_to_path(os.environ)
    if not getattr(sys, "_offline_tests", False):
        sys._offline_tests = True  # type: ignore[attr-defined]  # outlives a second import under another name
        sys.addaudithook(_audit)


def add_to_path(environment: MutableMapping[str, str]) -> None:
    """Put the folder first on ``PYTHONPATH``."""
    if not _is_guarded(environment):
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [FOLDER, environment.get("PYTHONPATH")]))


def _is_guarded(environment: Mapping[str, str]) -> bool:
    return FOLDER in environment.get("PYTHONPATH", "").split(os.pathsep)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _ADDRESS:
        place, address = arguments[0], arguments[_ADDRESS[event]]
        if place.family in _LOCAL or address is None:
            return
        if place.family not in _INTERNET or not _is_local(address[0]):
            raise OutsideConnectionError(f"tests connect to this machine only, received {address!r}")
    elif event in _HOST:
        if not _is_local(arguments[_HOST[event]]):
            raise OutsideConnectionError(f"tests look up this machine only, received {arguments!r}")
    elif event in _PROCESS:
        executable, command, environment = (arguments[i] for i in _PROCESS[event])
        _check_process(executable, command, os.environ if environment is None else environment)


def _is_local(host: str | bytes | bytearray | None) -> bool:
    """Loopback addresses, their name, and the wildcard that a server listens on."""
    name = bytes(host).decode() if isinstance(host, bytes | bytearray) else host
    if name in (None, "", "localhost"):
        return True
    try:
        found = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return found.is_loopback or found.is_unspecified


def _check_process(executable: Any, command: Any, environment: Mapping[Any, Any]) -> None:
    first, *options = [command] if isinstance(command, str | bytes | os.PathLike) else list(command)
    if not any("python" in os.path.basename(os.fsdecode(name)) for name in (executable or first, first)):
        return
    found = {os.fsdecode(key): os.fsdecode(value) for key, value in environment.items()}
    if not _is_guarded(found) or any(os.fsdecode(option) in _WITHOUT_SITE for option in options):
        raise OutsideConnectionError(
            f"a Python process of a test needs {FOLDER} on PYTHONPATH and none of the options {_WITHOUT_SITE}"
        )
