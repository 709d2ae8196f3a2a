"""Readers that the harness must find out: the second of two cases makes each of them fail in its own way."""

import os
import time

from harness import Reader

from pyro_hoim.errors import refused


def _raise():
    return {}["x"]


def _allocate():
    return bytearray(2**32)


def _allocate_and_refuse():
    try:
        _allocate()
    except MemoryError:
        raise refused("case", "damaged") from None


def _loop():
    while True:
        pass


def _err():
    assert 2 + 2 == 5, "2 + 2"


def _tell():
    raise refused("case", "two\nlines")


def _refuse():
    raise refused("case", "damaged")


READERS = [
    Reader(name, lambda case, folder, act=act: act() if case else None, [False, True])
    for name, act in {
        "raises": _raise,
        "allocates": _allocate,
        "allocates and refuses": _allocate_and_refuse,
        "loops": _loop,
        "sleeps": lambda: time.sleep(600),
        "ends": lambda: os._exit(3),
        "is wrong": _err,
        "tells much": _tell,
        "refuses": _refuse,
    }.items()
]
