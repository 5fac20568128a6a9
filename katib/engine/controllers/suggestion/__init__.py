"""The Suggestion controller: asks the services for assignments and keeps what no trial has taken yet."""
