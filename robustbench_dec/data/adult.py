"""a9a and a9a.t, bit for bit, from the files of UCI Adult (Kohavi and Becker 1996) as Platt (1998) binarised them.

One block of indicator columns per attribute, in the order of adult.names: a categorical attribute has one column per
value, and a missing value (?) sets none; a numeric one has one column per bin, the bin being the number of thresholds
strictly below the value.
"""

from bisect import bisect_left
from collections.abc import Mapping

THRESHOLDS: dict[str, list[int]] = {
    "age": [25, 32, 40, 49],
    "fnlwgt": [106640, 158660, 196337, 259870],
    "education-num": [8, 9, 10, 12],
    "capital-gain": [0],
    "capital-loss": [0],
    "hours-per-week": [34, 39, 40, 47],
}


def parts(file: str) -> tuple[str, str]:
    """The file of Adult that holds the rows of a9a or a9a.t, and the one that names its attributes."""
    return "adult.test" if file == "a9a.t" else "adult.data", "adult.names"


def rebuild(file: str, contents: Mapping[str, bytes]) -> bytes:
    """The text of a9a or a9a.t: for each row its label, then `INDEX:1` for each column that is set."""
    rows, names = (contents[part].decode() for part in parts(file))
    attributes = _attributes(names)
    lines = []
    for row in rows.splitlines():
        if not row or row.startswith("|"):  # adult.test begins with a remark
            continue
        *values, label = row.split(", ")
        columns, first = [], 1
        for value, (name, known) in zip(values, attributes, strict=True):
            if known is None:
                columns.append(first + bisect_left(THRESHOLDS[name], int(value)))
                first += len(THRESHOLDS[name]) + 1
            else:
                if value != "?":
                    columns.append(first + known.index(value))
                first += len(known)
        sign = "+1" if label.rstrip(".") == ">50K" else "-1"
        lines.append(" ".join([sign, *(f"{column}:1" for column in columns)]) + " \n")
    return "".join(lines).encode()


def _attributes(names: str) -> list[tuple[str, list[str] | None]]:
    """The attributes in order, each with its values, or None if it is numeric."""
    found: list[tuple[str, list[str] | None]] = []
    for line in names.splitlines():
        name, colon, values = line.partition(": ")
        if colon and not line.startswith("|"):
            values = values.strip().rstrip(".")
            found.append((name, None if values == "continuous" else values.split(", ")))
    return found
