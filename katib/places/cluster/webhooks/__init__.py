"""What the API server asks before it stores an Experiment or a pod. Every replica answers.

Belongs here: our answers to reviews. Does not belong here: the protocol and its certificates
(`katib.places.cluster.admission`), and how a pod is changed (`katib.places.cluster.injection`).
"""
