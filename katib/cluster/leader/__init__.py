"""The one controller that works: how it is chosen, what keeps others from acting, and all that it runs."""
