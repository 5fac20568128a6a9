"""The algorithm `enas`: a controller that learns from trials which architectures to try."""
