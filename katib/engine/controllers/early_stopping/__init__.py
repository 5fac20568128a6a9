"""Early stopping of running trials: asks the experiment's service about them, and has the Trial controller end them."""
