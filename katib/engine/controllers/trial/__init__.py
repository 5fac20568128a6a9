"""The Trial controller: runs one job, judges it, and reads its observation."""
