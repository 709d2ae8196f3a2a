from .engine import Engine as Engine, Record as Record
