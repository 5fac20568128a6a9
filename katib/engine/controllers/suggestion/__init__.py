"""The Suggestion controller: asks the services for assignments and keeps those that no trial has taken yet."""
