"""What tests share. They import from here, never from conftest.py and never from one another."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The repository."""
