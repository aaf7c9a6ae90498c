"""robustbench-dec: adversarial robustness of models that were trained without a server."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["benchmark", "compare", "list_models", "load_model"]

if TYPE_CHECKING:
    from robustbench_dec.api import benchmark, compare
    from robustbench_dec.store.zoo import list_models, load_model

_HOMES = {"benchmark": "api", "compare": "api", "list_models": "store.zoo", "load_model": "store.zoo"}


def __getattr__(name: str) -> Any:
    """The four functions of the Python interface, imported when they are asked for: torch takes seconds."""
    if name not in _HOMES:
        raise AttributeError(f"module 'robustbench_dec' has no attribute '{name}'")
    import importlib

    return getattr(importlib.import_module(f"robustbench_dec.{_HOMES[name]}"), name)
