"""ASHA: asynchronous successive halving, with trials that pause at a rung until they are among its best."""
