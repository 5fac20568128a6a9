"""The KatibConfig of a cluster: which images serve algorithms and collect metrics, and how the controller runs.

Belongs here: the models (`models.py`), reading them with everything that is wrong (`reading.py`), and which reading is
in force (`source.py`). Does not belong here: fetching the text from a cluster.
"""
