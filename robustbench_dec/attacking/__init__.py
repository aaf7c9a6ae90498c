"""How networks are attacked and judged, and where attacks come from."""
