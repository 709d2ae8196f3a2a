"""Damages: bytes flipped, cut and spliced, JSON with other values at random places, archives with other members."""

import io
import json
import re
import struct
import zipfile

BYTES = [
    b"\0", b"\xff", b"\r", b"\n", b"\r\n", b'"', b",", b";", b"\t", b"\xef\xbb\xbf", b"\xff\xfe",
    b"=cmd|' /C calc'!A0", b"NaN", b"1e308", b"-1", b"\x1b[31m",
]  # fmt: skip
NUMBERS = [
    0, -1, 1, 2, 3, 255, 256, 2**15, 2**31 - 1, 2**31, 2**32, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**30,
    10**400,
]  # fmt: skip
FLOATS = [0.5, -0.5, 1e-320, 1e308, -1e308, 1.5e15]
TEXTS = [
    "", " ", "a", "0", "-1", "1e999", "nan", "inf", "\n", "\0", "\ud800", "é" * 9, "x" * 300, "../../etc/passwd",
    "\x1b[2J", "=1+1", "١٢", "{}", "a:b", "a*b",
]  # fmt: skip
WORDS = [None, True, False, [], {}, [[]], [None], {"": None}, float("nan"), float("inf"), -float("inf")]


def hostile(rng):
    """A value of JSON that a reader may not expect."""
    kind = rng.randrange(6)
    if kind == 5:
        return nested(rng.choice([2, 20, 300, 5000]))
    if kind == 4:
        return [rng.choice(NUMBERS) for _ in range(rng.choice([1, 2, 3, 100]))]
    return rng.choice((NUMBERS, FLOATS, TEXTS, WORDS)[kind])


def nested(depth):
    """What :func:`dumped` writes as lists in lists; Python itself cannot write very deep ones."""
    return f"@nested:{depth}"


def _places(value, path=()):
    """Every place of a JSON value, the outermost first."""
    found, front = [], [((), value)]
    while front and len(found) < 5000:
        path, held = front.pop()
        found.append(path)
        if isinstance(held, dict):
            front += [((*path, key), item) for key, item in held.items()]
        elif isinstance(held, list):
            front += [((*path, i), item) for i, item in enumerate(held[:50])]
    return found


def mutate_json(rng, value, times=None):
    """A copy with other values, fewer or more entries at random places; ``value`` is a dict."""
    value = json.loads(json.dumps(value))
    for _ in range(times or rng.choice([1, 1, 1, 2, 3])):
        path = rng.choice(_places(value))
        if not path:
            value[rng.choice([*value, "more"])] = hostile(rng)
            continue
        holder = value
        for step in path[:-1]:
            holder = holder[step]
        key, how = path[-1], rng.randrange(8)
        held = holder[key]
        if how == 0:
            del holder[key]
        elif how == 1 and isinstance(holder, list):
            holder.insert(key, hostile(rng))
        elif how == 2 and isinstance(holder, list):
            holder.append(held)
        elif how == 3 and isinstance(held, list) and held:
            held.reverse()
        elif how == 4 and isinstance(held, int | float) and not isinstance(held, bool):
            holder[key] = held + rng.choice([1, -1, 1000])
        elif how == 5 and isinstance(held, list):
            holder[key] = held * rng.choice([0, 2, 1000])
        else:
            holder[key] = hostile(rng)
    return value


def dumped(value):
    """JSON text of a hostile value, with NaN and infinities as Python writes them."""
    return re.sub(r'"@nested:(\d+)"', lambda found: "[" * int(found[1]) + "]" * int(found[1]), json.dumps(value))


def mutate_bytes(rng, data, times=None):
    """A copy with flipped, inserted, repeated, moved and missing bytes."""
    data = bytearray(data)
    for _ in range(times or rng.choice([1, 1, 1, 2, 4, 16])):
        if not data:
            return bytes(data)
        how, at = rng.randrange(9), rng.randrange(len(data))
        end = min(len(data), at + rng.choice([1, 1, 2, 4, 8, 64, 512]))
        if how <= 1:
            data[at] ^= 1 << rng.randrange(8)
        elif how == 2:
            data[at] = rng.randrange(256)
        elif how == 3:
            data[at:at] = rng.choice(BYTES)
        elif how == 4:
            del data[at:end]
        elif how == 5:
            data[at:at] = data[at:end] * rng.choice([1, 2, 50])
        elif how == 6:
            other = rng.randrange(len(data))
            data[at:end] = data[other : other + end - at]
        elif how == 7:
            kind, number = rng.choice([("<I", 2**32), ("<Q", 2**64), (">I", 2**32), ("<H", 2**16)])
            data[at : at + struct.calcsize(kind)] = struct.pack(kind, rng.choice(NUMBERS) % number)
        else:
            del data[at:]
    return bytes(data)


def mutate_zip(rng, data):
    """An archive whose members are other ones, with right checksums; or the bytes of the archive changed."""
    if rng.random() < 0.3:
        return mutate_bytes(rng, data)
    with zipfile.ZipFile(io.BytesIO(data)) as held:
        members = {name: held.read(name) for name in held.namelist()}
    name = rng.choice(list(members))
    how = rng.randrange(5)
    if how == 0:
        del members[name]
    elif how == 1:
        members[rng.choice([*members, "x", "a/../b"])] = members[name]
    else:
        members[name] = mutate_bytes(rng, members[name])
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as held:
        for key, content in members.items():
            held.writestr(key, content)
    return out.getvalue()


def zeros(number, opener):
    """A packed file of so many zero bytes, in as many parts as it has 16 MiB."""
    out = io.BytesIO()
    with opener(out, "wb") as held:
        held.write(bytes(2**24))
    return out.getvalue() * (number >> 24)
