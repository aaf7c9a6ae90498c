"""What tests share. They import from here, never from conftest.py and never from one another."""

from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[2]
"""The repository."""


def asked_by(rows: pd.DataFrame, stem: str) -> "pd.Series[bool]":
    """Which rows of a leaderboard a table asked for, maybe beside others."""
    return rows["table"].fillna("").str.split(";").map(lambda stems: stem in stems)
