"""The KatibConfig of a cluster: images of algorithms and metrics collectors, and options of the controller.

Belongs here: the models (`models.py`), parsing with all errors reported (`reading.py`), and the configuration in force
(`source.py`). Does not belong here: fetching the text from a cluster.
"""
