"""Admission of Experiments and pods. Every replica serves it.

Belongs here: decisions about reviews. Does not belong here: the protocol and its certificates
(`katib.places.cluster.admission`), and how a pod is changed (`katib.places.cluster.injection`).
"""
