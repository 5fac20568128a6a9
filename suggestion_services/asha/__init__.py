"""ASHA: asynchronous successive halving, with trials that pause at a rung until they rank among its best."""
