"""For programs that are written for another library: what they plug into it, to work with katib.

Belongs here: a module for each library, named as it is, which imports it. Does not belong here: anything that works
without that library, and rules of our own.
"""
