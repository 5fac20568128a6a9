"""Plug-ins for other libraries that make them work with katib.

Belongs here: a module for each library, with its name, which imports it. Does not belong here: anything that works
without that library, and rules of katib.
"""
