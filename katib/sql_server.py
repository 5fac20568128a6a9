"""PostgreSQL and MySQL databases, shared by whoever keeps something in them."""
