"""What came out: every cell as one row, audited, compared and exported."""
