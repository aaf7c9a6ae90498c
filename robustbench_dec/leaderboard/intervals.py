"""How sure an accuracy is, and a difference between two."""

from collections.abc import Sequence

from scipy.stats import binomtest


def wilson(n_correct: int, n_examples: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval for the accuracy n_correct / n_examples, as fractions (low, high).

    With p = n_correct / n_examples, n = n_examples and z the normal quantile of `confidence`, the ends are
    (p + z^2/2n -+ z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n) (Wilson, 1927). They stay within [0, 1] and keep a
    positive width at accuracies of 0 and 1, where the textbook p -+ z sqrt(p(1-p)/n) has none.
    """
    interval = binomtest(n_correct, n_examples).proportion_ci(confidence, method="wilson")
    return float(interval.low), float(interval.high)


def mcnemar(first: int, second: int) -> float:
    """The exact two-sided p-value that two classifiers err equally often (McNemar, 1947).

    `one` images are wrong for the first only, `other` for the second only; under the hypothesis one ~ Binomial(one +
    other, 1/2). Images on which both agree say nothing.
    """
    return float(binomtest(first, first + second, 0.5).pvalue) if first + second else 1.0


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of m tests, corrected so that all of them together err with the level of one (Holm, 1979).

    The k-th smallest is multiplied by m - k + 1, and is at least as large as the one before it.
    """
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected
