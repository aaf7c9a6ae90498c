"""What comes with the suite: tables/, results/ and docs/ of the checkout, or the parts of them that a wheel carries.

A wheel has the specifications, the zoo, the records and cells behind the tables, and the page about flags. All of it is
only read: what a command writes goes to the current folder.
"""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def place(folder: str) -> Path:
    """Where the suite's own tables, results or docs are."""
    inside = PACKAGE / "shipped_files" / folder
    return inside if inside.is_dir() else PACKAGE.parent / folder


def results() -> Path:
    """results/ of the current folder; where there is none, the cells and the zoo that come along."""
    here = Path("results")
    return here if here.is_dir() else place("results")


def specifications() -> list[str]:
    """The names of the specifications that come along, for example table2."""
    return sorted(path.stem for path in place("tables").glob("*.toml"))


def specification(path: str | Path) -> Path:
    """The file that is there; else the specification of that name that comes along: table2, or tables/table2.toml."""
    asked = Path(path)
    if not asked.exists() and asked.parent in (Path(), Path("tables")) and asked.suffix in ("", ".toml"):
        known = place("tables") / f"{asked.stem if asked.suffix else asked.name}.toml"
        return known if known.is_file() else asked
    return asked


def own(path: Path) -> bool:
    """Whether a file is one of the suite's own specifications."""
    return path.resolve().parent == place("tables")


def written(path: Path) -> Path:
    """The folder for what is written beside a specification: its own, but never that of an installed wheel."""
    return Path("tables") if own(path) and (PACKAGE / "shipped_files").is_dir() else path.parent
