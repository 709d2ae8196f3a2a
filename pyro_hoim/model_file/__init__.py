"""Model files: one ``.safetensors`` file for one model, whatever its kind; reading never executes code from it."""

from .container import FORMAT_VERSION, add_info
from .generalized_root import RootFile, load_roots, save_roots
from .log_linear import ModelFile, load_model, model_kind, save_model
from .network import NetworkFile, load_network, save_network

__all__ = [
    "FORMAT_VERSION",
    "ModelFile",
    "NetworkFile",
    "RootFile",
    "add_info",
    "load_model",
    "load_network",
    "load_roots",
    "model_kind",
    "save_model",
    "save_network",
    "save_roots",
]
