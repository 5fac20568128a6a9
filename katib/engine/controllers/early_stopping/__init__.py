"""Early stopping of running trials: asks the experiment's service and has the Trial controller end them."""
