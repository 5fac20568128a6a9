"""What both homes have in common above their stores: answering users, checking submissions, explaining.

Belongs here: code that works on any object store and knows neither processes nor clusters.
"""
