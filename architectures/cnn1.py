"""One convolution of 8 channels and a linear layer: the smallest network, for 8x8 digits.

The paper says how many layers there are, not how wide they are. `kernel`: the side of the convolutions, 5 by default.
"""

from robustbench_dec.cnn import ConvolutionalNetwork


class CNN1(ConvolutionalNetwork):
    """One convolution, each with 2x2 max-pooling and ReLU, and a linear layer."""

    channels = (8,)
