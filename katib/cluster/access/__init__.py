"""The way of users into a cluster, with their own rights: the tuning service behind the commands and REST."""
