"""Others' protocols: what another system says, as the record keeps it, and the record as that system says it."""
