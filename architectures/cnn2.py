"""Two convolutions of 16 and 32 channels and a linear layer: the paper's 2-layer CNN, for MNIST.

The paper says how many layers there are, not how wide they are. `kernel`: the side of the convolutions, 5 by default.
"""

from robustbench_dec.cnn import ConvolutionalNetwork


class CNN2(ConvolutionalNetwork):
    """Two convolutions, each with 2x2 max-pooling and ReLU, and a linear layer."""

    channels = (16, 32)
