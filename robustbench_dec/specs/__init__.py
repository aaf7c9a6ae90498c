"""What is asked for: specifications read from TOML, checked, and turned into runs."""
