"""Everything that a user can ask, implemented once over any store."""
