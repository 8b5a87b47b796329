"""What is on a simulated GPU host: packages, driver, services, jobs, GPUs and how fast they are."""
