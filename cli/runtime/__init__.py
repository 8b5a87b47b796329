"""The embedded runtime of a fleet: its Prefect server, its worker, and what is registered with them."""
