"""The version of the library, at the bottom of all imports."""

__version__ = "0.1.0"
