"""torchvision beside a CPU-only torch.

torchvision's wheel from PyPI is compiled against CUDA. Next to a CPU-only torch its compiled operators do not load, and
`import torchvision` then fails with "operator torchvision::nms does not exist", because it registers shape functions
for two operators that nobody declared. Declaring their schemas is enough for `torchvision.datasets` to work.
"""

import functools
import importlib
import sys
from types import ModuleType

import torch

SCHEMAS = tuple(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor" for name in ("nms", "qnms"))

# A library's declarations live as long as the object does.
_declared: list[torch.library.Library] = []


@functools.cache
def torchvision_datasets() -> ModuleType:
    """The module `torchvision.datasets`; changes nothing where torchvision imports by itself."""
    try:
        return importlib.import_module("torchvision.datasets")
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    # The failed import leaves submodules behind that would be taken for complete ones.
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in SCHEMAS:
        library.define(schema)
    _declared.append(library)
    return importlib.import_module("torchvision.datasets")
