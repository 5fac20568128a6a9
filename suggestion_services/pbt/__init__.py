"""Population based training.

Belongs here: the choice of the next member and of its parent, perturbation of values, and folders of checkpoints on a
volume shared by the service and its trials. Does not belong here: folders of trials on one machine
(`katib.places.machine.trials.jobs`).
"""
