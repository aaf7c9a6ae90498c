"""robustbench-dec: adversarial robustness of models that were trained without a server."""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["attack", "benchmark", "compare", "list_models", "load_model", "train"]

if TYPE_CHECKING:
    from robustbench_dec.api import benchmark, compare
    from robustbench_dec.runs import attack, train
    from robustbench_dec.store.zoo import list_models, load_model

_HOMES = {
    "attack": "runs",
    "benchmark": "api",
    "compare": "api",
    "list_models": "store.zoo",
    "load_model": "store.zoo",
    "train": "runs",
}


def __getattr__(name: str) -> Any:
    """The functions of the Python interface, imported when they are asked for: torch takes seconds."""
    if name not in _HOMES:
        raise AttributeError(f"module 'robustbench_dec' has no attribute '{name}'")
    import importlib

    return getattr(importlib.import_module(f"robustbench_dec.{_HOMES[name]}"), name)


class _FrontDoor(ModuleType):
    """This package, in which `attack` is the function; the module of that name is imported from as ever."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _HOMES or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _FrontDoor
