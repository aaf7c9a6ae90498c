"""robustbench-dec: adversarial robustness of models that were trained without a server."""

__version__ = "0.1.0"
