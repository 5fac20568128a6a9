"""Population based training.

Belongs here: who trains on, who copies whom, how values are perturbed, and the folders of checkpoints on a volume that
the service shares with its trials. Does not belong here: folders of trials on one machine
(`katib.places.machine.trials.jobs`).
"""
