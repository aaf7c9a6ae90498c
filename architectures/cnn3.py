"""Three convolutions of 16, 32 and 64 channels and a linear layer: the paper's 3-layer CNN, for CIFAR-10.

The paper says how many layers there are, not how wide they are. `kernel`: the side of the convolutions, 5 by default.
"""

from robustbench_dec.cnn import ConvolutionalNetwork


class CNN3(ConvolutionalNetwork):
    """Three convolutions, each with 2x2 max-pooling and ReLU, and a linear layer."""

    channels = (16, 32, 64)
