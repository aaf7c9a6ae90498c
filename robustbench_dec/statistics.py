"""How sure an accuracy is."""

from scipy.stats import binomtest


def wilson(n_correct: int, n_examples: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval for the accuracy n_correct / n_examples, as fractions (low, high).

    With p = n_correct / n_examples, n = n_examples and z the normal quantile of `confidence`, the ends are
    (p + z^2/2n -+ z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n) (Wilson, 1927). They stay within [0, 1] and keep a
    positive width at accuracies of 0 and 1, where the textbook p -+ z sqrt(p(1-p)/n) has none.
    """
    interval = binomtest(n_correct, n_examples).proportion_ci(confidence, method="wilson")
    return float(interval.low), float(interval.high)
